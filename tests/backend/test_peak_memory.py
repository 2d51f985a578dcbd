"""What a card's memory would hold at most, in models of full size, against the plan: nothing is
computed, every allocation is counted as CUDA's caching allocator does.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.assembly.cache_factory import CacheFactory
from core.assembly.cache_factory import slack as rows_to_spare
from core.backend.cuda.backend import CudaBackend
from core.cache.base import KVStore, TargetKVCache
from core.cache.full import FullKVCache
from core.cache.layered import LayeredKVCache
from core.cache.layered_retrieval import LayeredRetrievalKVCache, retrieval_over
from core.cache.retrieval import RetrievalKVCache
from core.cache.states import KeptStates
from core.cache.windows import KeptWindows
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.config import from_source
from core.model.families import FAMILIES
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.model.mixer_sizes import DeltaSizes
from core.model.shapes import ModelShape
from core.planning import budget, layout
from core.planning.plan import Plan
from core.planning.planner import make_plan
from tests.support.allocator import Accounting, CachingAllocator
from tests.support.fake_cuda import FakeCuda
from tests.support.flash_kernel import flash
from tests.tiers import first

CONTEXT = 131_072
LAYERS = 4  # that see every token, each like the others; the plan is made for as many
SHAPES = {
    "7B": {"hidden": 4096, "heads": 32, "kv_heads": 32, "intermediate": 11008, "vocab": 32_000},
    "8B": {"hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336, "vocab": 128_256},
    "13B": {"hidden": 5120, "heads": 40, "kv_heads": 40, "intermediate": 13824, "vocab": 32_000},
    "4B-tied": {
        "hidden": 2560,
        "heads": 32,
        "kv_heads": 8,
        "intermediate": 9728,
        "vocab": 151_936,
        "tied": True,
        "family": "qwen3",
    },
    "4B-windows": {
        "hidden": 2560,
        "heads": 8,
        "kv_heads": 4,
        "intermediate": 10_240,
        "vocab": 262_208,
        "tied": True,
        "family": "gemma3_text",
    },
    "12B-two-sizes": {
        "hidden": 3840,
        "heads": 16,
        "kv_heads": 8,
        "intermediate": 15_360,
        "vocab": 262_144,
        "tied": True,
        "family": "gemma4_text",
    },
    "2B-shared": {
        "hidden": 1536,
        "heads": 8,
        "kv_heads": 1,
        "intermediate": 6144,
        "vocab": 262_144,
        "tied": True,
        "family": "gemma4_text",
    },
    "9B-states": {
        "hidden": 4096,
        "heads": 16,
        "kv_heads": 4,
        "intermediate": 12_288,
        "vocab": 248_320,
        "family": "qwen3_5_text",
    },
    "8B-scaled": {
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "intermediate": 14336,
        "vocab": 131_072,
        "family": "ministral3",
    },
    "3B-unrotated": {
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 4,
        "intermediate": 11008,
        "vocab": 128_256,
        "tied": True,
        "family": "smollm3",
    },
}
HEAD_DIM = 128  # of most
LAYERS_OF_ALL = 999
BROUGHT = 8 * 256  # numbers that a token brings to the layers of the one with shared ones
DELTA = DeltaSizes(key_heads=16, value_heads=32, key_dim=128, value_dim=128, kernel=4)
# what else a configuration says: every other layer has a window, three of four have a state, queries grow;
# one of SmolLM3's four layers is not rotated
MORE = {
    "9B-states": {
        "num_hidden_layers": 16,
        "linear_num_key_heads": DELTA.key_heads,
        "linear_num_value_heads": DELTA.value_heads,
        "linear_key_head_dim": DELTA.key_dim,
        "linear_value_head_dim": DELTA.value_dim,
        "linear_conv_kernel_dim": DELTA.kernel,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    },
    "12B-two-sizes": {
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "sliding_window": 1024,
        "global_head_dim": 4 * HEAD_DIM,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 30.0,
    },
    "2B-shared": {
        "num_hidden_layers": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 4,
        "sliding_window": 512,
        "global_head_dim": 4 * HEAD_DIM,
        "num_kv_shared_layers": 4,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
        "final_logit_softcapping": 30.0,
    },
    "4B-windows": {"num_hidden_layers": 6, "sliding_window": 1024, "sliding_window_pattern": 2},
    "8B-scaled": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "original_max_position_embeddings": 16_384,
            "llama_4_scaling_beta": 0.1,
        }
    },
}


class NoWeights:
    """Matrices of the right sizes, without numbers."""

    def __init__(self, shape: dict, accounting: Accounting) -> None:
        self._accounting, head_dim = accounting, HEAD_DIM
        q, kv = shape["heads"] * head_dim, shape["kv_heads"] * head_dim
        hidden, wide = shape["hidden"], shape["intermediate"]
        gated = shape.get("family") == "qwen3_5_text"
        self._sizes = {
            "q_proj": (2 * q if gated else q, hidden),
            "k_proj": (kv, hidden),
            "v_proj": (kv, hidden),
            "o_proj": (hidden, q),
            "gate_proj": (wide, hidden),
            "up_proj": (wide, hidden),
            "down_proj": (hidden, wide),
            "embed_tokens": (shape["vocab"], hidden),
            "lm_head": (shape["vocab"], hidden),
            "q_norm": (head_dim,),
            "k_norm": (head_dim,),
            "in_proj_qkv": (DELTA.channels, hidden),
            "in_proj_z": (DELTA.values, hidden),
            "in_proj_a": (DELTA.value_heads, hidden),
            "in_proj_b": (DELTA.value_heads, hidden),
            "out_proj": (hidden, DELTA.values),
            "conv1d": (DELTA.channels, 1, DELTA.kernel),
            "norm": (DELTA.value_dim,),
            "linear_attn": (DELTA.value_heads,),  # its decay and its bias
            "embed_tokens_per_layer": (shape["vocab"], BROUGHT),
            "per_layer_model_projection": (BROUGHT, hidden),
            "per_layer_projection_norm": (256,),
            "per_layer_input_gate": (256, hidden),
            "per_layer_projection": (hidden, 256),
        }
        self._wider = {"gate_proj": (2 * wide, hidden), "up_proj": (2 * wide, hidden)}
        self._wider["down_proj"] = (hidden, 2 * wide)
        wide, full = 4 * HEAD_DIM, shape["heads"] * 4 * HEAD_DIM
        self._of_full = {
            "q_proj": (full, hidden),
            "k_proj": (wide, hidden),
            "v_proj": (wide, hidden),
            "o_proj": (hidden, full),
            "q_norm": (wide,),
            "k_norm": (wide,),
        }
        self._two_sizes = FAMILIES[shape.get("family", "llama")].two_sizes
        families = ("qwen3", "gemma3_text", "gemma4_text", "qwen3_5_text")
        self._reads = 4 if shape is SHAPES["2B-shared"] else LAYERS_OF_ALL
        self._hidden, self._norms = hidden, shape.get("family") in families

    def __contains__(self, name: str) -> bool:
        return self._norms and ("q_norm" in name or "k_norm" in name)

    def tensor(self, name: str) -> torch.Tensor:
        if name.endswith("layer_scalar"):
            return torch.ones(1)
        part = name.split(".")[-2]
        size = (self._hidden,) if name == "model.norm.weight" else self._sizes.get(part, (self._hidden,))
        if self._two_sizes and ".layers." in name and int(name.split(".")[2]) % 2:
            size = self._of_full.get(part, size)
        if ".layers." in name and int(name.split(".")[2]) >= self._reads:
            size = self._wider.get(part, size)
        if part == "embed_tokens_per_layer":
            with self._accounting.elsewhere():
                return torch.empty(size, dtype=torch.bfloat16, device="meta")
        if len(size) == 1 or "embed" in name:  # goes to the device as it is
            return torch.empty(size, dtype=torch.bfloat16, device="meta")
        with self._accounting.elsewhere():
            return torch.empty(size, dtype=torch.bfloat16, device="meta")


class Card:
    """A model of full width on a card that computes nothing."""

    def __init__(
        self,
        name: str,
        cuda: FakeCuda,
        accounting: Accounting,
        *,
        swept: bool = False,
        context: int = CONTEXT,
        **settings: object,
    ) -> None:
        self.accounting = accounting
        given = dict(SHAPES[name])
        family, tied = given.pop("family", "llama"), given.pop("tied", False)
        source = {
            "model_type": family,
            "num_hidden_layers": LAYERS,
            "hidden_size": given["hidden"],
            "num_attention_heads": given["heads"],
            "num_key_value_heads": given["kv_heads"],
            "head_dim": HEAD_DIM,
            "intermediate_size": given["intermediate"],
            "vocab_size": given["vocab"],
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": tied,
            "max_position_embeddings": context,
            "hidden_act": FAMILIES[family].activation,
            **MORE.get(name, {}),
        }
        if family in ("gemma3_text", "gemma4_text"):
            rope = {"rope_type": "default", "rope_theta": 10_000.0}
            source["rope_parameters"] = {"full_attention": rope, "sliding_attention": rope}
        self.shape = ModelShape.from_hf_config(source, name=name)
        on_chip = None if self.shape.readers else 1  # what several layers read is there as a whole
        self.settings = Settings(context_tokens=context, on_chip_layers=on_chip, **settings)
        machine = imagined_hardware(gpu="RTX 4090", ram_gib=128)
        self.plan: Plan = make_plan(machine, self.settings, target=self.shape)
        if swept:  # where two whole layers do not fit
            less = (self.plan.bytes_in("VRAM") - layout.MIB) / budget.GIB
            self.plan = make_plan(machine, replace(self.settings, vram_gib=less), target=self.shape)
        assert self.plan.swept_prefill == swept
        backend = cuda.backend(torch.bfloat16, on="meta")
        backend._kernels |= dict.fromkeys((HEAD_DIM, 4 * HEAD_DIM), flash)
        self._leave_out(backend)
        self.model: LlamaModel = build_model(
            from_source(source, name=name, eos=None),
            NoWeights(SHAPES[name], accounting),
            backend,
            positions=context + layout.OVERRUN,
        )
        # as the product does: the middle level's memory when the model is loaded, then the cache
        store = self._retrieval(FullKVCache(self.model.config.kv_shape.of_full, 256, backend)).store
        self.cache = CacheFactory(self.plan, self.settings, self.model).new_cache(context)
        self.retrieval = self._retrieval(self.cache, store)

    def _retrieval(
        self, source: TargetKVCache, store: KVStore | None = None
    ) -> RetrievalKVCache | LayeredRetrievalKVCache:
        return retrieval_over(
            source,
            budget=self.plan.retrieval_budget,
            chunk=self.plan.retrieval_chunk,
            tail_tokens=self.plan.tail_tokens,
            slack=rows_to_spare(self.plan),
            store=store,
        )

    def _leave_out(self, backend: CudaBackend) -> None:
        """What torch does in one kernel on a card and in many operations here, and the host's memory."""

        def host_memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            with self.accounting.elsewhere():
                return torch.empty(tuple(shape), dtype=dtype, device="meta")

        backend.host_memory = host_memory
        backend.rms_norm = lambda x, weight, eps: torch.empty_like(x)

    def skip(self, tokens: int) -> None:
        """As if so many tokens had been read."""
        self.cache.advance(tokens)
        self.cache.commit(tokens)
        if isinstance(self.cache, LayeredKVCache):
            self._put_side(tokens)

    def _put_side(self, tokens: int) -> None:
        states = self.model.config.kv_shape.states
        if states is not None:
            layers = len(states.layers)
            with self.accounting.elsewhere():
                held = torch.empty((layers, *states.size), device="meta")
                rows = torch.empty((layers, states.tail, states.width), dtype=torch.bfloat16, device="meta")
            self.cache.put_side(KeptStates(tokens, held, rows))
        else:
            shape, window = self.model.config.kv_shape.of_windows, self.cache.side.window
            size = (shape.layers, shape.kv_heads, window, shape.head_dim)
            with self.accounting.elsewhere():
                rows = torch.empty(size, dtype=torch.bfloat16, device="meta")
            self.cache.put_side(KeptWindows(tokens - window, tokens, rows, rows))

    def prefill(self, tokens: int) -> None:
        for _ in self.model.prefill(
            [0] * tokens,
            self.cache,
            segment_tokens=self.plan.prefill_segment_tokens,
            chunk_tokens=self.plan.prefill_chunk_tokens,
            should_stop=lambda: False,
            tap=self.retrieval.policy.tap,
        ):
            pass

    def planned(self, *left_out: str) -> int:
        """Bytes of the plan's lines in VRAM, but for what is not the program's."""
        other = (budget.CONTEXT, budget.KEPT_FREE, budget.GRAPHS, *left_out)
        return sum(line.bytes for line in self.plan.budget if line.place == "VRAM" and line.name not in other)


