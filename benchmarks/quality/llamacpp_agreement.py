"""Our distributions beside llama.cpp's from the same file, and what lies between them.

llama.cpp rounds activations to 8 bits before it multiplies them with codes; ours does not. How much that is,
is told by llama.cpp alone: the same weights once more as the 32-bit numbers that their codes stand for leave
it nothing to round for. And our own pass with activations rounded as llama.cpp rounds them (ggml-quants.c and
ggml-cpu/quants.c: 32 by one 16-bit scale, under K-quants 256 by one of 32) is held against both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.lib import gguf_fixtures as files
from benchmarks.lib.embedded import book_ids
from benchmarks.lib.results import Table
from benchmarks.quality.kv_quantization import Apart, add, distributions
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.products import native_products
from core.backend.shared.quantized import SPAN, QuantizedMatrix
from core.cache.full import FullKVCache
from core.hardware.cpu import cpu_flags
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.loader import load_model

CASE = "llama.cpp, {kind}, {shape}"
PAGE = 600  # tokens
TOP = 127  # the highest 8-bit code
COMPUTED = {"ours, fp32": torch.float32, "ours, bf16": torch.bfloat16}
ROUNDING, DECODED = "ours, activations rounded alike", "llama.cpp, weights decoded before"
COLUMNS = ("Weights", "Most matrices", "Rows", "Against", "of", "KL, nats", "KL p99", "same likeliest token")
NOTES = (
    f"KL(against, of) from the same file, {PAGE} tokens of a sample book. llama.cpp rounds activations to 8 "
    "bits where weights are codes, ours does not; F16 has no codes.",
    "Weights decoded before: the same weights as 32-bit numbers, for which llama.cpp rounds nothing. Rounded "
    "alike: activations as llama.cpp rounds them; two such passes differ by their last bits, each code that "
    "this flips is a whole step, and over 30 layers they drift as far apart as from an unrounded one.",
    "Rows of whole blocks: the embedded model in a shape of width 768, in which most matrices have the "
    "format that the file is called by. There llama.cpp rounds 256 activations by one scale, else mostly 32.",
)


class RoundedInputs:
    """x @ weights.T, the activations rounded first as llama.cpp rounds them for this format."""

    def __init__(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None) -> None:
        self._parts, self._bias = [(part.decoded(), _rounding(part)) for part in parts], bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        out = torch.cat([F.linear(rounded(x), weight) for weight, rounded in self._parts], dim=-1)
        return out if self._bias is None else out + self._bias


class RoundingBackend(CpuBackend):
    """Products with codes as llama.cpp computes them."""

    def coded(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None) -> RoundedInputs:
        """See Backend."""
        return RoundedInputs(parts, bias)


def by_32(x: torch.Tensor) -> torch.Tensor:
    """Activations [n, columns] as Q8_0 holds them."""
    groups = x.float().unflatten(-1, (-1, 32))
    largest = groups.abs().amax(-1, keepdim=True)
    codes = (groups * torch.where(largest == 0, 0.0, TOP / largest)).round()
    return (codes * (largest / TOP).half().float()).flatten(-2)


def by_256(x: torch.Tensor) -> torch.Tensor:
    """Activations [n, columns] as Q8_K holds them."""
    groups = x.float().unflatten(-1, (-1, SPAN))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    inverse = torch.where(largest == 0, 0.0, -TOP / largest)
    codes = (groups * inverse).round().clamp(max=TOP)
    return (codes * torch.where(inverse == 0, 0.0, 1 / inverse)).flatten(-2)


def _rounding(part: QuantizedMatrix) -> Any:
    return by_256 if part.scale_steps is not None else by_32


# ---- what is measured --------------------------------------------------------------------------------------


def compare_page(file: Path, book: Path) -> dict[str, Any]:
    """A page's distributions by both programs: (against, of) and what lies between. A file without codes is
    compared as it is.
    """
    ids = book_ids(book, opened(file), least=PAGE)[:PAGE]
    found = {"llama.cpp": of_llama_cpp(file, ids)}
    for name, dtype in COMPUTED.items():
        flags = cpu_flags()
        backend = CpuBackend(dtype, native=native_attention(flags), products=native_products(flags))
        found[name] = _ours(file, ids, backend)
    pairs = [("llama.cpp", name) for name in COMPUTED]
    most = _most(file)
    if most != files.SIXTEEN:
        found[DECODED] = of_llama_cpp(files.decoded_gguf(file), ids)
        found[ROUNDING] = _ours(file, ids, RoundingBackend(torch.float32))
        pairs += [(DECODED, "ours, fp32"), ("llama.cpp", DECODED), ("llama.cpp", ROUNDING)]
    apart = [[*pair, _apart(*(found[name] for name in pair), ids)] for pair in pairs]
    return {"most": most, "pairs": apart}


def _most(file: Path) -> str:
    kinds = [tensor.kind for tensor in read_header(file).tensors.values() if len(tensor.shape) == 2]
    return max(set(kinds), key=kinds.count)


def _ours(file: Path, ids: Sequence[int], backend: CpuBackend) -> torch.Tensor:
    model = load_model(opened(file), backend, positions=len(ids) + 8)
    return torch.cat(
        list(distributions(model, FullKVCache(model.config.kv_shape, len(ids), backend), ids))
    ).float()


def _apart(reference: torch.Tensor, other: torch.Tensor, ids: Sequence[int]) -> dict[str, float]:
    found = Apart([])
    add(found, reference, other, torch.tensor(ids[1:]))
    return found.figures()


def of_llama_cpp(file: Path, ids: Sequence[int]) -> torch.Tensor:
    """Log-probabilities [tokens, vocab] of every token's successor."""
    from llama_cpp import Llama

    threads = torch.get_num_threads()
    given = {"n_threads": threads, "n_threads_batch": threads, "n_gpu_layers": 0, "verbose": False}
    model = Llama(str(file), n_ctx=len(ids) + 8, logits_all=True, **given)
    model.eval(list(ids))
    found = torch.log_softmax(torch.tensor(model.scores[: len(ids)]), -1)
    model.close()
    return found


def agreement_table(done: dict[str, Any]) -> Table:
    """Of the cases that are done."""
    return Table("Beside llama.cpp, the same file", COLUMNS, tuple(_rows(done)), NOTES)


def _rows(done: dict[str, Any]) -> Iterator[tuple]:
    for name, found in done.items():
        if name.startswith("llama.cpp, "):
            _program, kind, shape = name.split(", ")
            rows = "whole blocks" if shape == "whole blocks" else "576"
            for against, of, distribution in found["pairs"]:
                yield (
                    kind,
                    found["most"],
                    rows,
                    against,
                    of,
                    distribution["kl_mean"],
                    distribution["kl_p99"],
                    distribution["agreement"],
                )
