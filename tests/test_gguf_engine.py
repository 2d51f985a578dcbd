"""A GGUF as the target of whole answers: every mode says what plain decoding of the same codes says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from core.assembly.engines import build_engine
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.layers import native_layers
from core.backend.cpu.native.products import coarse_products, native_products
from core.cache.full import FullKVCache
from core.config import Settings
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.decoding.decoder import Round
from core.engine import Engine
from core.hardware.cpu import cpu_flags
from core.model.gguf.folder import opened
from core.model.llama import LlamaModel
from core.model.loader import load_draft, load_model
from core.request import Params
from core.text.tokenizer import Tokenizer
from tests.support.avx2_engine import FLAGS
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import MIXED, as_stored, wide
from tests.support.late_cache import LateBackend
from tests.support.modes import GRID_MODES
from tests.support.offloaded_engines import offloaded
from tests.support.tiny import PLAN, engine, ours

NEEDED = native_products(cpu_flags())
KERNELS = {"compiled": cpu_flags(), "AVX2": frozenset(FLAGS.split()), "torch": frozenset()}
FORMATS = {"Q4_K_M": MIXED, "Q8_0": "Q8_0"}
PROMPT = torch.randint(0, 300, (131,), generator=torch.Generator().manual_seed(1)).tolist()
KV = {"16-bit KV": torch.bfloat16, "8-bit KV": torch.int8}
NEAR_TIE = 0.05  # of two layers over codes; the product's margin is of thirty
WARM, MOST_DEVIATION = 0.5, 5.0  # a false alarm in about 100,000


def require(flags: str) -> None:
    """Skips where the kernels cannot run, or there is no library for this computer."""
    if not KERNELS[flags] <= cpu_flags() or flags != "torch" and native_products(KERNELS[flags]) is None:
        pytest.skip("no library for this computer")


@dataclass(frozen=True)
class Target:
    """The folder that stands for a GGUF, transformers' model with the file's own weights, decoded, and ours
    with the same, for plain decoding over rows of 16 and of 8 bits, which transformers has not.
    """

    folder: Path
    reference: torch.nn.Module
    decoded: LlamaModel

    def logits(self, written: list[int], rows: torch.dtype | None) -> torch.Tensor:
        """By which plain decoding behind PROMPT chooses each token of an answer [len(written), vocab]."""
        ids = PROMPT + written
        with torch.inference_mode():
            if rows is None:
                return self.reference(torch.tensor([ids])).logits[0, len(PROMPT) - 1 : -1]
            cache = full(self.decoded, len(ids), rows)
            return self.decoded.forward(ids, cache)[len(PROMPT) - 1 : -1]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def answers(machine, ids: list[int], tokens: int) -> dict[str, list[int]]:
    """The greedy answer of every mode."""
    found = {}
    for mode in GRID_MODES:
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=tokens, mode=mode)
        events = machine.generate(machine.new_context(machine.context_tokens), ids, params)
        found[mode] = [token for event in events if isinstance(event, Round) for token in event.tokens]
    return found


@pytest.fixture(scope="module", params=list(FORMATS))
def target(request, tmp_path_factory) -> Target:
    """One GGUF of 4 bits and one of 8."""
    root = tmp_path_factory.mktemp("target")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIFORCE_HOME", str(root / "home"))
        reference = wide()
        file = write_gguf(root / "model.gguf", reference, FORMATS[request.param])
        decoded = load_model(opened(file), CpuBackend(), positions=512, in_codes=False)
        return Target(opened(file), as_stored(reference, file), decoded)


def full(model: LlamaModel, capacity: int, rows: torch.dtype | None) -> FullKVCache:
    return FullKVCache(model.config.kv_shape, capacity + 32, model.backend, block_tokens=64, dtype=rows)


def around(target: Target, flags: frozenset[str], where: str, rows: torch.dtype | None = None, **plan):
    """An engine of the target on the kernels for a CPU of these flags (none: on torch), its cache on the
    device or half of it in host memory. Over rows of a type of their own, attention, whole layers and the
    products of drafting passes, which round their inputs, are the compiled ones, too.
    """
    products, own = native_products(flags), {}
    if rows is not None:
        native = native_attention(flags)
        own = {"native": native, "layers": native_layers(flags, native, products)}
        own["coarse"] = coarse_products(flags)
    model = load_model(target.folder, LateBackend(products=products, **own), positions=512)
    assert (model.drafting is model) == (own.get("coarse") is None)
    caches = {
        "full": lambda capacity: full(model, capacity, rows),
        "offloaded": lambda capacity: offloaded(model, "one layer", capacity + 32, dtype=rows),
    }
    return engine(model, draft=ours(wide(tied=True)), new_cache=caches[where], **plan)


@pytest.mark.parametrize("where", ["full", "offloaded"])
@pytest.mark.parametrize("flags", KERNELS)
def test_every_mode_says_what_transformers_says_of_the_decoded_weights(target, flags, where):
    """Drafts are mostly rejected; prefill is of decoded pieces, decoding from codes."""
    require(flags)
    with torch.inference_mode():
        inputs = torch.tensor([PROMPT])
        want = target.reference.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=16, do_sample=False
        )[0, len(PROMPT) :].tolist()
    assert answers(around(target, KERNELS[flags], where), PROMPT, 16) == dict.fromkeys(GRID_MODES, want)


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("where", ["full", "offloaded"])
@pytest.mark.parametrize("flags", KERNELS)
def test_every_mode_says_what_plain_decoding_over_such_rows_says(target, flags, where, kv):
    """Codes of 4 and of 8 bits over rows of 16 and of 8: each token is the likeliest, or level with it by
    what the rounding of a key explains.
    """
    require(flags)
    found = answers(around(target, KERNELS[flags], where, KV[kv]), PROMPT, 16)
    for mode in GRID_MODES:
        law = torch.log_softmax(target.logits(found[mode], KV[kv]), -1)
        chosen = law.gather(-1, torch.tensor(found[mode]).unsqueeze(-1)).squeeze(-1)
        behind = law.amax(-1) - chosen
        assert float(behind.max()) <= NEAR_TIE and int((behind > 0).sum()) <= 2, (mode, behind)
        # the margin is worth something: what comes second is mostly farther off
        second = law.topk(2).values
        assert float((second[:, 0] - second[:, 1]).median()) > 4 * NEAR_TIE


# ---- the law above temperature 0 ---------------------------------------------------------------------------


def deviation(logits: torch.Tensor, tokens: list[int], temperature: float) -> float:
    """The largest distance, in standard deviations, between how often `tokens` fell into a part of the
    vocabulary and how often the laws of `logits` [tokens, vocab] let them, over parts that are drawn from
    each law: its likeliest token, its likeliest three, its likelier half, and every other token of its order.
    """
    law, tokens = torch.softmax(logits.double() / temperature, -1), torch.tensor(tokens).unsqueeze(-1)
    order = law.argsort(-1, descending=True)
    ranks = order.argsort(-1)
    heavy = law.gather(-1, order).cumsum(-1).gather(-1, ranks) <= 0.5
    found = []
    for part in (ranks == 0, ranks < 3, heavy, ranks % 2 == 0):
        hits, chance = part.gather(-1, tokens).double().sum(), (law * part).sum(-1)
        found.append(float((hits - chance.sum()).abs() / (chance * (1 - chance)).sum().sqrt()))
    return max(found)


@pytest.mark.parametrize(
    ("where", "kv", "flags"),
    [
        ("full", "16-bit KV", "compiled"),
        ("offloaded", "16-bit KV", "compiled"),
        ("full", "8-bit KV", "compiled"),
        ("offloaded", "8-bit KV", "compiled"),
        pytest.param("full", "16-bit KV", "AVX2", marks=pytest.mark.slow),
        pytest.param("full", "8-bit KV", "AVX2", marks=pytest.mark.slow),
        pytest.param("offloaded", "16-bit KV", "AVX2", marks=pytest.mark.slow),
        pytest.param("offloaded", "8-bit KV", "AVX2", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("mode", GRID_MODES)
def test_tokens_follow_the_law_of_the_quantised_model(target, mode, where, kv, flags):
    """Codes of 4 and of 8 bits, over rows of numbers and of codes: every token is one of the law of plain
    decoding with the decoded weights over such rows, given those before it.
    """
    require(flags)
    machine = around(target, KERNELS[flags], where, KV[kv], context_tokens=448)
    written: list[list[int]] = []
    while sum(map(len, written)) < 250:
        params = Params(temperature=WARM, top_p=1.0, max_new_tokens=125, mode=mode, seed=len(written))
        events = machine.generate(machine.new_context(448), PROMPT, params)
        written.append([token for one in events if isinstance(one, Round) for token in one.tokens])
    logits, tokens = torch.cat([target.logits(one, KV[kv]) for one in written]), sum(written, [])
    assert deviation(logits, tokens, WARM) < MOST_DEVIATION
    # the measure is worth something: these tokens are not of a colder law, nor of a warmer one
    assert deviation(logits, tokens, WARM * 2) > MOST_DEVIATION
    assert deviation(logits, tokens, WARM / 2) > MOST_DEVIATION


def test_sampling_repeats_with_its_seed_in_bfloat16(tmp_path):
    """In the number format of real use, by the kernel that serves here."""
    file = write_gguf(tmp_path / "model.gguf", wide(), MIXED)
    model = load_model(opened(file), CpuBackend(torch.bfloat16, products=NEEDED), positions=512)
    ids = list(range(5, 105))
    params = Params(temperature=1.0, max_new_tokens=12, seed=3, mode="triforce")
    machine = engine(model)

    def said(given: Params) -> list[int]:
        events = machine.generate(machine.new_context(machine.context_tokens), ids, given)
        return [token for one in events if isinstance(one, Round) for token in one.tokens]

    first = said(params)
    assert len(first) == 12 and said(params) == first
    assert said(replace(params, seed=4)) != first


def test_summaries_by_two_files_of_one_name_are_kept_apart(tmp_path):
    """Both are called model.gguf: what one wrote about a book is not the other's."""
    keys = []
    for kind in ("Q8_0", "Q5_0"):
        (tmp_path / kind).mkdir()
        file = write_gguf(tmp_path / kind / "model.gguf", wide(), kind)
        machine = engine(load_model(opened(file), CpuBackend(), positions=64))
        session = Session(machine, Tokenizer.load(opened(file)), ReadingStyle())
        assert session.facts["model_name"] == "model"
        keys.append(session._summarizer._made_from("text", ["prompt"]))
    assert keys[0] != keys[1] and keys[0][1:] == keys[1][1:]


