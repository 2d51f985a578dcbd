"""Layers with a state on this CPU: the compiled kernel beside torch's form, and whole passes of random codes
of a Qwen3.5's shape behind a filled cache, by the compiled kernels of attention and states and by torch in
their place.

    python -m benchmarks.states [--size 0.8B] [--threads 1 --clock cpu] [--isa avx2] [--save states]

Contenders alternate; figures are medians. Products are the same for both. The least time is that of the bytes
that a token takes, codes, cache and state, at the rate of a parallel read in the same run. What the plan
expects is by this CPU's rates, taken in the same run. On a busy machine one thread by its CPU time says more
than the clock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

import torch

from benchmarks.lib.results import Table, save_result
from benchmarks.speed.peer_processes import CLOCKS
from core.assembly.models import cpu_backend
from core.assembly.rates import measured_rates
from core.backend.base import Linear
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.delta import native_delta
from core.backend.cpu.native.products import native_products
from core.backend.shared.quantized_example import example
from core.cache.full import FullKVCache
from core.cache.layered import with_side
from core.hardware.cpu import cores, cpu_flags
from core.hardware.gpus import imagined_hardware
from core.model.config import from_source
from core.model.delta import GatedDelta
from core.model.llama import Layer, LlamaModel
from core.model.loader import build_model
from core.model.mixer_sizes import DeltaSizes
from core.model.store.catalogue import find
from core.planning.costs import cpu_speeds, pass_s

# hidden, intermediate; layers, heads and value heads are those of both
SIZES = {"0.8B": (1024, 3584), "2B": (2048, 6144)}
VOCAB = 248_320
BEHIND = 32_768  # tokens
PREFILLED = 256
Q4_K, Q6_K = (4, 32, True, True), (6, 16, True, False)
VALUE_HEADS = (16, 32, 48)  # 2B, 9B, 27B
ROUNDS = 3
GIB = 1 << 30
MATRICES = ("qkv", "gate", "out", "gate_up", "down")
# what a row's time is told by; the rest is norms, gates, sums and the program itself
PRODUCTS, OUTPUT, ATTENTION, STATES, REST = "layers' products", "output", "attention", "states", "the rest"
_clock = [time.perf_counter]


class InRandomCodes(CpuBackend):
    """Every matrix becomes one of random codes of its shape, Q4_K, the output's Q6_K."""

    nbytes = 0

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        rows, columns = weight.shape
        dice = torch.Generator().manual_seed(rows + columns)
        made = example(Q6_K if rows == VOCAB else Q4_K, dice, rows=rows, columns=columns)
        parts = (made.low, made.high, made.scale, made.offset, made.scale_steps, made.offset_steps)
        self.nbytes += sum(part.nbytes for part in parts if part is not None)
        return self.coded([made], bias)


class ShapedWeights:
    """A weight of any name and of the shape that it has, one number for all of it."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def __contains__(self, name: str) -> bool:
        return name in self._shapes

    def tensor(self, name: str) -> torch.Tensor:
        """See WeightReader."""
        return torch.full((1,), 0.5).expand(self._shapes[name])


def hybrid_config(size: str) -> dict[str, Any]:
    """A configuration."""
    hidden, intermediate = SIZES[size]
    return {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 24,
        "hidden_size": hidden,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "intermediate_size": intermediate,
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
        "max_position_embeddings": 262_144,
        "linear_num_value_heads": 16,
    }


def random_model(size: str, backend: CpuBackend) -> LlamaModel:
    """The model, of random codes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**hybrid_config(size))
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(value.shape) for name, value in empty.state_dict().items()}
    source = from_source(config.to_dict(), name=size, eos=None)
    return build_model(source, ShapedWeights(shapes), backend, positions=BEHIND + 64)


def torch_in_place(model: LlamaModel, backend: CpuBackend) -> LlamaModel:
    """The same matrices; attention and states as `backend` computes them."""
    layers = [
        layer if layer.recurrence is None else replace(layer, recurrence=layer.recurrence.served_by(backend))
        for layer in model._layers
    ]
    own = {"embedding": model.embedding, "norm": model._norm, "head": model._head, "rope": model.rope}
    return LlamaModel(model.config, backend, layers=layers, **own)


