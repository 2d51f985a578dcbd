"""The true loop over real weights, thousands of rounds a minute: at a fixed page the laws of all levels are
constants, computed once.

The caches of the loop hold ids; their logits come from real caches of the same contents: the full one, a
starved retrieval cache and a streaming cache of a few tokens, each with the real model. Only the first token
that a round emits is judged. Rows further on decide later tokens alone, so they are not computed: the last
row known stands in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.assembly.composition import streaming_cache
from core.cache.base import KVCache
from core.cache.layered_retrieval import retrieval_over
from core.decoding.decoder import Decoder
from core.decoding.draft_length import FixedLength
from core.decoding.drafters import ModelDrafter, VerifiedDrafter
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel
from tests.support.by_definition import KeptRows
from tests.support.tiny import whole_cache
from tests.support.toys import ToyPrivate

LEAST_EXPECTED = 5.0  # per cell of the chi-square; rarer tokens share one


class PageCache(ToyPrivate):
    """Ids of a page but its newest token, and the logits [vocab] of the level that reads it."""

    def __init__(self, page: Sequence[int], logits: torch.Tensor) -> None:
        super().__init__()
        self.rows, self.logits = list(page[:-1]), logits
        self.committed = len(self.rows)


class PageModel:
    """Gives the page's row for every token that follows it."""

    def forward(self, ids: Sequence[int], cache: PageCache) -> torch.Tensor:
        cache.feed(ids)
        return cache.logits.expand(len(ids), -1)


class RowSampling:
    """The production law of each level's row, computed once. Without a penalty it does not depend on the
    tokens before.
    """

    def __init__(self, temperature: float, top_p: float) -> None:
        self._sampling = Sampling(temperature, top_p)
        # by address; the logits are kept with their law
        self._laws: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def probs(
        self, logits: torch.Tensor, history: Sequence[int], drafted: Sequence[int] = ()
    ) -> torch.Tensor:
        """See Sampling."""
        if logits.data_ptr() not in self._laws:
            self._laws[logits.data_ptr()] = (logits, self._sampling.probs(logits[:1], history))
        return self._laws[logits.data_ptr()][1].expand(len(logits), -1)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, its next-token logits [vocab] at each level, and the rows that the full cache has kept."""

    ids: tuple[int, ...]
    full: torch.Tensor
    retrieval: torch.Tensor
    draft: torch.Tensor
    kept: KeptRows

    def round(self, sampling: RowSampling, randomness: SeededRandomness) -> tuple[int, bool, bool]:
        """(first token, whether it came from the residual, whether the middle level's first token came from
        its residual).
        """
        model = PageModel()
        light = ModelDrafter(model, PageCache(self.ids, self.draft), sampling, randomness)
        middle = VerifiedDrafter(
            light,
            model,
            PageCache(self.ids, self.retrieval),
            sampling,
            randomness,
            gamma=1,
            length=FixedLength(),
        )
        decoder = Decoder(middle, model, PageCache(self.ids, self.full), sampling, randomness, gamma=1)
        result = decoder.round(self.ids, most=2)
        return (
            result.tokens[0],
            result.acceptance_retrieval.accepted == 0,
            result.acceptance_draft.accepted == 0,
        )


def read_page(
    model: LlamaModel, ids: Sequence[int], *, budget: int, window: int, rows: torch.dtype | None = None
) -> Page:
    """The logits after `ids`, with `budget` tokens in the retrieval cache and `window` in the draft's; the
    full cache keeps `rows`.
    """
    *known, newest = ids
    with torch.inference_mode():
        full = whole_cache(model, len(ids) + 8, dtype=rows)
        retrieval = retrieval_over(full, budget=budget, chunk=budget, recent=1, tail_tokens=8, slack=8)
        streaming = streaming_cache(model, sinks=1, window=window, slack=8)
        model.forward(known[:-4], full)
        full.observer = retrieval.policy.observe
        model.forward(known[-4:], full)
        full.observer = None
        full.commit(len(known))
        assert retrieval.refresh()
        for piece in streaming.missing(len(known)):
            model.drafting.forward(known[piece.start : piece.stop], streaming)
            streaming.commit(streaming.length)
        model.drafting.forward(known[streaming.length :], streaming)
        streaming.commit(len(known))
        laws = (model, full), (model.drafting, retrieval), (model.drafting, streaming)
        logits = [_row(level, newest, cache) for level, cache in laws]
        kept = [full.rows(layer, 0, len(ids)) for layer in range(full.shape.layers)]
        return Page(tuple(ids), *logits, kept)


def _row(model: LlamaModel, newest: int, cache: KVCache) -> torch.Tensor:
    return model.forward([newest], cache)[-1].clone()


@dataclass(frozen=True, slots=True)
class Sample:
    """What many rounds after some pages gave."""

    statistic: float  # chi-square of the first tokens against the exact laws
    freedom: int
    rounds: int
    residual: float  # share of first tokens from the target's residual
    middle_residual: float  # share of the middle level's first tokens from its residual


def sample(
    pages: Sequence[Page], laws: Sequence[torch.Tensor], sampling: RowSampling, *, rounds: int, seed: int
) -> Sample:
    """`rounds` rounds after each page; `laws` [vocab] fp64 are the exact ones."""
    randomness = SeededRandomness(seed)
    statistic, freedom, outer, middle = 0.0, 0, 0, 0
    for page, law in zip(pages, laws, strict=True):
        counts = torch.zeros_like(law)
        with torch.inference_mode():
            for _ in range(rounds):
                token, from_residual, from_middle_residual = page.round(sampling, randomness)
                counts[token] += 1
                outer += from_residual
                middle += from_middle_residual
        found, cells = chi_square(counts, law)
        statistic, freedom = statistic + found, freedom + cells - 1
    n = rounds * len(pages)
    return Sample(statistic, freedom, n, outer / n, middle / n)


def chi_square(counts: torch.Tensor, law: torch.Tensor) -> tuple[float, int]:
    """(statistic, cells) of counts [vocab] against a law: tokens expected often enough have a cell each, the
    others one together.
    """
    assert float(counts[law == 0].sum()) == 0, "a token of probability zero was emitted"
    expected = law * counts.sum()
    often = expected >= LEAST_EXPECTED
    seen = torch.cat((counts[often], counts[~often].sum().view(1)))
    wanted = torch.cat((expected[often], expected[~often].sum().view(1)))
    seen, wanted = (seen, wanted) if float(wanted[-1]) >= LEAST_EXPECTED else (_joined(seen), _joined(wanted))
    return float(((seen - wanted) ** 2 / wanted).sum()), len(seen)


def _joined(cells: torch.Tensor) -> torch.Tensor:
    """A last cell that is expected too rarely goes with the one before it."""
    return torch.cat((cells[:-2], cells[-2:].sum().view(1)))


def limit(freedom: int, false_alarm: float) -> float:
    """The chi-square that `freedom` degrees of freedom exceed with probability `false_alarm`."""
    low, high = 0.0, 100.0 + 10.0 * freedom
    for _ in range(80):
        middle = (low + high) / 2
        tail = float(
            torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), torch.tensor(middle / 2))
        )
        low, high = (middle, high) if tail > false_alarm else (low, middle)
    return high


def exact_law(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The law [vocab] fp64 of logits [vocab], by the definition: it shares no line with
    core.decoding.sampling.
    """
    law = torch.softmax(logits.double() / temperature, -1)
    ordered, index = law.sort(descending=True)
    kept = ordered * (ordered.cumsum(0) - ordered < top_p)
    return torch.zeros_like(law).scatter_(0, index, kept) / kept.sum()
