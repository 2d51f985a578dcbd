"""A model of random numbers, small enough to answer anywhere, and what it answers in each mode: how a device
is tried before a real model is there.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from core.assembly.composition import Composer
from core.backend.base import Backend
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Engine
from core.model.config import ModelConfig, from_source
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.model.recorded_verification import OFTEN, RecordedVerification
from core.planning.plan import Plan
from core.request import Params
from core.text.words import translated as _

PROMPT, ANSWER, CAPACITY = 300, 48, 480  # tokens

# What a small model runs by; `replace` what differs.
SMALL_PLAN = Plan(
    model="random",
    device="cpu",
    dtype="float32",
    computes="float32",
    context_tokens=CAPACITY,
    context_stretch=1.0,
    layers=3,
    on_chip_layers=1,
    retrieval_budget=128,
    retrieval_chunk=8,
    tail_tokens=64,
    draft_model=None,
    draft_sinks=4,
    draft_window=60,
    gamma=6,
    middle_gamma=3,
    prefill_segment_tokens=128,
    prefill_chunk_tokens=48,
    staging_blocks=2,
    staging_block_bytes=0,
    staging_block_tokens=64,
    threads=1,
    weights_kernel="float",
    weights_bits=32,
    weights_format="",
    kv_bits=32,
    expected_tbt_ms=1.0,
    expected_plain_tbt_ms=2.0,
    expected_middle_ms=0.5,
    expected_row_ms=0.05,
    expected_prefill_s=0.1,
    assumed_acceptance=0.9,
    pcie_gb_per_s=None,
    budget=(),
    notes=(),
)


def small_answers(backend: Backend) -> tuple[list[int], ...]:
    """Greedy tokens for one random prompt: plainly from the device, plainly from host memory, and by TriForce
    from host memory, without and with a share that the CPU attends to. An exact backend gives four equal ones
    of `ANSWER` tokens.
    """
    model, plan = _model(backend), replace(SMALL_PLAN, device=backend.device.type)
    shared = replace(plan, cpu_share=0.5)
    dice = torch.Generator().manual_seed(5)
    prompt = torch.randint(0, model.config.vocab, (PROMPT,), generator=dice).tolist()
    shape = model.config.kv_shape
    return (
        _answer(model, plan, "autoregressive", FullKVCache(shape, CAPACITY + 32, backend), prompt),
        _answer(model, plan, "autoregressive", _offloaded(shape, backend), prompt),
        _answer(model, plan, "triforce", _offloaded(shape, backend), prompt),
        _answer(model, shared, "triforce", _offloaded(shape, backend), prompt),
    )


def _answer(
    model: LlamaModel, plan: Plan, mode: str, cache: FullKVCache | OffloadedKVCache, prompt: list[int]
) -> list[int]:
    engine = Engine(
        model,
        plan,
        new_cache=lambda capacity: cache,
        compose=Composer(plan, model, None).compose,
        peak_memory=lambda: 0,
    )
    params = Params(mode=mode, temperature=0.0, top_p=1.0, max_new_tokens=ANSWER)
    said: list[int] = []
    for event in engine.generate(Context(cache, CAPACITY), prompt, params):
        if isinstance(event, Round):
            said.extend(event.tokens)
    return said


def _offloaded(shape: KVShape, backend: Backend) -> OffloadedKVCache:
    return OffloadedKVCache(
        shape, CAPACITY + 32, backend, block_tokens=64, resident_layers=1, staging_blocks=2
    )


def verification_recorded(backend: Backend) -> str:
    """Why verification over a KV cache that stays on the device is launched operation by operation; "" where
    it was recorded and repeated, further on and with other tokens, to the bit. Raises AssertionError where a
    repetition said something else after all.
    """
    model = _model(backend)
    cache = FullKVCache(model.config.kv_shape, CAPACITY, backend, block_tokens=CAPACITY)
    passes = RecordedVerification(model, most_rows=SMALL_PLAN.gamma + 1)
    model.forward(range(1, PROMPT // 2), cache)
    for time in range(OFTEN + 2):
        length, ids = cache.length, [1 + time + 5 * row for row in range(SMALL_PLAN.gamma + 1)]
        said = passes.forward(ids, cache)
        cache.rollback(length)
        assert torch.equal(said, model.forward(ids, cache)), "a recorded verification gives other numbers"
    return passes.refusal(cache)


class RandomWeights:
    """Weights by name, as the loader asks a checkpoint for them: random, made on `device` in `dtype`, and
    large enough to make a small model's distributions uneven. Without biases, and without norms of queries
    and keys.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        deviation: float = 0.15,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._config, self._deviation = config, deviation
        self._dice = torch.Generator(device).manual_seed(1)
        self._kind = {"device": device, "dtype": dtype}

    def __contains__(self, name: str) -> bool:
        """What the family may have besides, it has not."""
        return False

    def tensor(self, name: str) -> torch.Tensor:
        """Random numbers of the shape that the name means."""
        c = self._config
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        sizes = {
            "q_proj": (q, c.hidden),
            "k_proj": (kv, c.hidden),
            "v_proj": (kv, c.hidden),
            "o_proj": (c.hidden, q),
            "gate_proj": (c.intermediate, c.hidden),
            "up_proj": (c.intermediate, c.hidden),
            "down_proj": (c.hidden, c.intermediate),
        }
        kind = name.split(".")[-2]
        if kind.endswith("norm"):
            return torch.ones(c.hidden, **self._kind)
        size = sizes.get(kind, (c.vocab, c.hidden))
        return torch.randn(size, generator=self._dice, **self._kind).mul_(self._deviation)


def random_config(
    *, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, intermediate: int, vocab: int
) -> ModelConfig:
    """Of a Llama with one matrix for both ends, for 1,024 positions."""
    source = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    return from_source(source, name=_("a small model of random numbers"), eos=None)


def _model(backend: Backend) -> LlamaModel:
    config = random_config(
        layers=3, hidden=128, heads=4, kv_heads=2, head_dim=64, intermediate=192, vocab=211
    )
    return build_model(config, RandomWeights(config), backend, positions=1024)
