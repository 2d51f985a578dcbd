"""What works on this card, or on the CPU where there is none, tried in small: kernels, copies, recordings,
memory, and one answer by TriForce beside plain decoding. Finds no speeds worth planning with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from core.assembly.models import cpu_backend, cpu_beside_card, kernel_trials
from core.backend.base import Backend
from core.backend.cuda.backend import CudaBackend
from core.backend.shared import library_attention
from core.backend.shared.compiled import HEAD_DIMS
from core.backend.shared.delta_example import ExampleSizes, delta_by_definition, example_layer, example_rows
from core.backend.shared.kv_rows import CODES, as_rows, dequantized
from core.backend.shared.quantized_example import KINDS, example
from core.cache.base import KVShape
from core.cache.offloaded import OffloadedKVCache
from core.config import Settings
from core.hardware.facts import Gpu, Hardware
from core.model.delta import GatedDelta
from core.model.mixer_sizes import DeltaSizes
from core.model.shapes import ModelShape
from core.planning.budget import newest_rows_bytes
from core.planning.fitting import is_old, site_of
from core.planning.layout import OVERRUN, Layout, held_tokens, plan_layout
from core.planning.notes import OLD_CARD
from core.selftest.random_model import ANSWER, random_config, small_answers, verification_recorded
from core.text.words import GB, listed_texts
from core.text.words import translated as _

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TOLERANCE = {
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 4e-2,
}  # against fp64, numbers around 1
_STATES_OFF = 1e-3  # states are fp32 on every device
_BLOCK_BYTES = 64 << 20  # of a copy: half a staging block
_REPEATS = 4


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was tried. `ok` None: nothing to try it with here. `figures`: JSON values."""

    what: str
    ok: bool | None
    said: str
    figures: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def check_device(backend: Backend, exact: Backend, gpu: Gpu | None = None) -> Iterator[CheckResult]:
    """Each finding as soon as it is made. `backend` computes as answers are computed, `exact` is the same
    device in float32. What breaks in one is its finding, and the others go on, unless the device does not.
    """
    trials: tuple[tuple[str, Callable[[], CheckResult]], ...] = (
        (_("numbers"), partial(_numbers, backend, gpu)),
        (_("attention"), partial(_attention, backend)),
        (_("weights in codes"), partial(_codes, backend)),
        (_("layers with a state"), partial(_states, backend)),
        (_("copies"), partial(_copies, backend)),
        (_("copies beside computing"), partial(_overlap, backend)),
        (_("recordings"), partial(_recordings, backend)),
        (_("memory"), partial(_memory, backend)),
        (_("answers"), partial(_answers, exact)),
    )
    with torch.inference_mode():
        for what, trial in trials:
            try:
                yield trial()
            except Exception as error:  # whatever it is, it is what was to be found out
                first = (str(error).splitlines() or [type(error).__name__])[0]
                yield CheckResult(what, False, _("It broke off: {error}").format(error=first))
            if backend.lost():
                said = _("It failed for good, and the rest could not be tried. Run this again.")
                yield CheckResult(_("the card"), False, said)
                return


def devices(hardware: Hardware, settings: Settings) -> tuple[Backend, Backend, Gpu | None]:
    """What `check_device` takes: the device that would answer, in its own numbers and in float32. Raises
    UserError where torch cannot use it.
    """
    site = site_of(hardware, settings)
    if site.gpu is None:
        return (
            cpu_backend(DTYPES[site.computes], storage=DTYPES[site.dtype]),
            cpu_backend(torch.float32),
            None,
        )
    spare = site.vram_reserve if site.spills else None
    return (
        CudaBackend(
            DTYPES[site.dtype],
            index=site.gpu.index,
            keep_free_bytes=spare,
            page_lock_bytes=site.pinnable,
            trials=kernel_trials,
            own_kernels=settings.kernels == "auto",
        ),
        CudaBackend(
            torch.float32,
            index=site.gpu.index,
            keep_free_bytes=spare,
            cpu=partial(cpu_beside_card, site.threads),
        ),
        site.gpu,
    )


def format_findings(findings: list[CheckResult]) -> str:
    """For a terminal."""
    marks = {True: _("works"), False: _("BROKEN"), None: _("not here")}
    return "\n".join(f"  {marks[one.ok]:<9} {one.what}: {one.said}" for one in findings)


def verdict(findings: list[CheckResult]) -> str:
    """All of them in one sentence."""
    broken = [one.what for one in findings if one.ok is False]
    if broken:
        said = _("Not sound: {parts}. To report it, send all of this text and the log.")
        return said.format(parts=", ".join(broken))
    return _("All that could be tried here works.")