WHOLE = [*((name, 16, False) for name in SHAPES), ("7B", 8, False), ("8B", 8, False)]
SWEPT = [("7B", 16, True), ("7B", 8, True), ("13B", 16, True)]


@pytest.mark.parametrize(("name", "kv", "swept"), first(SWEPT[:1] + WHOLE + SWEPT[1:]))
def test_a_late_prefill_takes_what_the_plan_says(name: str, kv: int, swept: bool, cuda: FakeCuda):
    """The last segment of a prefill, behind all others, and a verification: the plan counted two outputs in
    fp32 where twenty were kept. In all, and in the work space alone; with two whole layers on the device, and
    with one that is swept.
    """
    allocator = CachingAllocator()
    with torch.inference_mode(), Accounting(allocator) as accounting:
        card = Card(name, cuda, accounting, swept=swept, kv=kv)
        held, segment = allocator.allocated, card.plan.prefill_segment_tokens
        assert allocator.peak_reserved == allocator.reserved
        allocator.peak_allocated = held  # the work space was taken in one piece, and given back
        card.skip(CONTEXT - segment)
        card.prefill(segment)
        card.cache.observer = card.retrieval.policy.observe
        card.model.forward([0] * layout.OVERRUN, card.cache)
    planned = card.planned()
    assert 0.95 * planned < allocator.peak_reserved <= planned
    at_work = (budget.WORK_PREFILL, budget.KV_DECODED)
    work = sum(line.bytes for line in card.plan.budget if line.name in at_work)
    assert 0.8 * work < allocator.peak_allocated - held <= work


@pytest.mark.slow
def test_a_million_tokens_take_what_the_plan_says(cuda: FakeCuda):
    """The last segment behind 1,040,384 tokens, and a verification: what a swept prefill works with is
    the plan's, which does not grow with the window (tests/planning/test_a_million_tokens.py).
    """
    allocator, context, segment = CachingAllocator(), 1 << 20, 8192
    with torch.inference_mode(), Accounting(allocator) as accounting:
        how = {"kv": 8, "prefill_segment_tokens": segment, "context": context}
        card = Card("7B", cuda, accounting, swept=True, **how)
        held = allocator.peak_allocated = allocator.allocated
        card.skip(context - segment)
        card.prefill(segment)
        card.cache.observer = card.retrieval.policy.observe
        card.model.forward([0] * layout.OVERRUN, card.cache)
    assert 0.95 * card.planned() < allocator.peak_reserved <= card.planned()
    at_work = (budget.WORK_PREFILL, budget.KV_DECODED)
    work = sum(line.bytes for line in card.plan.budget if line.name in at_work)
    assert 0.8 * work < allocator.peak_allocated - held <= work
