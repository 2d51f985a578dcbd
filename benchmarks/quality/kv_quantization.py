"""What 8-bit rows of the KV cache cost a model: its distributions, its perplexity, and what it finds again in
a long text.

    python -m benchmarks.kv_quantization [--book FILE] [--windows 4] [--tokens 1024] [--recall 8192] [--save
    kv]

Everything is computed in fp32, and only the rows of the cache differ. A window of the book is read in one
pass, in which every token attends to rows as the cache keeps them, its own among them; its distributions are
compared with those over fp32 rows. Where a factor for every 32 numbers is compared, the rows are rounded that
way and kept in fp32. Key biases are planted behind the rotation, where they leave every distribution as it
was: whatever differs is the rows'.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.lib.embedded import BOOK, book_ids
from benchmarks.lib.results import Table, save_result
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.cache.full import FullKVCache
from core.hardware.cpu import cpu_flags
from core.model.llama import LlamaModel
from core.model.loader import load_model
from core.model.store.embedded import ensure_embedded

GROUP = 32
BIASES = (10.0, 100.0)  # in the two slowest dimensions of every head
NEEDLES, NEEDLE, LEAD = 8, 48, 16  # passages of random tokens, their length, tokens of it that are given
JUDGED_AT_ONCE = 256  # rows of logits


class Rounded(FullKVCache):
    """Rows of fp32 that were rounded to 8 bits with a factor for every `group` numbers."""

    def __init__(self, *given: object, group: int, **named: object) -> None:
        super().__init__(*given, **named)
        self._group = group

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        return super().attend(layer, q, self._rounded(k), self._rounded(v), offset=offset)

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.unflatten(-1, (-1, self._group))
        factor = groups.abs().amax(-1, keepdim=True) / 127
        return (groups / factor).round().mul(factor).flatten(-2)


@dataclass(frozen=True, slots=True)
class Format:
    """How rows are kept."""

    name: str
    make: Callable[..., FullKVCache]


FORMATS = (
    Format("16 bits (bfloat16)", partial(FullKVCache, dtype=torch.bfloat16)),
    Format("8 bits, a factor per row", partial(FullKVCache, dtype=torch.int8)),
    Format("8 bits, a factor per 32", partial(Rounded, group=GROUP, dtype=torch.float32)),
)
EXACT = Format("fp32", partial(FullKVCache, dtype=torch.float32))


def plant(cache: FullKVCache, size: float) -> FullKVCache:
    """Keys get a constant, of either sign, in the two dimensions that turn slowest: every distribution stays
    as it was.
    """
    attend, head_dim = cache.attend, cache.shape.head_dim
    bias = torch.zeros(head_dim)
    bias[head_dim // 2 - 1], bias[-1] = size, -size
    cache.attend = lambda layer, q, k, v, *, offset=0: attend(layer, q, k + bias, v, offset=offset)
    return cache


# ---- distributions ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Apart:
    """What was seen between the distributions over two kinds of rows: per token, in nats."""

    kl: list[float]
    agree: int = 0
    surprise: float = 0.0  # of the book's own next tokens

    def figures(self) -> dict[str, float]:
        """KL's mean and 99th percentile, the share of tokens with one likeliest continuation, perplexity."""
        ordered, n = sorted(self.kl), len(self.kl)
        return {
            "tokens": n,
            "kl_mean": sum(ordered) / n,
            "kl_p99": ordered[min(n - 1, int(0.99 * n))],
            "agreement": self.agree / n,
            "perplexity": math.exp(self.surprise / n),
        }


def distributions(model: LlamaModel, cache: FullKVCache, ids: Sequence[int]) -> Iterator[torch.Tensor]:
    """Log-probabilities [rows, vocab] of every token's successor, some rows at a time."""
    for start in range(0, len(ids), JUDGED_AT_ONCE):
        yield torch.log_softmax(model.forward(list(ids[start : start + JUDGED_AT_ONCE]), cache), -1)


def compare_formats(model: LlamaModel, windows: Sequence[Sequence[int]], bias: float) -> dict[str, Apart]:
    """Every format against fp32 rows, read side by side."""
    found = {one.name: Apart([]) for one in (EXACT, *FORMATS)}
    for ids in windows:
        passes = [
            distributions(model, plant(one.make(model.config.kv_shape, len(ids), model.backend), bias), ids)
            for one in (EXACT, *FORMATS)
        ]
        for first, logs in zip(range(0, len(ids), JUDGED_AT_ONCE), zip(*passes, strict=True), strict=True):
            following = torch.tensor(ids[first + 1 : first + 1 + len(logs[0])])
            for name, log in zip(found, logs, strict=True):
                add(found[name], logs[0], log, following)
    return found