# ---- the trials --------------------------------------------------------------------------------------------


def _numbers(backend: Backend, gpu: Gpu | None) -> CheckResult:
    said = _("It computes in {dtype} on {device}.").format(
        dtype=str(backend.dtype).removeprefix("torch."), device=backend.name
    )
    if gpu is not None and is_old(gpu):
        said += " " + _(OLD_CARD)
    return CheckResult(_("numbers"), True, said, {"dtype": str(backend.dtype)})


def _attention(backend: Backend) -> CheckResult:
    """Few rows and many, over several blocks, grouped heads, caches of numbers and of codes, against fp64.
    Says what the trial of the compiled kernel for few rows found.
    """
    chosen, off, before = {}, {}, backend.notes
    for head_dim in HEAD_DIMS:
        chosen[str(head_dim)] = _kernel(backend, head_dim)
        for n, length in ((1, 700), (5, 700), (33, 1000), (200, 900)):
            for kind, rows in (("numbers", backend.dtype), ("codes", CODES)):
                off[f"{n} x {head_dim}, {kind}"] = _off(backend, n, length, head_dim, rows)
    worst = max(off.values())
    said = _("off by at most {off:.1g} from exact arithmetic; in reading by {kernel}").format(
        off=worst, kernel=chosen["128"]
    )
    ok = worst < _TOLERANCE[backend.dtype]
    found = [note for note in backend.notes if note not in before]
    if chosen["128"] == library_attention.by_matmul.__name__:
        said += ". " + _("No fast kernel of torch or flash-attn works here: reading is some ten times slower")
    if found:
        said = " ".join((f"{said}.", *found))
    figures = {"kernels": chosen, "short_passes": found, "largest_error": worst, "errors": off}
    return CheckResult(_("attention"), ok, said, figures)


def _kernel(backend: Backend, head_dim: int) -> str:
    if backend.device.type == "cpu":
        return _("the CPU's own kernels")
    return library_attention.choose_kernel(backend.device, backend.dtype, head_dim).__name__


