"""Ways to round a model of 16 bits to codes of 4 in groups of 32, by what they cost its laws.

    python -m benchmarks.rounding [--book FILE] [--windows 1] [--tokens 1024] [--save rounding]

The embedded model as it was taught, unrounded, computed in fp32; each way rounds all its matrices, as the
program does. Before it was taught the model lay on a grid of 4 bits with an offset for every 32 weights,
which a way with offsets finds again. So it is measured a second time with its channels in another order: the
same function, and groups that lie on no grid. How long rounding takes is CPU time of one thread, reading and
writing files included where it says so. Finished cases are kept (--state).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks import cases
from benchmarks import gguf_made as files
from benchmarks.embedded import BOOK, book_ids
from benchmarks.four_bits import ORDERS, WAYS, InFull, Rounded, Way
from benchmarks.kv import Apart, add, laws
from benchmarks.store import Table, save
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.model.config import load_config
from core.model.gguf.folder import opened
from core.model.loader import build, weights_in
from core.model.store.embedded import ADAPTER, ensure_embedded
from core.model.store.quantize_checkpoint import quantised
from core.paths import subdir

SEVEN_BILLION, CORES = 6.74e9, 8  # LWM's weights; the machine that the time is worked out for


# ---- what is measured --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """The cases that are missing, and the tables of all."""
    options = _arguments(arguments)
    conditions = {"book": options.book.name, "windows": options.windows, "tokens": options.tokens}
    state = cases.Cases(options.state, conditions, minutes=options.minutes)
    source = _sixteen_bits(options.made)
    every: dict[str, Callable[[], Any]] = {}
    for order in ORDERS:
        judged = Judged(source, order, options)
        every |= {f"laws, {order}, {way.name}": partial(judged.figures, way) for way in WAYS}
    every |= {
        f"seconds, {way.name}": lambda way=way: _seconds(source, way)
        for way in WAYS
        if way.bits < 16 and way.layers is way.ends
    }
    every |= {f"whole, {kind}": lambda kind=kind: _whole(source, kind) for kind in ("Q4_0", "Q8_0")}
    with torch.inference_mode():
        left = state.measure_all(every)
    if options.save:
        details = {"cases": state.done, "left": left}
        save(options.save, tables(state.done), details, folder=options.folder)
    print({"left": left})
    return 0


def _sixteen_bits(made: Path) -> Path:
    """The folder that stands for the embedded model as it was taught, unrounded."""
    base = next(ensure_embedded(taught=False).glob("*.gguf"))
    return opened(files.sixteen_bits(base, made / f"taught-{files.SIXTEEN}.gguf", ADAPTER))


class Judged:
    """One order of channels: laws of rounded weights against those of the weights as they are, on pages of
    the book.
    """

    def __init__(self, source: Path, order: str, options: argparse.Namespace) -> None:
        self._config = load_config(source)
        self._weights = ORDERS[order](weights_in(source), self._config)
        ids = book_ids(options.book, source, least=options.windows * options.tokens)
        step, tokens = (len(ids) - options.tokens - 1) // options.windows, options.tokens
        self._windows = [ids[at : at + tokens + 1] for at in range(0, step * options.windows, step)]

    def figures(self, way: Way) -> dict[str, float]:
        """What a way costs."""
        apart = Apart([])
        rounded = self._laws(Rounded(self._weights, way))
        for reference, law, window in zip(self._exact, rounded, self._windows, strict=True):
            add(apart, reference, law, torch.tensor(window[1:]))
        return apart.figures()

    @cached_property
    def _exact(self) -> list[torch.Tensor]:
        return self._laws(self._weights)

    def _laws(self, weights: Any) -> list[torch.Tensor]:
        """Log-probabilities [tokens, vocab] of each window."""
        backend, most = CpuBackend(torch.float32), max(map(len, self._windows))
        model = build(self._config, weights, backend, positions=most + 8)
        caches = (FullKVCache(self._config.kv_shape, most, backend) for _window in self._windows)
        pairs = zip(caches, self._windows, strict=True)
        return [torch.cat(list(laws(model, cache, ids))) for cache, ids in pairs]


def _seconds(source: Path, way: Way) -> dict[str, float]:
    """CPU seconds of one thread for the matrices of four layers."""
    weights = InFull(weights_in(source), load_config(source))
    stems = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    given = [weights.tensor(f"model.layers.{layer}.{stem}.weight") for layer in range(4) for stem in stems]
    with _one_thread():
        way.layers(given[0])
        started = time.process_time()
        for weight in given:
            way.layers(weight)
        spent = time.process_time() - started
    return {"cpu_s": spent, "weights": sum(weight.numel() for weight in given)}


def _whole(source: Path, kind: str) -> dict[str, float]:
    """The program's own rounding of a checkpoint in `safetensors`, from reading to the finished folder."""
    with tempfile.TemporaryDirectory(dir=subdir("benchmarks")) as kept, _one_thread():
        folder = Path(kept) / "SmolLM2"
        count = checkpoint(source, folder)
        started = time.process_time()
        made = quantised(folder, kind, lambda stage, share: None)
        spent = time.process_time() - started
        shutil.rmtree(made.parent)
    return {"cpu_s": spent, "weights": count}


