"""Broken loops, one plausible slip each. The suite is worth what it catches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from core.decoding import verify as rule
from core.decoding.decoder import Decoder, Ends
from core.decoding.drafters import ModelDrafter, VerifiedDrafter
from core.decoding.randomness import OwnNumbers, Randomness, SeededRandomness
from core.decoding.verify import Draft, Verdict, verify
from tests.support.toys import ToyCache

LOW = 0.35


# ---- the rule ----------------------------------------------------------------------------------------------


def residual_from_p(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """After a rejection draws from p instead of the residual: the slip of the published code's middle
    level.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rule, "_distribution_behind", lambda accepted, draft, target_probs: target_probs[accepted]
        )
        patch.setattr(
            rule,
            "_distribution_behind_unseen",
            lambda accepted, draft, tokens, target_probs: target_probs[int(accepted)],
        )
        return verify(draft, target_probs, randomness, **more)


def rows_off_by_one(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """Judges token i by the target's law of token i - 1."""
    return verify(draft, torch.cat([target_probs[:1], target_probs[:-1]]), randomness, **more)


def bonus_from_last_draft_row(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """Draws the bonus token from the row before the last."""
    rows = target_probs.clone()
    rows[-1] = rows[max(0, len(rows) - 2)]
    return verify(draft, rows, randomness, **more)


def improbable_tokens_accepted(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """Accepts with at least 30%, also what the target gives probability zero."""
    return verify(draft, target_probs, _Lenient(randomness, 0.3), **more)


def everything_accepted(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """Trusts the draft."""
    return verify(draft, target_probs, _Lenient(randomness, 1.0), **more)


def bonus_dropped(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, **more: torch.Tensor | None
) -> Verdict:
    """Emits no token of its own when all are accepted."""
    verdict = verify(draft, target_probs, randomness, **more)
    if draft.tokens and verdict.accepted == len(draft.tokens):
        return Verdict(verdict.accepted - 1, verdict.evaluated, draft.tokens[-1])
    return verdict


class _Lenient(OwnNumbers):
    """A randomness that accepts with at least `least`."""

    def __init__(self, inner: Randomness, least: float) -> None:
        self._inner, self._least = inner, least

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        return self._inner.first_rejection(accept_probs.clamp(min=self._least))

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        return self._inner.draw(probs)


class AcceptsAtEquality(SeededRandomness):
    """Rejects only when u > p/q: u = 0 lets a token of probability zero pass."""

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        u = self._uniform(len(accept_probs), accept_probs.device)
        return (u <= accept_probs).long().cumprod(0).sum(0, keepdim=True)


# ---- the drafters ------------------------------------------------------------------------------------------


def _flattened(draft: Draft) -> Draft:
    return (
        draft
        if draft.probs is None
        else replace(draft, probs=(draft.probs + 1.0 / draft.probs.shape[-1]) / 2)
    )


def _without_doubtful_end(draft: Draft) -> Draft:
    if not draft.tokens or draft.probs is None or float(draft.probs[-1, draft.tokens[-1]]) >= LOW:
        return draft
    return replace(draft, tokens=draft.tokens[:-1], probs=draft.probs[:-1], levels=draft.levels[:-1])


class ReportsAnotherLaw(ModelDrafter):
    """Level 0 reports a flatter law than the one it drew from."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        return _flattened(super().propose(committed, gamma))


class MiddleReportsAnotherLaw(VerifiedDrafter):
    """The middle level reports a flatter law than the one its tokens follow."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        return _flattened(super().propose(committed, gamma))


class DropsDoubtful(ModelDrafter):
    """Level 0 does not submit a drawn token of low q."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        return _without_doubtful_end(super().propose(committed, gamma))


class MiddleDropsDoubtful(VerifiedDrafter):
    """The middle level does not submit a drawn token of low q."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        return _without_doubtful_end(super().propose(committed, gamma))


class MiddlePeeks(VerifiedDrafter):
    """Ends the draft before a token that the target will not like."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        draft = super().propose(committed, gamma)
        if not draft.tokens:
            return draft
        row = torch.tensor(self._model.row((*committed, *draft.tokens[:-1])), dtype=torch.float64)
        if float(torch.softmax(row, -1)[draft.tokens[-1]]) >= LOW:
            return draft
        return replace(draft, tokens=draft.tokens[:-1], probs=draft.probs[:-1], levels=draft.levels[:-1])


class LosesLastToken(ModelDrafter):
    """The row of the last accepted token is not the token's."""

    def commit(self, length: int) -> None:
        super().commit(length)
        if self._cache.rows:
            self._cache.rows[-1] = (self._cache.rows[-1] + 1) % 3


# ---- the end of an answer ----------------------------------------------------------------------------------


class EndsBetweenRounds(Decoder):
    """Looks for the end of the answer at the end of a block only."""

    def _end(self, tokens: Sequence[int], ends: Ends) -> tuple[int, bool]:
        said = [token in self.eos_ids or ends(token) for token in tokens]
        return len(tokens), said[-1]


class SpeaksOn(Decoder):
    """Notices the end inside a block and emits the rest of the block all the same."""

    def _end(self, tokens: Sequence[int], ends: Ends) -> tuple[int, bool]:
        return len(tokens), super()._end(tokens, ends)[1]


# ---- the full cache ----------------------------------------------------------------------------------------


class RollsBackOneShort(ToyCache):
    """The first rejected token's row stays where the last accepted one's was."""

    def commit(self, length: int) -> None:
        if self.length > length > 0:
            self.rows[length - 1] = self.rows[length]
        super().commit(length)
