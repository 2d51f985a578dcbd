"""The GPU's kernel for layers with a gated delta rule against the definition, without a GPU: its launches are
done by a stand-in for the driver (tests/support/fake_driver.py), and with `pip install triton==3.9.0` by
Triton's interpreter from the kernel's own source as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise
from pathlib import Path

import pytest
import torch

from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.triton import delta, delta_trial
from core.backend.cuda.triton.build import Variant, variants
from core.backend.cuda.triton.delta import CardDelta, CardDeltaChunks
from core.backend.cuda.triton.driver import CudaDriver, read_kernel
from core.backend.shared.compiled import DELTA
from core.backend.shared.delta_example import delta_by_definition
from core.cache.base import KVShape, StateShape
from core.cache.states import LayerStates
from core.errors import DeviceLost
from core.hardware.measured import DeviceTrials, Measurements
from core.model.delta import STEP_ROWS, GatedDelta
from core.model.mixer_sizes import DeltaSizes
from tests.support.cuda_device import Device, Stream, on_the_cpu
from tests.support.delta_layers import rule, some
from tests.support.fake_driver import EXECUTORS, Grid, Library, packed, promise
from tests.support.said import figures, values

HALF = (torch.bfloat16, torch.float16)
SMALL = DeltaSizes(2, 8, 128, 16, 4)
# value heads that share a key head or do not, one strip of columns and several
SIZES = [SMALL, DeltaSizes(8, 8, 128, 48, 4)]


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(params=EXECUTORS)
def executor(request) -> str:
    return request.param


def kernel(executor: str, dtype: torch.dtype = torch.bfloat16) -> CardDelta:
    return CardDelta(CudaDriver(Library(EXECUTORS[executor])), dtype, stream=lambda: 0)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(("sizes", "n"), [(SMALL, 1), (SMALL, 6), (SIZES[1], 2)], ids=str)
def test_equals_the_definition(executor, dtype, sizes: DeltaSizes, n: int):
    """A row of another pass, a channel of another head, columns that nobody takes."""
    state, rows = some(sizes, n)
    rows = rows.to(dtype)
    want, want_state = delta_by_definition(rule(sizes), state, rows)
    target = torch.full_like(state, torch.nan)
    found = kernel(executor, dtype).through(rule(sizes), state, target, rows)
    assert torch.allclose(found.double(), want, atol=2e-6)
    assert torch.allclose(target.double(), want_state, atol=2e-6)
    assert float(want.abs().max()) > 0.1


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # a gate that is shut
@pytest.mark.parametrize("steps", [0.0, 30.0, 1000.0])
def test_gates_of_any_size(executor, steps: float):
    """Kept almost whole, or nothing; and rows of zeros, whose keys have no direction."""
    state, rows = some(SMALL, 5)
    rows[3:7] = 0
    rows[:, SMALL.channels :] *= steps
    rows, given = rows.bfloat16(), rule(SMALL, steps=steps)
    want, want_state = delta_by_definition(given, state, rows)
    found = kernel(executor).through(given, state, state, rows)
    assert torch.allclose(found.double(), want, atol=2e-6)
    assert torch.allclose(state.double(), want_state, atol=2e-6)


@pytest.mark.parametrize("steps", [-12.0, -3.0, 0.0, 3.0, 25.0])
def test_what_is_kept_is_exact_in_its_small_part(executor, steps: float):
    """Raised to thousands of tokens, what a logarithm of 1 + a little loses would be lost of a memory."""
    state, rows = some(SMALL, 1)
    rows[:, SMALL.channels : SMALL.channels + SMALL.value_heads] = -60  # nothing is corrected
    rows[:, SMALL.channels + SMALL.value_heads :] = steps
    rows, target, given = rows.bfloat16(), torch.empty_like(state), rule(SMALL, steps=0.0)
    kernel(executor).through(given, state, target, rows)
    kept = (target.double() / state.double()).mean(dim=(1, 2))
    want = (given.decay.double() * torch.nn.functional.softplus(torch.tensor(steps).double())).exp()
    assert torch.allclose(kept, want, rtol=3e-7 * max(1.0, steps), atol=1e-37)


def test_a_row_among_many_has_the_bits_it_has_alone(executor):
    """And the state behind it, whether it is written over or beside the one that was read."""
    n, made = 5, kernel(executor)
    state, rows = some(SMALL, n)
    rows, whole, alone = rows.bfloat16(), torch.empty_like(state), state.clone()
    found = made.through(rule(SMALL), state, whole, rows)
    for at in range(n):
        own = made.through(rule(SMALL), alone, alone, rows[at : at + SMALL.kernel])
        assert torch.equal(own[0], found[at]), at
    assert torch.equal(alone, whole)


@pytest.mark.parametrize(
    "variant",
    [one for one in variants() if one.name.startswith(("take_", "compare_"))],
    ids=lambda one: one.name,
)
def test_nothing_is_rounded_together_that_the_source_does_not_say(variant: Variant):
    """A driver may fuse a product and a sum unless each says how it is rounded, and may do so in one row and
    not in another; and rows go through one loop, not through copies of it.
    """
    text = read_kernel(variant.name).ptx.decode("ascii")
    assert not re.search(r"\b(?:add|sub|mul)\.f32", text) and "mul.rn.f32" in text
    if variant.function == "take_rows":
        assert len(re.findall(r"@%p\d+ bra", text)) == 2


# ---- many rows at once -------------------------------------------------------------------------------------


def chunks(executor: str, dtype: torch.dtype = torch.bfloat16) -> CardDeltaChunks:
    return CardDeltaChunks(CudaDriver(Library(EXECUTORS[executor])), dtype, stream=lambda: 0)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(("sizes", "n"), [(SMALL, 64), (SIZES[1], 16)], ids=str)
def test_chunks_equal_the_definition(executor, dtype, sizes: DeltaSizes, n: int):
    """Products are of numbers in two parts of 8 bits: found rows are off by 2e-6 at most, states by 2e-5."""
    state, rows = some(sizes, n)
    rows = rows.to(dtype)
    want, want_state = delta_by_definition(rule(sizes), state, rows)
    found = chunks(executor, dtype).through(rule(sizes), state, rows)
    assert torch.allclose(found.double(), want, atol=5e-6)
    assert torch.allclose(state.double(), want_state, atol=5e-5)
    assert float(want.abs().max()) > 0.1


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # a gate that is shut
@pytest.mark.parametrize("gate", [-12.0, -3.0, 0.0, 3.0, 1000.0])
def test_chunks_with_gates_of_any_size(executor, gate: float):
    """Of one token again and again, almost all of which is corrected: powers of its system are binomials, in
    which a sum of them would drown; and rows of zeros, whose keys have no direction.
    """
    state, rows = some(SMALL, 32)
    rows[:] = rows[:1].clone()
    rows[21:26, : SMALL.channels] = 0
    rows[:, SMALL.channels : SMALL.channels + SMALL.value_heads] = 9
    rows[:, SMALL.channels + SMALL.value_heads :] = gate
    rows, given = rows.bfloat16(), rule(SMALL, steps=0.0)
    want, want_state = delta_by_definition(given, state, rows)
    found = chunks(executor).through(given, state, rows)
    assert torch.allclose(found.double(), want, atol=5e-6)
    assert torch.allclose(state.double(), want_state, atol=5e-5)


def test_how_many_chunks_come_at_once_changes_no_bit(executor, monkeypatch):
    """Whether in several launches of one call, or in several calls."""
    state, rows = some(SMALL, 48)
    rows, made, found = rows.bfloat16(), chunks(executor), []
    for most, cuts in ((48, (0, 48)), (32, (0, 48)), (48, (0, 16, 48))):
        monkeypatch.setattr(delta, "_AT_ONCE", most)
        own = state.clone()
        parts = [rows[start : end + SMALL.kernel - 1] for start, end in pairwise(cuts)]
        found.append((torch.cat([made.through(rule(SMALL), own, part) for part in parts]), own))
    for out, own in found[1:]:
        assert torch.equal(out, found[0][0]) and torch.equal(own, found[0][1])


# ---- in the backend ----------------------------------------------------------------------------------------


@pytest.fixture
def card(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:  # noqa: F811
    """A card's stand-in whose clock finds our kernel the faster: it is asked for both in turns."""
    turns = cycle((1.0, 2.0))
    monkeypatch.setattr(delta_trial, "_ROWS", (1, 3))
    monkeypatch.setattr(delta_trial, "_TIMED_STEPS", 64)
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), next(turns))[1])
    return device