def keeping(folder: Path, file: Path, *, kv_bits: int = 16) -> Engine:
    """An engine of the file as a plan asks for it, that keeps what it reads in `folder`."""
    plan = replace(PLAN, weights_kernel="codes", weights_bits=4, kv_bits=kv_bits)
    settings = Settings(snapshot_quota_gb=1)
    return build_engine(plan, settings, opened(file), snapshots=folder, backend=CpuBackend(products=NEEDED))


def keep_read(machine: Engine) -> None:
    """Reads PROMPT as a book and keeps it."""
    context = machine.new_context(machine.context_tokens)
    context.belongs_to("book", len(PROMPT))
    list(machine.generate(context, [*PROMPT, 1], Params(temperature=0.0, max_new_tokens=1)))
    machine.save(context, should_stop=lambda: False)


def test_two_files_in_one_folder_share_no_snapshot(tmp_path):
    """What one read of a book is another model's keys and values, though all but the codes is alike."""
    (tmp_path / "models").mkdir()
    four, five = (
        write_gguf(tmp_path / "models" / f"model-{name}.gguf", wide(), {**MIXED, "": kind})
        for name, kind in (("Q4_K_M", "Q4_K"), ("Q5_K_M", "Q5_K"))
    )
    kept = tmp_path / "kept"
    keep_read(keeping(kept, four))
    assert keeping(kept, four).stored_tokens("book", PROMPT) == len(PROMPT)
    assert keeping(kept, five).stored_tokens("book", PROMPT) == 0
    moved = four.rename(tmp_path / "moved.gguf")
    assert keeping(kept, moved).stored_tokens("book", PROMPT) == len(PROMPT)


