"""The embedded model for tests of decoding, in transformers and in the runtime, loaded once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.delta import native_delta
from core.backend.cpu.native.layers import native_layers
from core.backend.cpu.native.products import coarse_products, native_products
from core.cache.full import FullKVCache
from core.engine import Engine
from core.hardware.cpu import cpu_flags
from core.model.loader import load_model
from tests.support.tiny import engine

SIZES = {
    "context_tokens": 900,
    "retrieval_budget": 64,
    "retrieval_chunk": 16,
    "draft_sinks": 8,
    "draft_window": 48,
    "gamma": 6,
    "middle_gamma": 3,
    "layers": 30,
    "prefill_segment_tokens": 256,
    "prefill_chunk_tokens": 128,
}


@cache
def embedded(folder: Path, *, native: bool = True) -> tuple[torch.nn.Module, Engine, object]:
    """(transformers' model, our engine, the tokenizer), both fp32 from the same files. `native`: with the
    compiled kernels, where this CPU has them.
    """
    from transformers import AutoTokenizer

    from core.training.target import in_transformers

    reference = in_transformers(folder, torch.float32)
    reference.generation_config.repetition_penalty = 1.0
    backend = CpuBackend(torch.float32, **(compiled() if native else {}))
    model = load_model(folder, backend, positions=1024)
    machine = engine(model, **SIZES)
    return reference, machine, AutoTokenizer.from_pretrained(folder)


def compiled() -> dict[str, object]:
    """What CpuBackend takes of compiled kernels on this CPU."""
    flags = cpu_flags()
    native, products = native_attention(flags), native_products(flags)
    layers = native_layers(flags, native, products)
    return {
        "native": native,
        "products": products,
        "coarse": coarse_products(flags),
        "layers": layers,
        "delta": native_delta(flags),
    }


def low_precision(folder: Path, *, in_codes: bool) -> Engine:
    """The same in bf16, as the product computes on CPUs that can; from the checkpoint's codes or from the
    numbers they stand for.
    """
    backend = CpuBackend(torch.bfloat16, **compiled())
    model = load_model(folder, backend, positions=1024, in_codes=in_codes)
    return engine(model, **SIZES)


def kv_in_8_bits(folder: Path) -> Engine:
    """Computed in fp32 over a KV cache of codes."""
    model = embedded(folder)[1].model

    def codes(capacity: int) -> FullKVCache:
        return FullKVCache(model.config.kv_shape, capacity + 32, model.backend, dtype=torch.int8)

    return engine(model, new_cache=codes, **SIZES)