def test_a_pass_of_a_layer_is_one_launch_and_a_part_of_a_prefill_two(card: Device, monkeypatch):
    """On the stream that computes, where torch asks for 35 operations a row and 95 for 256 of a prefill."""
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    served = rule(SMALL).served_by(backend)
    state, rows = some(SMALL, STEP_ROWS)
    rows = rows.bfloat16()
    for n in (1, 33):
        library.launched.clear()
        few, own, theirs = rows[: SMALL.kernel - 1 + n], state.clone(), state.clone()
        found, want = served.one_by_one(own, own, few), rule(SMALL).one_by_one(theirs, theirs, few)
        assert library.launched == [("take_rows", (1, 8, 1), Stream.cuda_stream)]
        assert torch.allclose(found, want, atol=1e-4) and torch.allclose(own, theirs, atol=1e-4)
    library.launched.clear()
    own, theirs = state.clone(), state.clone()
    found, want = served.steps(own, rows), rule(SMALL).steps(theirs, rows)
    programs = ("compare_chunks", (STEP_ROWS // 16, 8, 1)), ("take_chunks", (1, 8, 1))
    assert library.launched == [(*one, Stream.cuda_stream) for one in programs]
    assert torch.allclose(found, want, atol=1e-4) and torch.allclose(own, theirs, atol=1e-4)
    rule(SMALL).served_by(backend)
    assert len(backend.notes) == 2 and not backend.refused, "tried once for all layers"
    trials = delta_trial.TRIALS.values()
    assert [note.template for note in backend.notes] == [one.serves for one in trials]
    assert list(map(figures, backend.notes)) == [["2000.00", "4000.00"], ["1000.00", "2000.00"]]


def test_a_prefill_of_any_length_takes_whole_steps_by_the_kernel(card: Device, monkeypatch):
    """Rows before the first multiple of 64 and behind the last go one by one, and cutting the text there
    changes no bit.
    """
    library = Library(promise)
    backend, rows = on_the_cpu(monkeypatch, library), some(SMALL, 210)[1].bfloat16()
    served, shape = (
        rule(SMALL).served_by(backend),
        KVShape(2, 1, 64, states=StateShape((0,), SMALL.size, width=SMALL.width, tail=SMALL.kernel - 1)),
    )
    found, ends = [], []
    for cuts in ((0, 5, 203), (0, 5, 64, 192, 203)):
        library.launched.clear()
        states, said = LayerStates(shape, backend), []
        for start, end in pairwise(cuts):
            said.append(states.recur_for_good(0, rows[start:end], served, start=start))
            states.fed(end)
        found.append(torch.cat(said))
        ends.append(states._states.clone())
        names = [name for name, *_ in library.launched]
        assert names == ["take_rows", "take_rows", "compare_chunks", "take_chunks", "take_rows"]
    plain, alone = LayerStates(shape, backend), []
    for at in range(203):
        plain.make_room(at, at + 1)
        alone.append(plain.recur(0, rows[at : at + 1], served, start=at))
        plain.commit(at + 1)
    assert torch.equal(*found) and torch.equal(*ends)
    assert torch.allclose(torch.cat(alone).float(), found[0].float(), atol=2e-3)
    assert torch.allclose(plain._states, ends[0], atol=1e-4)


def test_a_draft_that_is_taken_back_leaves_the_bits_of_plain_decoding(card: Device, monkeypatch):
    """Through the states of a cache: a verification whose rows are accepted in part, by the kernel alone."""
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    served, shape = (
        rule(SMALL).served_by(backend),
        KVShape(2, 1, 64, states=StateShape((0,), SMALL.size, width=SMALL.width, tail=SMALL.kernel - 1)),
    )
    library.launched.clear()
    rows = some(SMALL, 9)[1].bfloat16()
    plain, drafted, said = LayerStates(shape, backend), LayerStates(shape, backend), {}
    for at in range(8):
        plain.make_room(at, at + 1)
        said[at] = plain.recur(0, rows[at : at + 1], served, start=at)[0]
        plain.commit(at + 1)
    at = 0
    for accepted in (2, 4, 1, 1):
        drafted.make_room(at, at + 4)
        wrong = torch.cat((rows[at : at + accepted], rows[:4] * 2))[:4]
        found = drafted.recur(0, wrong, served, start=at)
        assert all(torch.equal(found[row], said[at + row]) for row in range(accepted))
        at += accepted
        drafted.commit(at)
    assert torch.equal(plain._states, drafted._states) and float(plain._states.abs().max()) > 0.1
    assert {name for name, *_ in library.launched} == {"take_rows"}


def forgets(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card on which what is left is the state that was read."""
    promise(variant, grid, [*numbers[:2], numbers[1], *numbers[3:]])


def unlike(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card on which a row among many is off by a last bit or two."""
    promise(variant, grid, numbers)
    if variant.function != "take_rows":
        return
    *_, out, _c, _d, _s, n, _w, _k, heads, value_dim = numbers
    if n > 1:
        packed(out, (n, heads, value_dim)).mul_(1 + 2.0**-22)


@pytest.mark.parametrize(
    ("library", "dtype", "sizes", "said"),
    [
        (None, torch.bfloat16, SMALL, "cannot open shared object"),
        (Library(promise, refuses=["load"]), torch.bfloat16, SMALL, "unsupported toolchain"),
        (Library(promise, refuses=["launch"]), torch.bfloat16, SMALL, "unsupported toolchain"),
        (Library(forgets), torch.bfloat16, SMALL, "computes wrongly"),
        (Library(unlike), torch.bfloat16, SMALL, "computes wrongly"),
        (Library(promise), torch.float32, SMALL, "no compiled one for float32"),
        (Library(promise), torch.bfloat16, DeltaSizes(2, 8, 64, 16, 4), "layers of these sizes"),
        (Library(promise), torch.bfloat16, DeltaSizes(2, 8, 128, 24, 4), "layers of these sizes"),
        (Library(promise), torch.bfloat16, DeltaSizes(2, 4, 128, 16, 4), "layers of these sizes"),
        (Library(promise), torch.bfloat16, DeltaSizes(2, 8, 128, 16, 3), "layers of these sizes"),
    ],
)
def test_where_it_does_not_serve_torch_does(
    card: Device, monkeypatch, library, dtype, sizes: DeltaSizes, said: str
):
    """Said once in the notes, and kept for the next plan; answers go on."""
    backend = on_the_cpu(monkeypatch, library, dtype)
    for _layer in range(2):
        assert rule(sizes).served_by(backend).compiled is None
    assert len(backend.notes) == 1 and said in backend.notes[0]
    assert backend.notes[0].template == delta_trial.TRIALS["rows"].refused
    assert backend.refused == {DELTA}


def drops_a_chunk(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card that computes rows rightly, and of many leaves the state that was read."""
    if variant.function == "take_chunks":
        numbers = [*numbers[:2], numbers[3], *numbers[3:]]
    promise(variant, grid, numbers)


def unlike_in_parts(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card on which rows that come in several calls are off by a last bit or two."""
    promise(variant, grid, numbers)
    if variant.function == "take_chunks" and numbers[10] < 128:
        _, _, target, *_, value_heads, value_dim = numbers
        packed(target, (value_heads, 128, value_dim)).mul_(1 + 2.0**-22)


@pytest.mark.parametrize("wrong", [drops_a_chunk, unlike_in_parts])
def test_where_that_of_many_rows_is_wrong_torch_prefills(card: Device, monkeypatch, wrong):
    """The other serves all the same, and a plan does not hear of it."""
    backend = on_the_cpu(monkeypatch, Library(wrong))
    served = rule(SMALL).served_by(backend)
    assert served.compiled.steps is None and not backend.refused
    assert backend.notes[1].template == delta_trial.TRIALS["steps"].refused
    assert "wrongly" in backend.notes[1]
    state, rows = some(SMALL, STEP_ROWS)
    own = state.clone()
    found = served.steps(own, rows.bfloat16())
    assert torch.equal(found, rule(SMALL).steps(state, rows.bfloat16())) and torch.equal(own, state)


def test_a_kernel_that_is_no_faster_is_not_used(card: Device, monkeypatch):
    """Decided on the user's card, by its clock."""
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), 1.0)[1])
    backend = on_the_cpu(monkeypatch, Library(promise))
    assert rule(SMALL).served_by(backend).compiled is None
    assert "reason" in values(backend.notes[0]) and figures(backend.notes[0]) == ["2000.00", "2000.00"]


def test_what_kills_the_card_on_trial_is_left_out_at_the_next_start(
    card: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """And a kernel that the person does not want is not even loaded."""

    def faulted(_device: object = None) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def started(library: Library, **how: bool) -> tuple[GatedDelta, CudaBackend]:
        backend = on_the_cpu(monkeypatch, library, **how)
        backend._trials = DeviceTrials(Measurements(tmp_path), backend.name)
        return rule(SMALL).served_by(backend), backend

    with monkeypatch.context() as broken:
        broken.setattr(torch.cuda, "synchronize", faulted)
        with pytest.raises(DeviceLost):
            started(Library(promise, refuses=["launch"]))
    for how, said in (({}, "an earlier trial of it broke"), ({"own_kernels": False}, "so says the setting")):
        library = Library(promise)
        served, backend = started(library, **how)
        assert served.compiled is None and not library.launched and said in backend.notes[0]
