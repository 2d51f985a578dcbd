"""What the target is given to read and to answer: passages of the texts, bare or in the frame of a
conversation. No torch.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.conversation.reading import ReadingStyle
from core.documents import read_document
from core.errors import UserError
from core.text.prompt import build_prompt
from core.text.tokenizer import Tokenizer
from core.text.words import translated as _

log = logging.getLogger(__name__)

TEMPERATURES = (0.0, 0.6, 1.0)  # at which the target writes
BARE = 3  # every third passage stands alone and is written on
_REQUESTS = 0.5  # of the conversations begin with a request for a summary
_SEEN_OFTEN = 2  # a token met only once says little of other books
QUESTIONS = (
    "Who are the people in this passage, and what does each of them do?",
    "Where does this take place? Describe the place.",
    "What happens in this passage?",
    "Why do they do what they do?",
    "What is the most important sentence of this passage, and why?",
    "What might happen next?",
    "How does the main character feel, and how do we know?",
    "Tell this passage again in simple words for a child.",
    "List the main events in order.",
    "What does the author want to say here?",
    "Who is speaking, and to whom?",
    "What do we learn about the past of these people?",
)


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """One row for the target: `ids` to read, then it writes at `temperature`. `follow_ups` are fed, in turn,
    when an answer ends.
    """

    ids: tuple[int, ...]
    temperature: float
    repetition_penalty: float
    # empty: no conversation, the text goes on without an end
    follow_ups: tuple[tuple[int, ...], ...] = ()


def read_texts(sources: Sequence[Path], tokenizer: Tokenizer) -> list[list[int]]:
    """The token ids of every book named or found in folders named. Raises UserError when there is none."""
    files = [
        file
        for source in sources
        for file in (sorted(source.rglob("*")) if source.is_dir() else [source])
        if file.is_file()
    ]
    texts = []
    for file in files:
        try:
            texts.append(tokenizer.encode(read_document(file).text))
        except UserError as error:
            log.warning("%s is left out: %s", file.name, error)
    texts = [ids for ids in texts if ids]
    if not texts:
        said = _("No text was found in {sources}. Name files or a folder with books to train on.")
        raise UserError(said.format(sources=", ".join(map(str, sources))))
    return texts


def frequent_tokens(
    texts: Sequence[Sequence[int]], always: Sequence[int], *, size: int, vocab: int
) -> list[int]:
    """`size` token ids in rising order: `always`, those met repeatedly, the most frequent first, then the
    lowest ids.

    A byte-pair vocabulary is numbered in the order of its merges, so low ids are frequent in the tokenizer's
    own corpus.
    """
    counts = Counter(token for ids in texts for token in ids)
    repeated = [token for token, count in counts.most_common() if count >= _SEEN_OFTEN]
    ordered = dict.fromkeys([*sorted(set(always)), *repeated, *range(vocab)])
    return sorted(list(ordered)[: min(size, vocab)])


class Prompts:
    """The prompts of shard 0, 1, 2 ...: a function of texts, seed and number alone, so an interrupted run
    goes on as it began.
    """

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        tokenizer: Tokenizer,
        style: ReadingStyle,
        *,
        tokens: int,
        rows: int,
        seed: int,
    ) -> None:
        self._frame, self._style = tokenizer.frame(style.system), style
        self._gap = tokenizer.encode("\n\n")
        self._requests = [tokenizer.encode(text) for text in style.part_prompts]
        self._questions = [
            tokenizer.encode(style.answer_prompt.format(question=question)) for question in QUESTIONS
        ]
        self._tokens, self._rows, self._seed = tokens, rows, seed
        self._passages = [
            ids[start : start + tokens] for ids in texts for start in range(0, len(ids) - tokens + 1, tokens)
        ]
        if len(self._passages) <= rows:
            said = _(
                "The texts are too short to train on: {found} passages of {tokens} tokens, {needed} are "
                "needed. Name more or longer ones."
            )
            raise UserError(said.format(found=len(self._passages), tokens=f"{tokens:,}", needed=rows + 1))
        random.Random(f"{seed}/passages").shuffle(self._passages)

    def control_ids(self) -> list[int]:
        """Every token of the conversation's frame and of the questions."""
        frame = self._frame
        return [
            *frame.opening,
            *frame.ask,
            *frame.bridge,
            *self._gap,
            *(t for ids in (*self._requests, *self._questions) for t in ids),
        ]

    def of_shard(self, number: int) -> list[TrainingPrompt]:
        """The rows of one shard. The passages of shard 0 are in no other: it is for judging."""
        if number == 0:
            return [self._prompt(index, self._passages[index]) for index in range(self._rows)]
        first = (number - 1) * self._rows
        return [
            self._prompt(index + self._rows, self._passage(index))
            for index in range(first, first + self._rows)
        ]

    def _passage(self, index: int) -> list[int]:
        """The texts in another order each time they are gone through, without the passages of shard 0."""
        passages = self._passages[self._rows :]
        turn, place = divmod(index, len(passages))
        order = list(range(len(passages)))
        random.Random(f"{self._seed}/passages/{turn}").shuffle(order)
        return passages[order[place]]

    def _prompt(self, index: int, passage: list[int]) -> TrainingPrompt:
        dice = random.Random(f"{self._seed}/prompt/{index}")
        if index % BARE == BARE - 1:
            return TrainingPrompt(tuple(passage), dice.choice(TEMPERATURES[1:]), 1.0)
        questions = dice.sample(self._questions, len(self._questions))
        if dice.random() < _REQUESTS:
            questions = [dice.choice(self._requests), *questions]
        fixed = len(build_prompt(self._frame, self._gap, (), questions[0], room=self._tokens).ids)
        head = [*passage[: self._tokens - fixed], *self._gap]
        ids = build_prompt(self._frame, head, (), questions[0], room=self._tokens).ids
        later = tuple((*self._frame.bridge, *question, *self._frame.ask) for question in questions[1:])
        return TrainingPrompt(tuple(ids), dice.choice(TEMPERATURES), self._style.repetition_penalty, later)