def cache_behind(model: LlamaModel) -> Any:
    """A cache of BEHIND made-up tokens, with states of made-up numbers."""
    shape = model.config.kv_shape
    full = FullKVCache(shape.of_full, BEHIND + 64, model.backend, dtype=torch.bfloat16)
    for part in (full.store.k, full.store.v):
        part.normal_()
    cache = with_side(shape, full, room=64)
    cache.side._states.normal_()
    cache.advance(BEHIND)
    cache.side.fed(BEHIND)
    cache.full.commit(BEHIND)
    return cache


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds."""
    now = _clock[0]
    started = now()
    run()
    return now() - started


def state_rows() -> list[tuple[Any, ...]]:
    """Milliseconds of a layer's rows by torch and by the kernel, for 1 and 8 rows and 1,024 of a prefill."""
    backend, found = CpuBackend(delta=native_delta(cpu_flags())), []
    for heads in VALUE_HEADS:
        sizes = DeltaSizes(16, heads, 128, 128, 4)
        numbers = [torch.rand(count) for count in (heads, heads, 128)]
        torchs = GatedDelta(sizes, torch.rand(4, sizes.channels), -numbers[0], numbers[1], numbers[2])
        both = torchs, torchs.served_by(backend)
        for n in (1, 8, 1024):
            rows = torch.randn(3 + n, sizes.width)
            states = [torch.zeros(8, heads, 128, 128) for _ in both]  # several: one alone stays in a cache
            times: list[list[float]] = [[], []]
            for at in range(3 if n > 8 else 32):
                for one, own, taken in zip(both, states, times, strict=True):
                    state = own[at % 8]
                    many = partial(one.steps, state, rows)
                    taken.append(seconds_of(many if n > 8 else partial(one.one_by_one, state, state, rows)))
            by, compiled = (median(taken) * 1e3 for taken in times)
            found.append((heads, n, round(by, 3), round(compiled, 3), f"{by / compiled:.1f}"))
            print(*found[-1], sep="  ", flush=True)
    return found


