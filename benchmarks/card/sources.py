"""What a benchmark's large models are made of: a small model and a text, or random numbers and ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from benchmarks.lib.upscale import ExpandedWeights, expanded_config
from core.backend.base import Backend
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, from_source, load_config
from core.model.llama import LlamaModel
from core.model.loader import build_model, weights_in
from core.model.shapes import ModelShape
from core.selftest.random_model import RandomWeights, random_config

ROPE_THETA = 10_000.0  # of random models; only times are taken of them
SPREAD = 0.02  # of their weights, as models are initialised


class ModelSource(Protocol):
    """Models in any shape, and ids for them to read."""

    ids: list[int]

    def config(self, shape: ModelShape, *, positions: int, rope_theta: float | None) -> ModelConfig:
        """Of a model in this shape. `rope_theta`, when given, replaces its own."""
        ...

    def weights(self, config: ModelConfig, backend: Backend) -> Weights:
        """Its tensors, made on the device when they are asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Expanded:
    """A small model's function at a large one's cost (benchmarks.lib.upscale), and a text in its tokens."""

    small: ModelConfig
    small_weights: Weights
    ids: list[int]

    def config(self, shape: ModelShape, *, positions: int, rope_theta: float | None) -> ModelConfig:
        """See ModelSource."""
        return expanded_config(self.small, shape, positions=positions, rope_theta=rope_theta)

    def weights(self, config: ModelConfig, backend: Backend) -> Weights:
        """See ModelSource. Raises ValueError when the shape cannot hold the small model."""
        return ExpandedWeights(
            self.small, self.small_weights, config, device=backend.device, dtype=backend.dtype
        )


@dataclass(frozen=True, slots=True)
class Random:
    """The shape's own vocabulary, weights from a generator on the device: needs no file, and says nothing
    that means anything.
    """

    ids: list[int]

    def config(self, shape: ModelShape, *, positions: int, rope_theta: float | None) -> ModelConfig:
        """See ModelSource."""
        return random_shape(shape, positions=positions, rope_theta=rope_theta or ROPE_THETA)

    def weights(self, config: ModelConfig, backend: Backend) -> Weights:
        """See ModelSource."""
        return RandomWeights(config, deviation=SPREAD, device=backend.device, dtype=backend.dtype)


def book_source(path: Path, model: Path | None, *, longest: int) -> Expanded:
    """The embedded model, or the one in a folder, and a book, read again from its beginning where it is
    shorter than `longest` tokens.
    """
    from core.documents import read_document
    from core.model.store.embedded import ensure_embedded
    from core.text.tokenizer import Tokenizer

    folder = model or ensure_embedded()
    ids = Tokenizer.load(folder).encode(read_document(path).text)
    if len(ids) < longest:
        print(f"the book has {len(ids):,} tokens and is repeated up to {longest:,}", flush=True)
    return Expanded(load_config(folder), weights_in(folder), (ids * -(-longest // len(ids)))[:longest])


def small_book() -> Expanded:
    """A few rows in the place of both, to test a program."""
    config = random_config(layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, intermediate=48, vocab=97)
    return Expanded(config, RandomWeights(config, deviation=0.25), random_ids(97, 1000))


def random_ids(vocab: int, n: int) -> list[int]:
    """The same `n` ids each time."""
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(2)).tolist()


def random_shape(shape: ModelShape, *, positions: int, rope_theta: float = ROPE_THETA) -> ModelConfig:
    """The configuration of a random Llama in this shape, with two matrices for the two ends."""
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
    source = {
        **random_config(**{name: getattr(shape, name) for name in sizes}).source,
        "tie_word_embeddings": False,
        "max_position_embeddings": positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
    }
    return from_source(source, name=f"random numbers in {shape.name} shape", eos=None)


def draft_shape(vocab: int) -> ModelShape:
    """Of a draft model as llama-68m is: two layers of 768."""
    return ModelShape(
        "llama-68m",
        layers=2,
        hidden=768,
        heads=12,
        kv_heads=12,
        head_dim=64,
        intermediate=3072,
        vocab=vocab,
        native_context=2048,
        longest_context=2048,
    )


def random_draft(backend: Backend, *, vocab: int = 32_000) -> LlamaModel:
    """For its times alone."""
    shape = draft_shape(vocab)
    config = random_shape(shape, positions=shape.native_context)
    weights = RandomWeights(config, deviation=SPREAD, device=backend.device, dtype=backend.dtype)
    return build_model(config, weights, backend, positions=shape.native_context)
