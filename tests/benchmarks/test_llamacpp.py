"""The comparison's own logic: what is timed and how, that peers compute what we compute, and what the tables
make of it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.lib import isa
from benchmarks.lib.layer_timer import Parts
from benchmarks.speed import llamacpp, peer_processes, transformers_peer
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.config import Settings
from core.model.checkpoint_weights import Weights
from core.model.config import load_config
from core.model.gguf.folder import opened
from core.model.loader import build_model, load_model
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.tiny import PLAN, VOCAB, engine, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (200,), generator=torch.Generator().manual_seed(5))]


def row(context: int, prefill_s: float, tbt_ms: float, distinct: float = 0.9) -> dict:
    return {
        "context": context,
        "prefill_s": prefill_s,
        "tbt_mean_ms": tbt_ms,
        "tbt_p50_ms": tbt_ms,
        "tbt_p95_ms": tbt_ms,
        "turns_ms": [tbt_ms],
        "spread": 0.0,
        "distinct_4grams": distinct,
        "tokens": [],
    }


DONE = {
    "llama.cpp at 1024": {"rows": {"llama.cpp": row(1024, 4.0, 14.0)}},
    "llama.cpp, prompt lookup at 1024": {"reason": "it ended with code 1"},
    "ours at 1024": {
        "rows": {"ours, plain": row(1024, 2.0, 28.0), "ours, TriForce": row(1024, 2.0, 20.0, distinct=0.3)}
    },
    "ours, by part at 1024": {"parts": {"linear_ms": 20.0, "attention_ms": 5.0, "token_ms": 28.0}},
}


def test_tables_of_a_run():
    """Looping text among the other, a peer that is missing without a word, a ratio upside down."""
    varied, looping, against, gap = llamacpp.peer_tables(DONE)
    assert [one[0] for one in varied.rows] == ["llama.cpp", "ours, plain"] and [
        one[0] for one in looping.rows
    ] == ["ours, TriForce"]
    assert "llama.cpp, prompt lookup at 1024: it ended with code 1." in varied.notes
    assert against.rows == ((1024, "llama.cpp", 2.0, 0.5, 0.7, None, None),)
    assert gap.rows == ((1024, 20.0, 5.0, 3.0, 28.0, 14.0, 14.0),)


@pytest.mark.parametrize(("peer", "flash"), [("llama.cpp", False), ("llama.cpp, flash attention", True)])
def test_llama_cpp_is_tried_with_its_flash_attention_and_without(peer, flash, monkeypatch):
    """Under a row of its own, with the plan's threads and its own default of a batch."""
    told = {}
    package, speculative = ModuleType("llama_cpp"), ModuleType("llama_cpp.llama_speculative")
    package.LLAMA_ROPE_SCALING_TYPE_YARN, package.Llama = 2, lambda file, **named: told.update(named)
    package.llama_print_system_info = lambda: b"CPU : AVX2 = 1 | AVX512 = 1 | "
    speculative.LlamaPromptLookupDecoding = None
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    plan = SimpleNamespace(context_stretch=2.0, context_tokens=1000, threads=3)
    setup = peer_processes.PeerSetup(Path(), Path("x.gguf"), Path(), plan, Settings(), IDS)
    assert list(peer_processes.PEERS[peer].rows(setup)) == [peer]
    assert (told["flash_attn"], told["n_threads"], told["n_threads_batch"]) == (flash, 3, 3)
    assert (told["n_batch"], told["n_ubatch"], told["draft_model"]) == (512, 512, None)
    assert (told["rope_freq_scale"], told["yarn_orig_ctx"]) == (0.5, 500)
    for name, value in isa.LIMITS["avx2"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(peer_processes.Cannot, match="-DGGML_AVX512=OFF"):
        peer_processes.PEERS[peer].rows(setup)


def test_tokens_that_come_at_once_share_a_round():
    """Three drafted tokens of one round must not count as two that took no time."""
    ticks = iter([0.0, 2.0, 2.1, 2.4, 2.4001, 2.4002, 2.5])
    prefill_s, tokens, times = peer_processes.timed_tokens(
        iter([5, 6, 7, 8, 9, 10]), 6, eos=set(), clock=lambda: next(ticks)
    )
    assert (prefill_s, tokens) == (2.0, [5, 6, 7, 8, 9, 10])
    assert times == pytest.approx([0.1, 0.3002 / 3, 0.3002 / 3, 0.3002 / 3, 0.0998])


def test_the_first_token_and_what_follows_the_end_are_not_timed():
    """The first token's time is the prefill's."""
    ticks = iter([0.0, 2.0, 2.1])
    assert peer_processes.timed_tokens(iter([5, 1, 7]), 9, eos={1}, clock=lambda: next(ticks)) == (
        2.0,
        [5, 1],
        [pytest.approx(0.1)],
    )


def test_ratios_are_taken_within_a_turn():
    """The machine was twice as slow in the second turn; the first answer, when the others still read, does
    not count.
    """

    def turns(*tbt_ms: float) -> list[dict]:
        return [{"prefill_s": 1.0, "tokens": [1, 2, 3, 4, 5], "times": [ms / 1e3] * 4} for ms in tbt_ms]

    done = {
        "transformers at 8": {
            "rows": {"transformers": llamacpp.peer_figures(8, 1.0, turns(999, 40, 80, 40))}
        },
        "ours at 8": {"rows": {"ours, plain": llamacpp.peer_figures(8, 0.5, turns(999, 20, 40, 20))}},
    }
    varied, against = llamacpp.peer_tables(done)
    assert varied.rows[0][:5] == ("transformers", 8, 1.0, pytest.approx(40), "3: 40.0 to 80.0")
    assert against.rows[0][2:4] == (2.0, pytest.approx(2.0))
    assert llamacpp.peer_figures(8, 1.0, turns(50))["tbt_mean_ms"] == pytest.approx(50)


ANSWERS = """import json, sys
name = sys.argv[1]
for number, _ in enumerate(sys.stdin):
    if name == "fails" and number == 1:
        sys.exit(9)
    row = {"prefill_s": 3.0 - number, "tokens": [1, 2], "times": [0.1 * (number + 1)]}
    print(json.dumps({"rows": {name: row}}), flush=True)
"""


@pytest.fixture
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """Peers that are small programs: one that answers, one that ends in its second turn, one that has one
    turn only.
    """
    (tmp_path / "answers.py").write_text(ANSWERS)
    monkeypatch.setattr(
        llamacpp,
        "PEERS",
        {
            "answers": peer_processes.Peer("json", "", None),
            "fails": peer_processes.Peer("json", "", None),
            "once": peer_processes.Peer("json", "", None, turns=1),
            "missing": peer_processes.Peer("no_such_package", "", None),
        },
    )
    whole = llamacpp.Contender.__init__

    def named(self: llamacpp.Contender, name: str, length: int, options: Namespace) -> None:
        whole(self, name, length, options)
        self._command = [sys.executable, str(tmp_path / "answers.py"), name]

    monkeypatch.setattr(llamacpp.Contender, "__init__", named)
    given = {"gguf": "g", "book": "b", "draft": "d", "tokens": 2, "threads": 1, "clock": "cpu"}
    return Namespace(only=["answers", "fails", "once", "missing"], **given)


def test_every_peer_answers_in_turn(at_work: Namespace):
    """A peer that is missing or fails is named; the prompt's time is the first turn's."""
    found = llamacpp.at(1024, at_work, 60.0)
    assert found["missing at 1024"] == {"reason": "its package is not installed"}
    assert found["fails at 1024"] == {"reason": "it ended with code 9"}
    answers, once = found["answers at 1024"]["rows"]["answers"], found["once at 1024"]["rows"]["once"]
    assert answers["prefill_s"] == once["prefill_s"] == 3.0
    # ever slower: never steady, so it has all its turns
    later = [100.0 * (number + 1) for number in range(1, peer_processes.MOST_TURNS)]
    assert answers["turns_ms"] == pytest.approx(later) and once["turns_ms"] == pytest.approx([100])


@pytest.mark.parametrize(
    ("times", "spread"),
    [
        ([50.0], 0.0),
        ([40.0, 40.0, 80.0], 0.5),
        ([100.0, 102.0, 98.0, 101.0], 1 / 100.5),
        ([40.0, 40.0, 40.0, 80.0], 0.0),
    ],
)
def test_the_spread_of_a_median(times: list[float], spread: float):
    """By hand: what is left when one turn is left out. One turn beside the others moves no median of four."""
    assert llamacpp.spread_of_median(times) == pytest.approx(spread, abs=1e-9)


def test_turns_end_when_every_median_is_steady(at_work: Namespace, tmp_path: Path):
    """No sooner than after the usual ones, and for all alike: ratios are taken within a turn."""
    program = ANSWERS.replace(
        "0.1 * (number + 1)", "0.1 if name == 'answers' or number > 3 else 0.1 * number + 0.1"
    )
    (tmp_path / "answers.py").write_text(program)
    alone = llamacpp.at(1024, Namespace(**{**vars(at_work), "only": ["answers"]}), 60.0)
    assert len(alone["answers at 1024"]["rows"]["answers"]["turns_ms"]) == peer_processes.TURNS - 1


def test_a_context_that_takes_too_long_is_done_again(at_work: Namespace, tmp_path: Path):
    """Its processes are stopped, and nothing of it is kept."""
    (tmp_path / "answers.py").write_text("import time; time.sleep(600)")
    with pytest.raises(llamacpp.OutOfTime):
        llamacpp.at(1024, at_work, 0.5)


def test_contexts_are_done_once_and_peers_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The long contexts have a run of their own; by part is for short ones only."""
    asked = []

    def at(length: int, options: Namespace, seconds: float) -> dict:
        asked.append((length, options.only))
        return {f"ours at {length}": {"reason": "not now"}}

    monkeypatch.setattr(llamacpp, "at", at)

    def run(*more: str) -> dict:
        assert llamacpp.main(["--gguf", "none.gguf", "--state", str(tmp_path / "state.json"), *more]) == 0
        return json.loads((tmp_path / "state.json").read_text())["cases"]

    run("--only", "ours;ours, by part", "--contexts", "1024")
    done = run("--only", "ours", "--contexts", "1024,16000")
    assert asked == [(1024, ["ours", "ours, by part"]), (16_000, ["ours"])] and list(done) == [
        "1024",
        "16000",
    ]
    with pytest.raises(SystemExit):
        run("--only", "nobody")


def test_reading_that_was_not_timed_is_not_told():
    """A prompt that came from disk took no time: 0 seconds, or a ratio of them, would be a lie."""
    kept = {**row(1024, 4.0, 14.0), "prefill_s": None}
    done = {
        "llama.cpp at 1024": {"rows": {"llama.cpp": kept}},
        "ours at 1024": {"rows": {"ours, plain": {**row(1024, 2.0, 28.0), "prefill_s": None}}},
    }
    varied, against = llamacpp.peer_tables(done)
    assert [one[2] for one in varied.rows] == [None, None]
    assert against.rows == ((1024, "llama.cpp", None, 0.5, None, None, None),)
    assert llamacpp.short(done["llama.cpp at 1024"]) == "llama.cpp 14.0 ms"


def test_a_prompt_that_is_kept_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """llama.cpp's state goes to a file after the first reading and comes from there; another prompt's file
    must not be taken for it.
    """
    read, package = [], ModuleType("llama_cpp")
    model = SimpleNamespace(ctx=None, eval=read.append, input_ids=[0] * 4, n_tokens=0)
    package.llama_token = ctypes.c_int32

    def save(_ctx: None, path: bytes, tokens: ctypes.Array, count: int) -> bool:
        return bool(Path(path.decode()).write_text(json.dumps(tokens[:count])))

    def load(_ctx: None, path: bytes, tokens: ctypes.Array, _room: int, _found: object) -> bool:
        tokens[:] = json.loads(Path(path.decode()).read_text())
        return True

    package.llama_state_save_file, package.llama_state_load_file = save, load
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    file = tmp_path / "kept" / "3.state"
    for _ in range(2):
        peer_processes._restore(model, [5, 6, 7], file)
    assert read == [[5, 6, 7]] and (model.input_ids, model.n_tokens) == ([5, 6, 7, 0], 3)
    with pytest.raises(AssertionError, match="another prompt"):
        peer_processes._restore(model, [5, 6, 8], file)


def test_every_turn_of_ours_has_a_text_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Drawn with another seed, behind one prompt; greedy text is the same in every turn."""
    monkeypatch.setattr("core.assembly.engines.build_engine", lambda *given, **how: engine(ours(oracle())))
    setup = peer_processes.PeerSetup(Path(), Path(), Path(), PLAN, Settings(), IDS, lambda: 0.0)
    rows = peer_processes._ours(setup)
    plain, drawn = (
        [rows[name](IDS, 12)[1] for _turn in range(2)] for name in ("ours, plain", "ours, TriForce, T 1")
    )
    assert plain[0] == plain[1]
    assert len(drawn[0]) == 12 and drawn[0] != drawn[1]


def test_without_a_gpu_the_offloaded_cache_says_why(monkeypatch: pytest.MonkeyPatch):
    """A reason, not a crash."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(peer_processes.Cannot, match="no GPU"):
        peer_processes.PEERS["transformers, offloaded cache"].rows(None)


def test_a_tokens_parts_are_within_it():
    """Attention and linear layers of each token, not of the prefill or of all tokens together."""
    parts = Parts(CpuBackend())
    made = engine(ours(oracle(), backend=parts))
    found = peer_processes.token_parts(made, parts, made.new_context(400), IDS, 8)
    assert min(found.values()) > 0 and found["linear_ms"] + found["attention_ms"] < found["token_ms"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tiny checkpoint on disk."""
    oracle(tied=True, max_position_embeddings=128).save_pretrained(tmp_path / "target")
    return tmp_path / "target"


@pytest.mark.parametrize("stretch", [1.0, 2.0])
def test_transformers_stretches_positions_as_we_do(saved: Path, stretch: float):
    """Another RoPE would be another model: faster or slower, it could not be compared."""
    model = transformers_peer.load_peer(saved, replace(PLAN, context_stretch=stretch))
    mine = build_model(load_config(saved), Weights(saved), CpuBackend(), positions=256, stretch=stretch)
    with torch.inference_mode():
        want = model(torch.tensor([IDS])).logits[0]
        got = mine.forward(IDS, FullKVCache(mine.config.kv_shape, 256, mine.backend))
    assert float((got - want).abs().max()) < 1e-3 * float(want.abs().max())


def test_assisted_generation_writes_what_generation_writes(saved: Path, tmp_path: Path):
    """The draft takes the target's embedding, proposes only tokens that its head covers, and changes nothing
    of the answer.
    """
    target, draft = transformers_peer.load_peer(saved, PLAN), tmp_path / "draft"
    small = oracle(tied=True, max_position_embeddings=128)
    small.config.num_hidden_layers = 1
    small.config.save_pretrained(draft)
    kept = {
        name: value.clone()
        for name, value in small.state_dict().items()
        if "layers.0." in name or name == "model.norm.weight"
    }
    save_file({**kept, "head_ids": torch.arange(0, VOCAB, 2, dtype=torch.int32)}, draft / "model.safetensors")
    assistant = transformers_peer.load_peer_draft(draft, target)
    logits = assistant(torch.tensor([IDS[:9]])).logits
    assert torch.isinf(logits[..., 1::2]).all() and torch.isfinite(logits[..., ::2]).all()
    plain, assisted = (
        transformers_peer.peer_answer(target, IDS[:60], 12, **how)
        for how in ({}, {"assistant_model": assistant})
    )
    assert assisted[1] == plain[1] and len(plain[2]) == 11


def test_a_second_answer_of_transformers_keeps_the_prompt(saved: Path):
    """Reading it again would take as long as the first time, and the answer must not depend on it."""
    target = transformers_peer.load_peer(saved, PLAN)
    kept, read = transformers_peer.kept_cache(target), []
    target.register_forward_pre_hook(
        lambda module, args, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    first, second = (
        transformers_peer.peer_answer(target, IDS[:60], 5, past_key_values=kept(60)) for _ in range(2)
    )
    assert read == [60, 1, 1, 1, 1] + [1] * 5
    assert first[1] == second[1]


def test_both_read_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And not the embedded model, whatever --gguf says: then its times would stand under the other's name."""
    file, seen = write_gguf(tmp_path / "other.gguf", wide(tied=True), "Q8_0"), []
    monkeypatch.setattr(peer_processes.embedded, "book_ids", lambda book, folder, least: [1] * least)
    monkeypatch.setattr(
        peer_processes,
        "PEERS",
        {"ours": peer_processes.Peer("core", "", lambda setup: seen.append(setup) or {})},
    )
    told = {
        "gguf": file,
        "book": file,
        "draft": tmp_path,
        "context": 640,
        "tokens": 4,
        "peer": "ours",
        "threads": 1,
    }
    turn = peer_processes._turn(
        peer_processes._arguments([f"--{key}={value}" for key, value in told.items()])
    )
    assert (seen[0].folder, seen[0].gguf) == (opened(file), file)
    assert (seen[0].plan.threads, seen[0].clock) == (1, time.perf_counter)
    assert load_model(seen[0].folder, CpuBackend(), positions=64).config.hidden == wide().config.hidden_size
    held = turn()["memory"]
    assert 0 <= held["of_files_mb"] < held["resident_mb"]
