"""What stands 262,144 tokens back is found there: positions, rows, selection and drafts beyond 2^17."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.shared.kv_rows import as_rows
from core.cache.offloaded import OffloadedKVCache
from core.cache.segment import SegmentSizes
from core.model.config import from_source
from core.model.llama import LlamaModel
from core.model.loader import build_model
from tests.support.engine_runs import GREEDY, run
from tests.support.tiny import engine, whole_cache
from tests.tiers import first

VOCAB, HEAD, THETA = 61, 32, 1e8
BACK = 1 << 18  # the model's answer: the token that stood so many before
HIDDEN = 2 * VOCAB + 6  # the token, what was found, one that is always there
SHARP = 17.0  # a neighbour of the place weighs e^-25 of it


class Echo:
    """Weights of one layer with one head, which looks at exactly one distance, and a head that says what
    stood there.
    """

    def __init__(self) -> None:
        frequencies = 1.0 / THETA ** (torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
        turn = frequencies.double() * BACK
        token, found, always = slice(0, VOCAB), slice(VOCAB, 2 * VOCAB), 2 * VOCAB
        q, k, v = torch.zeros(HEAD, HIDDEN), torch.zeros(HEAD, HIDDEN), torch.zeros(HEAD, HIDDEN)
        q[:, always] = SHARP * torch.cat((turn.cos(), -turn.sin())).float()
        k[: HEAD // 2, always] = SHARP
        codes = torch.randn(VOCAB, HEAD, generator=torch.Generator().manual_seed(1))
        v[:, token] = codes.T
        out, head, embedding = (
            torch.zeros(HIDDEN, HEAD),
            torch.zeros(VOCAB, HIDDEN),
            torch.zeros(VOCAB, HIDDEN),
        )
        out[found] = codes
        head[:, found] = torch.eye(VOCAB)
        embedding[:, token] = torch.eye(VOCAB)
        embedding[:, always] = 1.0
        layer = "model.layers.0."
        self._tensors = {
            "model.embed_tokens.weight": embedding,
            "lm_head.weight": head,
            "model.norm.weight": torch.ones(HIDDEN),
            layer + "input_layernorm.weight": torch.ones(HIDDEN) * (2 / HIDDEN) ** 0.5,  # rows as they are
            layer + "post_attention_layernorm.weight": torch.ones(HIDDEN),
            layer + "self_attn.q_proj.weight": q,
            layer + "self_attn.k_proj.weight": k,
            layer + "self_attn.v_proj.weight": v,
            layer + "self_attn.o_proj.weight": out,
            layer + "mlp.gate_proj.weight": torch.zeros(8, HIDDEN),
            layer + "mlp.up_proj.weight": torch.zeros(8, HIDDEN),
            layer + "mlp.down_proj.weight": torch.zeros(HIDDEN, 8),
        }

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]


@pytest.fixture(scope="module")
def echo() -> LlamaModel:
    source = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": HIDDEN,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": HEAD,
        "intermediate_size": 8,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "max_position_embeddings": 1 << 20,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    }
    config = from_source(source, name="echo", eos=None)
    return build_model(config, Echo(), CpuBackend(torch.float32), positions=1 << 20)


def text(n: int) -> list[int]:
    return torch.randint(0, VOCAB, (n,), generator=torch.Generator().manual_seed(2)).tolist()


def offloaded(model: LlamaModel, capacity: int, dtype: torch.dtype | None = None) -> OffloadedKVCache:
    return OffloadedKVCache(
        model.config.kv_shape,
        capacity,
        model.backend,
        block_tokens=8192,
        resident_layers=0,
        resident_blocks=None,
        staging_blocks=2,
        fresh_tokens=48,
        dtype=dtype,
        swept=SegmentSizes(tokens=8192, heads=1, step=64),
    )


KINDS = {
    "offloaded 8-bit rows": lambda model, n: offloaded(model, n, torch.int8),
    "full": lambda model, n: whole_cache(model, n, block_tokens=8192),
    "8-bit rows": lambda model, n: whole_cache(model, n, block_tokens=8192, dtype=torch.int8),
    "offloaded": offloaded,
}


@pytest.mark.parametrize("start", [270_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", first(KINDS, 1))
def test_a_pass_looks_at_exactly_one_place_of_a_long_past(echo: LlamaModel, kind: str, start: int):
    """Rows are put where a prefill would leave them: with one layer they hang on token and position alone."""
    ids = text(start + 40)
    cache = KINDS[kind](echo, start + 64)
    for begin in range(0, start, 1 << 16):
        positions = torch.arange(begin, min(begin + (1 << 16), start))
        x = echo.embed(ids[begin : begin + len(positions)])
        _, k, v = echo._heads(echo._layers[0], x, echo.rope.at(positions)[""], cache)
        cache.write(0, begin, as_rows(k, HEAD, cache.dtype), as_rows(v, HEAD, cache.dtype))
    cache.advance(start)
    cache.commit(start)
    for rows in (1, 33):
        now = cache.length
        said = echo.forward(ids[now : now + rows], cache).argmax(-1).tolist()
        assert said == ids[now - BACK : now - BACK + rows]
        cache.commit(cache.length)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["8-bit rows", "offloaded"])
def test_answers_behind_300_000_tokens_say_what_stood_there(echo: LlamaModel, kind: str):
    """Read in segments, selected from, drafted and verified: by the whole engine, in every token."""
    ids = text(300_000)
    figures = {
        "prefill_segment_tokens": 8192,
        "prefill_chunk_tokens": 4096,
        "context_tokens": 300_200,
        "layers": 1,
    }
    subject = engine(
        echo, new_cache=lambda capacity: KINDS[kind](echo, capacity + 64), on_chip_layers=1, **figures
    )
    answer, _ = run(subject, subject.new_context(300_100), ids, replace(GREEDY, max_new_tokens=24))
    place = len(ids) - BACK - 1
    assert answer == ids[place : place + 24]
