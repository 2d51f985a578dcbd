"""What each format of weights and KV cache costs the embedded model, and whether another program computes the
same from the same file.

    python -m benchmarks.weight_formats [--book FILE] [--windows 2] [--tokens 1024] [--context 4096]
                                 [--made FOLDER] [--reading FOLDER] [--minutes 20] [--save formats]

The model as it was taught, unrounded in 16 bits, is what llama.cpp's quantiser makes Q4_K_M, Q5_K_M, Q6_K and
Q8_0 of (pip install llama-cpp-python; without it there is 16 bits alone). KL, agreement and perplexity are
computed in fp32, so that only the formats differ; acceptance along a text in the numbers of real use
(core.decoding.forced: both distributions are computed, nothing is drawn); --reading holds what people asked
about stories. Beside llama.cpp (benchmarks.quality.llamacpp_agreement): the same page of a book from the same
file, also of a larger shape whose rows are whole blocks of 256, which the embedded model's are not: llama.cpp
puts other formats in their place. Finished cases are kept (--state).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

import torch

from benchmarks.lib import gguf_fixtures as files
from benchmarks.lib import resumable
from benchmarks.lib.embedded import BOOK, book_ids
from benchmarks.lib.results import Table, save_result
from benchmarks.quality import llamacpp_agreement
from benchmarks.quality.kv_quantization import JUDGED_AT_ONCE, Apart, add, distributions
from benchmarks.quality.reading import cases as questions
from benchmarks.quality.reading.figures import reading_figures
from benchmarks.quality.reading.run import Program
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.products import coarse_products, native_products
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.decoding import forced
from core.decoding.forced import RetrievalLane, SourceStandIn
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.hardware.cpu import cpu_flags
from core.model.gguf.folder import opened
from core.model.llama import LlamaModel
from core.model.loader import load_model
from core.model.shapes import Sizes
from core.model.store.embedded import ADAPTER, ensure_embedded
from core.model.store.embedded import NAME as EMBEDDED
from core.paths import subdir

KV = {16: torch.bfloat16, 8: torch.int8}  # bits: how a row is kept
BUDGET, CHUNK, GAMMA, FORCED = 512, 8, 8, 128  # of the retrieval cache, of drafts, tokens of the text
REFRESH_EVERY, REFRESH_BELOW = 8, 0.7
SAMPLINGS = {"T 0.6": Sampling(0.6, 0.9), "T 0": Sampling()}
# as small as whole blocks of 256 and the groups of its heads allow
WHOLE_BLOCKS = Sizes("whole blocks", 30, 768, 12, 4, 64, 1536)
BESIDE = (("Q4_K_M", "its own"), ("Q4_K_M", "whole blocks"), (files.SIXTEEN, "its own"))


def main(arguments: list[str] | None = None) -> int:
    """The cases that are missing, and the tables of all."""
    options = _arguments(arguments)
    formats = [files.SIXTEEN, *(files.FILE_TYPES if _has_llama_cpp() else ())]
    given = {name: getattr(options, name) for name in ("windows", "tokens", "context", "questions")}
    state = resumable.Cases(options.state, {"book": options.book.name, **given}, minutes=options.minutes)
    every = dict(_cases(formats, options))
    with torch.inference_mode():
        left = state.measure_all(every)
    if options.save:
        details = {"cases": state.done, "left": left}
        save_result(options.save, format_tables(state.done, formats), details, folder=options.folder)
    print({"left": left})
    return 0


def _cases(formats: Sequence[str], options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What there is to be measured, by name."""
    for kv in KV:
        yield f"distributions, {kv}-bit KV", partial(_distributions, formats, kv, options)
    if _has_llama_cpp():
        for kind, shape in BESIDE:
            file = partial(file_of, kind, options.made, shape)
            yield (
                llamacpp_agreement.CASE.format(kind=kind, shape=shape),
                lambda file=file: llamacpp_agreement.compare_page(file(), options.book),
            )
    for kv, kind in product(KV, formats):
        if options.reading:
            yield f"reading, {kind}, {kv}-bit KV", partial(_reading, kind, kv, options)
        yield f"acceptance, {kind}, {kv}-bit KV", partial(_acceptance, kind, kv, options)


