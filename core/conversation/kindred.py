"""Words that mean much the same, by a model's own input embeddings: a question asks who preaches, the book
has a sermon.

Words that a model has met in like places have rows that point the same way, so a passage is found that uses
another word for it (a translation model for ranking, with word embeddings: Ganguly et al. 2015,
https://doi.org/10.1145/2766462.2767780). No pass of the model is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch

from core.text.ranking import Kin, terms

_LEAST = 0.35  # the cosine from which words are kin
_MOST = 5  # kin of one word
_FOR_MEAN = 4096  # words of the vocabulary
_SPACE = ("\u0120", "\u2581")  # a token that begins a word begins with one of these


class Kindred:
    """`tokens` by their ids, and the rows [n, hidden] that a model gives ids. Only words that are one token
    have kin: a part of a word means nothing by itself.
    """

    def __init__(self, tokens: Callable[[], Mapping[int, str]], rows: Callable[[list[int]], torch.Tensor]):
        self._tokens, self._given = tokens, rows

    def __call__(self, asked: Sequence[str], among: Sequence[str]) -> Kin:
        """Of each term in `asked` the terms `among` these that mean much the same, the nearest first."""
        asked, among = ([one for one in held if one in self._ids] for held in (dict.fromkeys(asked), among))
        if not asked or not among:
            return {}
        near = self._rows(asked) @ self._rows(among).T
        likeness, places = near.topk(min(_MOST + 1, len(among)))  # it is its own nearest
        found = {}
        for term, row, order in zip(asked, likeness.tolist(), places.tolist(), strict=True):
            kin = [(among[place], cosine) for cosine, place in zip(row, order, strict=True)]
            found[term] = [one for one in kin if one[0] != term and one[1] > _LEAST][:_MOST]
        return found

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        """Tokens that are words, by the term that they count as."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, token in sorted(self._tokens().items()):
            word = token[1:]
            if token.startswith(_SPACE) and len(word) > 2 and word.isascii() and word.isalpha():
                for term in terms(word):
                    found[term].append(number)
        return dict(found)

    @cached_property
    def _mean(self) -> torch.Tensor:
        """What all words have in common says nothing of any."""
        every = [number for numbers in self._ids.values() for number in numbers]
        return self._given(every[:: -(-len(every) // _FOR_MEAN)]).float().mean(0)

    def _rows(self, held: Sequence[str]) -> torch.Tensor:
        """Unit vectors of terms: [n, hidden]; of one with several forms, between them."""
        ids = [number for term in held for number in self._ids[term]]
        counts = torch.tensor([len(self._ids[term]) for term in held])
        rows = torch.nn.functional.normalize(self._given(ids).float() - self._mean, dim=-1)
        ends = torch.repeat_interleave(torch.arange(len(held)), counts).to(rows.device)
        total = rows.new_zeros(len(held), rows.shape[-1]).index_add_(0, ends, rows)
        return torch.nn.functional.normalize(total, dim=-1)
