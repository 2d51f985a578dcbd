"""The comparison's own logic: what is timed and how, that peers compute what we compute, and what the tables make of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import peers, transformers_peer
from benchmarks.parts import Parts
from core.backend.cpu import CpuBackend
from core.cache.full import FullKVCache
from core.model.config import load_config
from core.model.loader import Weights, build
from tests.tiny import PLAN, VOCAB, engine, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (200,), generator=torch.Generator().manual_seed(5))]


def row(context: int, prefill_s: float, tbt_ms: float, distinct: float = 0.9) -> dict:
    return {"context": context, "prefill_s": prefill_s, "tbt_mean_ms": tbt_ms, "tbt_p50_ms": tbt_ms, "tbt_p95_ms": tbt_ms,
            "distinct_4grams": distinct, "tokens": []}


DONE = {
    "llama.cpp at 1024": {"rows": {"llama.cpp": row(1024, 4.0, 14.0)}},
    "llama.cpp, prompt lookup at 1024": {"reason": "it ended with code 1"},
    "ours at 1024": {"rows": {"ours, plain": row(1024, 2.0, 28.0), "ours, TriForce": row(1024, 2.0, 20.0, distinct=0.3)}},
    "ours, by part at 1024": {"parts": {"linear_ms": 20.0, "attention_ms": 5.0, "token_ms": 28.0}},
}


def test_tables_of_a_run():
    """Looping text among the other, a peer that is missing without a word, a ratio upside down."""
    varied, looping, against, gap = peers.tables(DONE)
    assert [one[0] for one in varied.rows] == ["llama.cpp", "ours, plain"] and [one[0] for one in looping.rows] == ["ours, TriForce"]
    assert "llama.cpp, prompt lookup at 1024: it ended with code 1." in varied.notes
    assert against.rows == ((1024, "llama.cpp", 2.0, 0.5, 0.7, None, None),)
    assert gap.rows == ((1024, 20.0, 5.0, 3.0, 28.0, 14.0, 14.0),)


def test_tokens_that_come_at_once_share_a_round():
    """Three drafted tokens of one round must not count as two that took no time."""
    ticks = iter([0.0, 2.0, 2.1, 2.4, 2.4001, 2.4002, 2.5])
    prefill_s, tokens, times = peers.timed(iter([5, 6, 7, 8, 9, 10]), 6, eos=set(), clock=lambda: next(ticks))
    assert (prefill_s, tokens) == (2.0, [5, 6, 7, 8, 9, 10])
    assert times == pytest.approx([0.1, 0.3002 / 3, 0.3002 / 3, 0.3002 / 3, 0.0998])


def test_the_first_token_and_what_follows_the_end_are_not_timed():
    """The first token's time is the prefill's."""
    ticks = iter([0.0, 2.0, 2.1])
    assert peers.timed(iter([5, 1, 7]), 9, eos={1}, clock=lambda: next(ticks)) == (2.0, [5, 1], [pytest.approx(0.1)])


def run(folder: Path, *more: str) -> dict:
    assert peers.main(["--gguf", "none.gguf", "--state", str(folder / "state.json"), *more]) == 0
    return json.loads((folder / "state.json").read_text())["cases"]


def test_parts_of_the_run_can_be_chosen_and_are_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The long contexts have a run of their own; by part is for short ones only."""
    asked = []

    def case(name: str, length: int, options: object, seconds: float) -> dict:
        asked.append((name, length))
        return {"reason": "not now"}

    monkeypatch.setattr(peers, "_in_a_process", case)
    run(tmp_path, "--only", "ours;ours, by part", "--contexts", "1024,16000")
    run(tmp_path, "--only", "ours;llama.cpp", "--contexts", "16000")
    assert asked == [("ours", 1024), ("ours, by part", 1024), ("ours", 16_000), ("llama.cpp", 16_000)]
    with pytest.raises(SystemExit):
        run(tmp_path, "--only", "nobody")


def test_a_peer_that_is_missing_or_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Optional installs are reported, not skipped; a crash is a result too; what takes too long is tried again by the next run."""
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None if name == "llama_cpp" else object())
    ends: list = [subprocess.CompletedProcess([], 9, stdout=""), subprocess.TimeoutExpired("peers", 1)]

    def ended(*args: object, **how: object) -> subprocess.CompletedProcess:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(peers.subprocess, "run", ended)
    done = run(tmp_path, "--only", "llama.cpp;transformers;ours", "--contexts", "1024")
    assert done == {"llama.cpp at 1024": {"reason": "the package llama_cpp is not installed"},
                    "transformers at 1024": {"reason": "it ended with code 9"}}


def test_without_a_gpu_the_offloaded_cache_says_why(monkeypatch: pytest.MonkeyPatch):
    """A reason, not a crash."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(peers.Cannot, match="no GPU"):
        peers.PEERS["transformers, offloaded cache"].rows(None)


def test_a_tokens_parts_are_within_it():
    """Attention and linear layers of each token, not of the prefill or of all tokens together."""
    parts = Parts(CpuBackend())
    made = engine(ours(oracle(), backend=parts))
    found = peers.token_parts(made, parts, made.new_context(400), IDS, 8)
    assert min(found.values()) > 0 and found["linear_ms"] + found["attention_ms"] < found["token_ms"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tiny checkpoint on disk."""
    oracle(tied=True, max_position_embeddings=128).save_pretrained(tmp_path / "target")
    return tmp_path / "target"


@pytest.mark.parametrize("stretch", [1.0, 2.0])
def test_transformers_stretches_positions_as_we_do(saved: Path, stretch: float):
    """Another RoPE would be another model: faster or slower, it could not be compared."""
    model = transformers_peer.load(saved, replace(PLAN, context_stretch=stretch))
    mine = build(load_config(saved), Weights(saved), CpuBackend(), positions=256, stretch=stretch)
    with torch.inference_mode():
        want = model(torch.tensor([IDS])).logits[0]
        got = mine.forward(IDS, FullKVCache(mine.config.kv_shape, 256, mine.backend))
    assert float((got - want).abs().max()) < 1e-3 * float(want.abs().max())


def test_assisted_generation_writes_what_generation_writes(saved: Path, tmp_path: Path):
    """The draft takes the target's embedding, proposes only tokens that its head covers, and changes nothing of the answer."""
    target, draft = transformers_peer.load(saved, PLAN), tmp_path / "draft"
    small = oracle(tied=True, max_position_embeddings=128)
    small.config.num_hidden_layers = 1
    small.config.save_pretrained(draft)
    kept = {name: value.clone() for name, value in small.state_dict().items() if "layers.0." in name or name == "model.norm.weight"}
    save_file({**kept, "head_ids": torch.arange(0, VOCAB, 2, dtype=torch.int32)}, draft / "model.safetensors")
    assistant = transformers_peer.load_draft(draft, target)
    logits = assistant(torch.tensor([IDS[:9]])).logits
    assert torch.isinf(logits[..., 1::2]).all() and torch.isfinite(logits[..., ::2]).all()
    plain, assisted = (transformers_peer.answer(target, IDS[:60], 12, **how) for how in ({}, {"assistant_model": assistant}))
    assert assisted[1] == plain[1] and len(plain[2]) == 11