def checkpoint(source: Path, folder: Path) -> int:
    """The model that `source` stands for as `safetensors` of 16 bits in a new `folder`; how many weights its
    matrices have.
    """
    config, weights = load_config(source), weights_in(source)
    tensors = {
        name: weights.tensor(name).bfloat16().contiguous() for name in files.weight_names(config.layers)
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "config.json", folder / "config.json")
    return sum(tensor.numel() for tensor in tensors.values() if tensor.ndim == 2)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# ---- what is shown -----------------------------------------------------------------------------------------

COLUMNS = (
    "Rounded to 4 bits by",
    "bits a weight",
    "channels",
    "KL to 16 bits, nats",
    "KL p99",
    "same likeliest token",
    "perplexity",
)
NOTES = (
    "The embedded model as it was taught, unrounded, and its matrices in groups of 32, on pages of a sample "
    "book; all computed in fp32. A search takes the scale, or the two ends, of the least squared error.",
    "In another order: channels stand in a random order, which changes no law, and no group lies on the grid "
    "of 4 bits with offsets that the model had before it was taught.",
)
TIME_COLUMNS = ("What", "weights, million", "CPU, s", "ns a weight", f"7B on {CORES} cores, minutes")
TIME_NOTES = (
    "CPU time of one thread. The last column is that time for 6.74 thousand million weights shared by the "
    "cores: arithmetic, not a measurement; memory and disk set it a bound of their own.",
)


def tables(done: dict[str, Any]) -> list[Table]:
    """Of the cases that are done."""
    made = [
        Table("Ways to round to 4 bits", COLUMNS, tuple(_law_rows(done)), NOTES),
        Table("What rounding takes", TIME_COLUMNS, tuple(_time_rows(done)), TIME_NOTES),
    ]
    return [table for table in made if table.rows]


def _law_rows(done: dict[str, Any]) -> Iterator[tuple]:
    for order, way in product(ORDERS, WAYS):
        law = done.get(f"laws, {order}, {way.name}")
        if law:
            figures = (law[one] for one in ("kl_mean", "kl_p99", "agreement", "perplexity"))
            yield (way.name, way.bits, order, *figures)


def _time_rows(done: dict[str, Any]) -> Iterator[tuple]:
    for case, found in done.items():
        kind, _comma, name = case.partition(", ")
        if kind in ("seconds", "whole"):
            each = found["cpu_s"] / found["weights"]
            said = name if kind == "seconds" else f"the program, a checkpoint to {name}, files included"
            minutes = each * SEVEN_BILLION / CORES / 60
            yield said, found["weights"] / 1e6, found["cpu_s"], 1e9 * each, minutes


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cases.add_options(parser, "rounding", minutes=20)
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024, help="of a window")
    parser.add_argument("--made", type=Path, help="where the 16-bit file is made and kept")
    options = parser.parse_args(arguments)
    options.made = options.made or subdir("benchmarks") / "formats"
    return options


if __name__ == "__main__":
    sys.exit(main())