def add(apart: Apart, exact: torch.Tensor, log: torch.Tensor, following: torch.Tensor) -> None:
    """Log-probabilities [n, vocab] over fp32 rows and over others; the book's next tokens [n or n - 1]."""
    n = len(following)
    apart.kl += (exact.exp() * (exact - log)).sum(-1)[:n].clamp(min=0).tolist()
    apart.agree += int((exact.argmax(-1) == log.argmax(-1))[:n].sum())
    apart.surprise -= float(log[:n].gather(1, following.unsqueeze(1)).sum())


# ---- what is found again -----------------------------------------------------------------------------------


def recall(
    model: LlamaModel, kept: Format, ids: Sequence[int], needles: Sequence[Sequence[int]]
) -> list[float]:
    """Of each passage that stands somewhere in `ids` the share of tokens that are the likeliest ones when it
    is begun again at the end.
    """
    cache = kept.make(model.config.kv_shape, len(ids) + NEEDLE, model.backend)
    for _ in model.prefill(
        list(ids), cache, segment_tokens=2048, chunk_tokens=1024, should_stop=lambda: False
    ):
        pass
    found = []
    for needle in needles:
        said = model.forward(list(needle[:-1]), cache).argmax(-1)[LEAD - 1 :]
        found.append(float((said == torch.tensor(needle[LEAD:])).float().mean()))
        cache.rollback(len(ids))
    return found


def haystack(ids: Sequence[int], tokens: int) -> tuple[list[int], list[list[int]]]:
    """A book's first tokens, with passages of its own words in no order at even distances; and these."""
    dice = torch.Generator().manual_seed(0)
    words = sorted(set(ids))
    needles = [
        [words[int(at)] for at in torch.randint(0, len(words), (NEEDLE,), generator=dice)]
        for _ in range(NEEDLES)
    ]
    room = tokens - NEEDLES * NEEDLE
    step, text = room // NEEDLES, []
    for number, needle in enumerate(needles):
        text += [*needle, *ids[number * step : (number + 1) * step]]
    return text, needles


# ---- the run -----------------------------------------------------------------------------------------------


def main() -> int:
    """Measures, prints and saves."""
    options = _arguments()
    folder = ensure_embedded()
    ids = book_ids(options.book, folder, least=options.windows * options.tokens)
    backend = CpuBackend(torch.float32, native=native_attention(cpu_flags()))
    model = load_model(folder, backend, positions=max(options.tokens, options.recall) + NEEDLE)
    step = (len(ids) - options.tokens - 1) // options.windows
    windows = [ids[at : at + options.tokens + 1] for at in range(0, step * options.windows, step)]
    with torch.inference_mode():
        tables = [_distributions_table(model, windows)]
        if options.recall:
            tables.append(_recall_table(model, *haystack(ids, options.recall)))
    for table in tables:
        print(table.title, *table.rows, sep="\n", flush=True)
    if options.save:
        save_result(options.save, tables, {"windows": len(windows), "tokens": options.tokens})
    return 0


def _distributions_table(model: LlamaModel, windows: Sequence[Sequence[int]]) -> Table:
    rows = []
    for bias in (0.0, *BIASES):
        for name, apart in compare_formats(model, windows if not bias else windows[:1], bias).items():
            rows.append((name, bias, *apart.figures().values()))
            print(rows[-1], flush=True)
    return Table("Rows of the KV cache: distributions", COLUMNS, tuple(rows), NOTES)


def _recall_table(model: LlamaModel, text: Sequence[int], needles: Sequence[Sequence[int]]) -> Table:
    rows = []
    for kept in (EXACT, *FORMATS[:2]):
        found = recall(model, kept, text, needles)
        rows.append((kept.name, len(text), sum(found) / len(found), min(found)))
        print(rows[-1], flush=True)
    return Table("Rows of the KV cache: what is found again", RECALL_COLUMNS, tuple(rows), RECALL_NOTES)


COLUMNS = (
    "Rows",
    "planted key bias",
    "tokens",
    "KL to fp32 rows, nats",
    "KL p99",
    "same likeliest token",
    "perplexity",
)
NOTES = (
    "Of the embedded model, computed in fp32, on pages of a sample book. Every token attends to rows as the "
    "cache keeps them, its own among them.",
    "A planted bias is a constant in two dimensions of every key, behind the rotation: over exact rows it "
    "changes no distribution. It takes the codes' steps away from all other dimensions that share a factor "
    "with it.",
)
RECALL_COLUMNS = ("Rows", "tokens", "tokens recalled", "worst passage")
RECALL_NOTES = (
    f"{NEEDLES} passages of {NEEDLE} tokens in no order stand at even distances in a book; each is begun "
    f"again at the end with its first {LEAD} tokens, and the likeliest next token is compared with the "
    "passage's, one by one.",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1024, help="of a window")
    parser.add_argument("--recall", type=int, default=8064, help="tokens of the text with passages; 0: none")
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
