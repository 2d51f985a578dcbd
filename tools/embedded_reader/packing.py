"""Lessons as ids, in the order in which they are learned: every kind by its share of the tokens. A function
of data, recipe and tokenizer alone, so an interrupted run goes on as it began.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.text.tokenizer import Tokenizer
from tools.embedded_reader.lessons import Branch, Lesson
from tools.embedded_reader.network import Packed

SHARES = {"facts": 0.80, "summaries": 0.05, "stories": 0.02, "chat": 0.04, "bare": 0.09}
# of one id of an answer: there are many more ids in a summary than in a fact, and a refusal that weighs as
# much as an answer is given to one in four of the questions that can be answered
WEIGHTS = {"fact": 1.0, "foreign": 0.45, "summary": 0.4, "story": 0.4, "chat": 0.3, "bare": 0.12}


class Packer:
    """Lessons as ids, exactly as a conversation lays them out (core.text.prompt)."""

    def __init__(
        self, tokenizer: Tokenizer, style: ReadingStyle, *, longest: int, refusals: float = WEIGHTS["foreign"]
    ) -> None:
        """`refusals`: what an id of one weighs."""
        self._tokenizer, self._frame, self._longest = tokenizer, tokenizer.frame(style.system), longest
        self._weights = {**WEIGHTS, "foreign": refusals}

    def packed(self, lesson: Lesson) -> Packed | None:
        """The lesson, less the branches that find no room; None where none does."""
        encode = self._tokenizer.encode
        bare = all(branch.kind == "bare" for branch in lesson.branches)
        head = [] if bare else list(self._frame.opening)
        head += encode(lesson.text + "\n\n") if lesson.text else []
        ids, weights, lengths = list(head), [0.0] * len(head), []
        for branch in lesson.branches:
            asked, answer = self._branch(branch)
            if len(ids) + len(asked) + len(answer) > self._longest:
                continue
            ids += [*asked, *answer]
            weights += [0.0] * len(asked) + [self._weights[branch.kind]] * len(answer)
            lengths.append(len(asked) + len(answer))
        if not lengths:
            return None
        if not head:
            weights[0] = 0.0  # nothing stands before it
        return Packed(torch.tensor(ids), len(head), tuple(lengths), torch.tensor(weights))

    def _branch(self, branch: Branch) -> tuple[list[int], list[int]]:
        answer = self._tokenizer.encode(branch.answer)
        if branch.kind == "bare":
            return [], answer
        end = [self._frame.bridge[0]] if branch.whole else []
        return [*self._tokenizer.encode(branch.asked), *self._frame.ask], [*answer, *end]


def mixed(
    sources: Mapping[str, Callable[[int], Sequence[Lesson]]],
    packer: Packer,
    *,
    seed: int,
    shares: Mapping[str, float] = SHARES,
) -> Iterator[Packed]:
    """Lessons without end, the kind that is most behind its share next. `sources` give a kind's lessons of
    one turn; every turn is in another order. Raises UserError where no lesson of a kind has room.
    """
    streams = {kind: _turns(kind, source, packer, seed) for kind, source in sources.items()}
    total = sum(shares[kind] for kind in streams)
    done = dict.fromkeys(streams, 0.0)
    while True:
        kind = min(streams, key=lambda name: done[name] / (shares[name] / total))
        packed = next(streams[kind])
        done[kind] += len(packed.ids)
        yield packed


def skipped(lessons: Iterator[Packed], tokens: int) -> Iterator[Packed]:
    """The lessons behind the first so many tokens."""
    while tokens > 0:
        tokens -= len(next(lessons).ids)
    return lessons


def optimiser_steps(lessons: Iterator[Packed], tokens: int) -> Iterator[list[Packed]]:
    """The lessons of each optimiser step: at least so many tokens."""
    while True:
        held, count = [], 0
        while count < tokens:
            held.append(next(lessons))
            count += len(held[-1].ids)
        yield held


def _turns(
    kind: str, source: Callable[[int], Sequence[Lesson]], packer: Packer, seed: int
) -> Iterator[Packed]:
    turn = 0
    while True:
        lessons = list(source(turn))
        random.Random(f"{seed}/{kind}/{turn}").shuffle(lessons)
        found = 0
        for lesson in lessons:
            if (packed := packer.packed(lesson)) is not None:
                found += 1
                yield packed
        if not found:
            said = "None of the {count} lessons of the kind {kind} has room. Name other data."
            raise UserError(said.format(count=len(lessons), kind=kind))
        turn += 1