def _has_llama_cpp() -> bool:
    import importlib.util

    return importlib.util.find_spec("llama_cpp") is not None


# ---- files and models --------------------------------------------------------------------------------------


def file_of(kind: str, folder: Path, shape: str = "its own") -> Path:
    """The embedded model as `kind`, made below `folder` where it is not there. In the larger shape it is the
    published model, untaught: agreement with another program does not depend on it.
    """
    base = next(ensure_embedded(taught=False).glob("*.gguf"))
    if shape == "its own":
        made = files.sixteen_bits(base, folder / f"taught-{files.SIXTEEN}.gguf", ADAPTER)
    else:
        made = files.expanded(base, WHOLE_BLOCKS, folder / f"expanded-{files.SIXTEEN}.gguf", positions=8192)
    return made if kind == files.SIXTEEN else files.quantised_by_llama_cpp(made, kind)


def loaded_model(file: Path, dtype: torch.dtype, positions: int) -> LlamaModel:
    """The model in the file, on the compiled kernels where this CPU has them, those for drafts among them."""
    flags = cpu_flags()
    kernels = {"products": native_products(flags), "coarse": coarse_products(flags)}
    backend = CpuBackend(dtype, native=native_attention(flags), **kernels)
    return load_model(opened(file), backend, positions=positions)


def _cache(model: LlamaModel, tokens: int, kv: int) -> FullKVCache:
    return FullKVCache(model.config.kv_shape, tokens, model.backend, dtype=KV[kv])


# ---- what is measured --------------------------------------------------------------------------------------


def _distributions(formats: Sequence[str], kv: int, options: argparse.Namespace) -> dict[str, Any]:
    """By format: its distributions against those of 16-bit weights over 16-bit rows, on pages of the book."""
    models = {
        kind: loaded_model(file_of(kind, options.made), torch.float32, options.tokens + 8) for kind in formats
    }
    exact = models[files.SIXTEEN]
    ids = book_ids(
        options.book, opened(file_of(files.SIXTEEN, options.made)), least=options.windows * options.tokens
    )
    step = (len(ids) - options.tokens - 1) // options.windows
    found = {kind: Apart([]) for kind in formats}
    for start in range(0, step * options.windows, step):
        window = ids[start : start + options.tokens + 1]
        passes = [
            distributions(model, _cache(model, len(window), rows), window)
            for model, rows in ((exact, 16), *((model, kv) for model in models.values()))
        ]
        firsts = range(0, len(window), JUDGED_AT_ONCE)
        for first, (reference, *logs) in zip(firsts, zip(*passes, strict=True), strict=True):
            following = torch.tensor(window[first + 1 : first + 1 + len(reference)])
            for kind, log in zip(formats, logs, strict=True):
                add(found[kind], reference, log, following)
    return {
        kind: {**apart.figures(), "mb": file_of(kind, options.made).stat().st_size / 1e6}
        for kind, apart in found.items()
    }


def _acceptance(kind: str, kv: int, options: argparse.Namespace) -> dict[str, float]:
    """Of the retrieval level by the full cache, along the book's own next words."""
    dtype = torch.bfloat16 if "avx512_bf16" in cpu_flags() else torch.float32
    start = options.context
    model = loaded_model(file_of(kind, options.made), dtype, start + FORCED + 8)
    ids = book_ids(options.book, opened(file_of(kind, options.made)), least=start + FORCED)[: start + FORCED]
    source, watch = _cache(model, start + FORCED + 8, kv), SourceStandIn()
    cache = RetrievalKVCache(source, budget=BUDGET, chunk=CHUNK, tail_tokens=64)
    lane = RetrievalLane(
        cache, RetrievalRefresh(watch, cache, every=REFRESH_EVERY, floor=REFRESH_BELOW), watch
    )
    forced.select_first(model, source, ids[:start], [lane], chunk_tokens=512)
    (sums,) = forced.force(model, source, ids, start, [lane], list(SAMPLINGS.values()), gamma=GAMMA)
    return {name: one.rate for name, one in zip(SAMPLINGS, sums, strict=True)}