def passes_behind(size: str, threads: int) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """Milliseconds of passes behind BEHIND tokens and of a prefill, and what they are measured against."""
    flags = cpu_flags()
    kernels = {"native": native_attention(flags), "products": native_products(flags)}
    backend = InRandomCodes(
        torch.float32, storage=torch.bfloat16, threads=threads, delta=native_delta(flags), **kernels
    )
    plain = cpu_backend(torch.float32, storage=torch.bfloat16, threads=threads)
    model = random_model(size, backend)
    old = CpuBackend(torch.float32, storage=torch.bfloat16, threads=threads, products=plain._coded_products)
    models = {"torch": torch_in_place(model, old), "compiled": model}
    caches = {name: cache_behind(one) for name, one in models.items()}
    block = torch.ones(GIB // 8, dtype=torch.int64)
    square = torch.rand(2048, 2048)
    rows, rates, products = [], [], []
    with torch.inference_mode():
        for n in (1, 4):
            times: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(ROUNDS):
                rates.append(GIB / seconds_of(block.sum))
                for name, one in models.items():
                    times[name].append(seconds_of(partial(one.forward, [7] * n, caches[name])))
                    caches[name].rollback(BEHIND)
            rows.append((f"{n} rows", *(round(median(taken) * 1e3, 1) for taken in times.values())))
            print(*rows[-1], flush=True)
        taken = []
        for one in models.values():
            products.append(2 * 2048 * 2048 * PREFILLED / seconds_of(lambda: square[:PREFILLED] @ square))
            fresh = with_side(
                one.config.kv_shape,
                FullKVCache(one.config.kv_shape.of_full, 512, one.backend, dtype=torch.bfloat16),
                room=64,
            )
            fed = one.prefill(
                [7] * PREFILLED,
                fresh,
                segment_tokens=PREFILLED,
                chunk_tokens=PREFILLED,
                should_stop=lambda: False,
            )
            taken.append(round(seconds_of(partial(list, fed)) * 1e3))
    rows.append((f"a prompt of {PREFILLED}", *taken))
    print(*rows[-1], flush=True)
    kv = sum(part.nbytes for part in (caches["compiled"].full.store.k, caches["compiled"].full.store.v))
    moved = backend.nbytes + kv + 2 * caches["compiled"].side._states.nbytes
    with torch.inference_mode():
        parts = parts_of_a_row(model, caches["compiled"])
        promised = promised_ms(size, plain, threads)
    facts = {"bytes": moved, "rate": median(rates), "products": max(products)}
    return rows, {**facts, "parts": parts, "promised_ms": promised}


def parts_of_a_row(model: LlamaModel, cache: Any) -> list[tuple[str, float]]:
    """Milliseconds of one row's parts, medians over passes."""
    taken: dict[str, float] = defaultdict(float)

    def timed(part: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            started = _clock[0]()
            found = run(*given, **more)
            taken[part] += _clock[0]() - started
            return found

        return call

    def of(layer: Layer) -> Layer:
        held = {name: getattr(layer, name) for name in MATRICES}
        return replace(layer, **{name: timed(PRODUCTS, one) for name, one in held.items() if one is not None})

    own = {"embedding": model.embedding, "norm": model._norm, "head": timed(OUTPUT, model._head)}
    layers = [of(layer) for layer in model._layers]
    watched = LlamaModel(model.config, model.backend, layers=layers, rope=model.rope, **own)
    cache.full.attend, cache.recur = timed(ATTENTION, cache.full.attend), timed(STATES, cache.recur)
    passes = []
    for _ in range(ROUNDS):
        taken.clear()
        whole = seconds_of(partial(watched.forward, [7], cache))
        cache.rollback(BEHIND)
        passes.append({**taken, REST: whole - sum(taken.values())})
    return [(part, round(1e3 * median(one[part] for one in passes), 1)) for part in passes[0]]


def promised_ms(size: str, backend: CpuBackend, threads: int) -> dict[int, float]:
    """What the plan expects of passes of 1 and 4 rows, by the rates of this run."""
    plan: Any = SimpleNamespace(threads=threads, computes="bfloat16")
    with mock.patch("time.perf_counter", _clock[0]):
        rates = measured_rates(backend, plan)
    hardware = replace(imagined_hardware(), cpu_flags=cpu_flags(), cpu_rates=rates)
    shape, speeds = find(f"Qwen3.5-{size}-Q4_K_M").shape, cpu_speeds(hardware, threads, "bfloat16")
    told = {"kv_tokens": BEHIND, "speeds": speeds, "kernel": "codes"}
    return {n: round(1e3 * pass_s(shape, "bfloat16", rows=n, **told)) for n in (1, 4)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="2B", help="the model's shape (default: 2B)")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    parser.add_argument("--threads", type=int, default=cores()[0], help="default: one for each core")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: on a busy machine")
    isa.add_option(parser)
    given = parser.parse_args()
    threads, _clock[0] = given.threads, CLOCKS[given.clock]
    torch.set_num_threads(threads)
    layers = Table(
        f"A layer with a state of heads of 128 x 128, {threads} threads",
        ("value heads", "rows", "torch ms", "compiled ms", "torch / compiled"),
        tuple(state_rows()),
    )
    found, facts = passes_behind(given.size, threads)
    least = 1e3 * facts["bytes"] / facts["rate"]
    whole = Table(
        f"Qwen3.5-{given.size}'s shape in Q4_K behind {BEHIND:,} tokens, {threads} threads, milliseconds",
        ("pass", "torch", "compiled", "torch / compiled"),
        tuple((*row, f"{row[1] / row[2]:.2f}") for row in found),
        notes=(
            f"A token's bytes take {least:.0f} ms at {facts['rate'] / 1e9:.1f} GB/s, a plain read's.",
            "By the rates measured in the same run the plan expects {} and {} ms of 1 and 4 rows.".format(
                *facts["promised_ms"].values()
            ),
            f"Times are {'processor time' if given.clock == 'cpu' else 'by the clock'}.",
        ),
    )
    parts = Table("One such row by part", ("part", "ms"), tuple(facts["parts"]))
    print(*whole.notes, parts.rows, sep="\n")
    if given.save:
        save_result(given.save, [layers, whole, parts], details=facts)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