def test_a_cache_of_16_bits_and_one_of_8_share_no_snapshot(tmp_path):
    """Keys and values that were rounded are not those that were not, and neither takes the other's place on
    the disk: who tries one setting and goes back would read the book anew.
    """
    file, kept = write_gguf(tmp_path / "model.gguf", wide(), MIXED), tmp_path / "kept"
    for bits, found_by_the_other in ((16, 0), (8, len(PROMPT))):
        keep_read(keeping(kept, file, kv_bits=bits))
        assert keeping(kept, file, kv_bits=bits).stored_tokens("book", PROMPT) == len(PROMPT)
        assert keeping(kept, file, kv_bits=24 - bits).stored_tokens("book", PROMPT) == found_by_the_other


@pytest.mark.parametrize("vocab", [320, 328])
def test_a_gguf_drafts_for_a_gguf(tmp_path, vocab):
    """Also one that pads its vocabulary otherwise. What it proposes is judged; the answer is the target's."""
    files = [
        write_gguf(tmp_path / f"{name}.gguf", model, kind)
        for name, model, kind in (("target", wide(), "Q8_0"), ("draft", wide(tied=True, vocab=vocab), MIXED))
    ]
    backend = CpuBackend(products=NEEDED)
    target = load_model(opened(files[0]), backend, positions=512)
    draft = load_draft(opened(files[1]), backend, target=target, target_dir=opened(files[0]), positions=128)
    said = answers(engine(target, draft=draft), PROMPT, 16)
    assert said == dict.fromkeys(GRID_MODES, said["autoregressive"])
    # as its own weights say, decoded: padding has probability 0
    plain = load_draft(
        opened(files[1]),
        CpuBackend(),
        target=target,
        target_dir=opened(files[0]),
        positions=128,
        in_codes=False,
    )
    rows = []
    for model in (draft, plain):
        cache = FullKVCache(model.config.kv_shape, 128, model.backend, block_tokens=64)
        with torch.inference_mode():
            rows.append(model.forward(PROMPT[:20], cache))
    assert rows[0].shape == (20, 320)
    torch.testing.assert_close(*rows, rtol=1e-3, atol=1e-3)