def _off(backend: Backend, n: int, length: int, head_dim: int, rows: torch.dtype) -> float:
    dice, block = torch.Generator().manual_seed(n), 256
    q = torch.randn(n, 8, head_dim, generator=dice).to(backend.dtype)
    blocks = -(-length // block)
    k, v = (torch.randn(blocks, 2, block, head_dim, generator=dice).to(backend.dtype) for _ in range(2))
    k, v = (as_rows(part, head_dim, rows) for part in (k, v))
    got, lse = backend.attend_part(*(one.to(backend.device) for one in (q, k, v)), length=length, causal=True)
    k, v = (dequantized(part, head_dim, torch.float32) for part in (k, v))
    keys, values = (
        part.double().transpose(0, 1).flatten(1, 2)[:, :length].repeat_interleave(4, 0) for part in (k, v)
    )
    scores = q.double().transpose(0, 1) @ keys.transpose(1, 2) * head_dim**-0.5  # [heads, n, length]
    hidden = torch.arange(length) > torch.arange(length - n, length).unsqueeze(1)
    scores.masked_fill_(hidden, -torch.inf)
    want = (torch.softmax(scores, -1) @ values).transpose(0, 1)
    off = (got.cpu().double() - want).abs().max(), (lse.cpu().double() - scores.logsumexp(-1).t()).abs().max()
    return float(max(off))


def _codes(backend: Backend) -> CheckResult:
    """Matrices of every kind of code with few rows and many, and rows of them, against fp64."""
    dice, worst, before = torch.Generator().manual_seed(0), 0.0, backend.notes
    for kind in KINDS:
        planes = example(kind, dice, rows=67)
        weights, product, rows = planes.decoded(), backend.coded([planes], None), backend.coded_rows(planes)
        for n in (1, 9, 33, 200):
            x = torch.randn(n, planes.columns, generator=dice).to(backend.dtype)
            exact, size = x.double() @ weights.double().t(), x.double().abs() @ weights.double().abs().t()
            off = (product(x.to(backend.device)).cpu().double() - exact).abs() / size
            worst = max(worst, float(off.max()))
        ids = torch.tensor([66, 0, 5])
        if not torch.equal(rows[ids.to(backend.device)].cpu(), weights[ids].to(backend.dtype)):
            worst = torch.inf
    allowed = max(1e-5, torch.finfo(backend.dtype).eps)  # weights and result are rounded once each
    said = _("off by at most {off:.1g} from exact arithmetic").format(off=worst)
    found = [note for note in backend.notes if note not in before]
    figures = {"largest_error": worst, "refused": sorted(backend.refused)}
    return CheckResult(_("weights in codes"), worst <= allowed, listed_texts((said, *found), ". "), figures)


def _states(backend: Backend) -> CheckResult:
    """Rows of a layer with a gated delta rule, few and many, and whole steps of a prefill, against fp64."""
    sizes, before, worst = DeltaSizes(2, 8, 128, 32, 4), backend.notes, 0.0
    dice = torch.Generator().manual_seed(0)
    _sizes, *factors = example_layer(ExampleSizes(2, 8, 128, 32), dice)
    exact = GatedDelta(sizes, *factors, norm=torch.ones(sizes.value_dim))
    there = [one.to(backend.device) for one in factors]
    layer = GatedDelta(sizes, *there, norm=exact.norm).served_by(backend)
    for n in (1, 9, 40, 2 * layer.step_rows):
        state, rows = example_rows(sizes, n, dice)
        rows, own = rows.to(backend.dtype), state.to(backend.device, copy=True)
        given = rows.to(backend.device)
        found = layer.one_by_one(own, own, given) if n < layer.step_rows else layer.steps(own, given)
        for got, want in zip((found, own), delta_by_definition(exact, state, rows), strict=True):
            worst = max(worst, float((got.cpu().double() - want).abs().max()))
    said = _("off by at most {off:.1g} from exact arithmetic").format(off=worst)
    found = [note for note in backend.notes if note not in before]
    figures = {"largest_error": worst, "refused": sorted(backend.refused)}
    return CheckResult(
        _("layers with a state"), worst <= _STATES_OFF, " ".join((f"{said}.", *found)), figures
    )


def _copies(backend: Backend) -> CheckResult:
    """There and back, from memory that is page-locked where possible and from ordinary memory."""
    rates: dict[str, float] = {}
    numbers = _BLOCK_BYTES // backend.dtype.itemsize
    rows = (torch.arange(numbers // 64).remainder(250) + 1).to(backend.dtype).unsqueeze(1).expand(-1, 64)
    ok = True
    for name, host in (
        ("pinned", backend.host_memory(rows.shape, backend.dtype)),
        ("ordinary", torch.zeros(rows.shape, dtype=backend.dtype)),
    ):
        host.copy_(rows)
        device = torch.zeros(rows.shape, dtype=backend.dtype, device=backend.device)
        rates[f"{name}_to_device_gb_per_s"] = _rate(backend, device, host, back=False)
        ok &= torch.equal(device.cpu(), rows)
        host.zero_()
        rates[f"{name}_to_host_gb_per_s"] = _rate(backend, host, device, back=True)
        ok &= torch.equal(host, rows)
    said = _("{pinned:.1f} GB/s to the card and {back:.1f} back, {ordinary:.1f} from ordinary memory")
    if backend.device.type == "cpu":
        said = _("{pinned:.1f} GB/s inside the computer's memory: without a card no bus is crossed")
    said = said.format(
        pinned=rates["pinned_to_device_gb_per_s"],
        back=rates["pinned_to_host_gb_per_s"],
        ordinary=rates["ordinary_to_device_gb_per_s"],
    )
    return CheckResult(_("copies"), ok, said if ok else _("What arrives is not what was sent"), rates)


def _rate(backend: Backend, target: torch.Tensor, source: torch.Tensor, *, back: bool) -> float:
    """GB/s, the best of a few."""
    copies, best = backend.copies(), 0.0
    for _repeat in range(_REPEATS):
        started = time.perf_counter()
        (copies.to_host if back else copies.to_device)(target, source)
        copies.finish(copies.mark())
        best = max(best, source.nbytes / GB / (time.perf_counter() - started))
    return round(best, 2)


def _overlap(backend: Backend) -> CheckResult:
    """Whether copies and products together take less than one after the other."""
    what = _("copies beside computing")
    if backend.device.type == "cpu":
        return CheckResult(what, None, _("the device's memory is the host's"))
    numbers, size = _BLOCK_BYTES // backend.dtype.itemsize, 4096
    host, device = (
        backend.host_memory((numbers,), backend.dtype),
        torch.zeros(numbers, dtype=backend.dtype, device=backend.device),
    )
    square = torch.ones(size, size, dtype=backend.dtype, device=backend.device)
    copies = backend.copies()

    def compute(times: int) -> None:
        for _time in range(times):
            torch.mm(square, square)

    def carry(times: int) -> None:
        for _time in range(times):
            copies.to_device(device, host)

    def seconds(*work: Callable[[], None]) -> float:
        started = time.perf_counter()
        for one in work:
            one()
        copies.finish(copies.mark())
        torch.zeros(1, device=backend.device).item()
        return time.perf_counter() - started

    seconds(lambda: compute(2), lambda: carry(2))
    one = seconds(lambda: carry(8))
    products = max(1, round(one / max(1e-6, seconds(lambda: compute(8)) / 8)))
    other = seconds(lambda: compute(products))
    both = seconds(lambda: carry(8), lambda: compute(products))
    hidden = max(0.0, (one + other - both) / min(one, other))
    said = _("{share:.0%} of the shorter of the two is hidden behind the other").format(
        share=min(1.0, hidden)
    )
    return CheckResult(what, hidden > 0.3, said, {"hidden_share": round(hidden, 3)})


def _recordings(backend: Backend) -> CheckResult:
    """A recorded computation, repeated with other numbers, and a recorded verification."""
    before = backend.notes
    x = torch.zeros(64, 64, dtype=backend.dtype, device=backend.device)
    replay = backend.capture(lambda: x @ x + 1)
    if replay is None:
        said = _("nothing is recorded here: every operation is launched by itself")
        found = [note for note in backend.notes if note not in before]
        return CheckResult(_("recordings"), None, listed_texts((said, *found), ". "))
    x.fill_(0.5)
    ok = bool((replay() == 17.0).all())
    said = _("a recorded pass repeats what it should") if ok else _("a recorded pass repeats something else")
    reason = verification_recorded(backend)
    if reason:
        found = _("verification is launched operation by operation: {reason}").format(reason=reason)
    else:
        found = _("verification over a KV cache on the card is recorded, and gives the same bits")
    return CheckResult(
        _("recordings"), ok, listed_texts((said, found), "; "), {"verification_launched": reason}
    )


def _memory(backend: Backend) -> CheckResult:
    """What a small model's cache takes of the device, as a plan counts it and as measured."""
    layout = _layout(backend)
    _held, block_tokens = held_tokens(layout.context, layout.block_tokens, layout.retrieval_chunk)
    shape, before = layout.target, backend.memory().used_bytes
    cache = OffloadedKVCache(
        KVShape(shape.layers, shape.kv_heads, shape.head_dim),
        layout.context + OVERRUN,
        backend,
        block_tokens=block_tokens,
        resident_layers=layout.on_chip,
        staging_blocks=layout.blocks,
        fresh_tokens=layout.spare_rows,
    )
    took = backend.memory().used_bytes - before
    planned = layout.layer_kv_bytes + layout.at_work_bytes + newest_rows_bytes(layout)
    figures = {"planned_bytes": planned, "counted_bytes": cache.device_bytes, "measured_bytes": took}
    if backend.device.type == "cpu":
        return CheckResult(_("memory"), None, _("the device's memory is the host's"), figures)
    ok = abs(took - planned) < 0.05 * planned + (8 << 20)
    said = _("a cache counted at {counted:.0f} MB takes {took:.0f}").format(
        counted=planned / 1e6, took=took / 1e6
    )
    return CheckResult(_("memory"), ok, said, figures)


def _layout(backend: Backend) -> Layout:
    """One layer of four on the device."""
    sizes = {"layers": 4, "heads": 8, "kv_heads": 8, "head_dim": 64, "vocab": 256}
    config = random_config(hidden=512, intermediate=512, **sizes)
    shape = ModelShape.from_hf_config(config.source, name=config.name)
    held, computes = (str(one).removeprefix("torch.") for one in (backend.storage, backend.dtype))
    made = plan_layout("cuda", held, computes, Settings(), target=shape, draft=None, context=8192)
    return replace(made, on_chip=1)


def _answers(backend: Backend) -> CheckResult:
    """The same greedy tokens plainly, and by three levels over a cache that is mostly in host memory, of
    which the CPU attends to a part or to nothing.
    """
    plain, *others = small_answers(backend)
    ok = all(other == plain for other in others) and len(plain) == ANSWER
    said = _(
        "{tokens} tokens by TriForce from host memory, of which the CPU attends to a part, too, are those of "
        "plain decoding"
    ).format(tokens=ANSWER)
    if not ok:
        said = _("TriForce and plain decoding give different texts; answers of this device cannot be trusted")
    return CheckResult(_("answers"), ok, said, {"same": ok})