def _reading(kind: str, kv: int, options: argparse.Namespace) -> dict[str, float]:
    """The likeliest answers to questions put with the passage that holds the answer: answers that are drawn
    beside it would hide what a format does.
    """
    tales = questions.read_stories(options.reading, "fairytaleqa", "val")
    asked = questions.with_passage(tales, options.questions, seed=0)
    program = Program(EMBEDDED, "autoregressive", folder=opened(file_of(kind, options.made)), kv=kv)
    program.style = replace(program.style, consensus=0)
    rows = [program.of_gold(one) for one in asked if one.kind == "own"]
    found = reading_figures({"gold": rows})
    return {"questions": len(rows), **{name: found[name] for name in ("f1_gold", "refused_own")}}


# ---- what is shown -----------------------------------------------------------------------------------------

COLUMNS = (
    "Weights",
    "KV cache",
    "file, MB",
    "KL to 16 bits, nats",
    "KL p99",
    "same likeliest token",
    "perplexity",
    "acceptance, T 0.6",
    "acceptance, T 0",
    "F1 of answers",
    "refused",
)
NOTES = (
    "The embedded model as it was taught, unrounded, and what llama.cpp's quantiser makes of it, on pages of "
    "a sample book; KL, agreement and perplexity computed in fp32 against 16-bit weights over a 16-bit "
    "cache. Its rows of 576 are no whole blocks of 256, so most of Q4_K_M is Q5_0, of Q5_K_M Q5_1, and of "
    "Q6_K Q8_0. Before it was taught its weights stood on a grid of 4 bits.",
    f"Acceptance: expected accepted over evaluated tokens of drafts of {GAMMA}, by a retrieval cache of "
    f"{BUDGET} tokens in chunks of {CHUNK}, along {FORCED} further tokens of the book, in the numbers of "
    "real use.",
    "Answers: to questions of FairytaleQA's validation stories, each put with the passage that holds its "
    "answer (benchmarks.quality.reading), the likeliest answer; the same questions for all: {questions}.",
)


def format_tables(done: dict[str, Any], formats: Sequence[str]) -> list[Table]:
    """Of the cases that are done."""
    made = [
        Table("Formats of weights and KV cache", COLUMNS, tuple(_costs(done, formats)), _notes(done)),
        llamacpp_agreement.agreement_table(done),
    ]
    return [table for table in made if table.rows]


def _notes(done: dict[str, Any]) -> tuple[str, ...]:
    asked = next((found["questions"] for name, found in done.items() if name.startswith("reading, ")), 0)
    return tuple(note.format(questions=asked) for note in NOTES if asked or "{questions}" not in note)


def _costs(done: dict[str, Any], formats: Sequence[str]) -> Iterator[tuple]:
    for kind, kv in product(formats, KV):
        distribution = done.get(f"distributions, {kv}-bit KV", {}).get(kind)
        accepted = done.get(f"acceptance, {kind}, {kv}-bit KV", {})
        read = done.get(f"reading, {kind}, {kv}-bit KV", {})
        if distribution:
            costs = (distribution[name] for name in ("mb", "kl_mean", "kl_p99", "agreement", "perplexity"))
            answers = read.get("f1_gold"), read.get("refused_own")
            yield (kind, f"{kv} bits", *costs, *(accepted.get(name) for name in SAMPLINGS), *answers)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    resumable.add_resume_options(parser, "formats", minutes=20)
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="of a window")
    parser.add_argument("--context", type=int, default=4096, help="tokens before those that are drafted")
    parser.add_argument("--reading", type=Path, help="a folder with fairytaleqa-val.jsonl")
    parser.add_argument("--questions", type=int, default=80, help="of it, put to each format")
    parser.add_argument("--made", type=Path, help="where the files are made and kept")
    options = parser.parse_args(arguments)
    options.made = options.made or subdir("benchmarks") / "formats"
    return options


if __name__ == "__main__":
    sys.exit(main())
