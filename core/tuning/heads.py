"""Finds the attention heads of a model that look where an answer stands. No labels: sentences that nobody
wrote are planted in a book's text and asked for, and a head is as good as it is often at the right place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.cache.query_recorder import AttentionHead, QueryRecorder
from core.conversation.asking import asked_of_text
from core.conversation.reading import ReadingStyle
from core.decoding.context import Context
from core.engine import Engine
from core.events import Progress
from core.request import Params
from core.text.tokenizer import Tokenizer
from core.text.words import translated as _

MOST_HEADS = 5
_ONE = Params(max_new_tokens=1, temperature=0.0, mode="autoregressive")
LEAST_FOUND = 0.5  # of the questions, by a head that is kept,
NEAR_BEST = 0.9  # and of what the best one finds
READS = 4  # texts, each with a sentence in every section
SECTIONS = 14
SECTION_TOKENS = 220
# what is planted, and what is asked
PLANTS = (
    ("{name} keeps {count} {thing} in the cellar of the old mill.", "What does {name} keep in the cellar?"),
    ("The dog of {name} is called {other}.", "What is the dog of {name} called?"),
    (
        "{name} paid {count} shillings for a box of {thing}.",
        "How much did {name} pay for the box of {thing}?",
    ),
    ("Every Sunday {name} walks to the chapel with {other}.", "With whom does {name} walk to the chapel?"),
)
NAMES = (
    *("Albrecht", "Brunhild", "Cosima", "Dagobert", "Emmeline", "Ferdinand", "Griselda"),
    *("Hildegard", "Ignatius", "Josephine", "Kasimir", "Leocadia", "Montague", "Nepomuk"),
)
OTHERS = ("Tobias", "Ursula", "Valerian", "Wilhelmina", "Xaver", "Yolanda", "Zacharias")
THINGS = ("candles", "ropes", "melons", "lanterns", "saddles", "kettles", "violins")


@dataclass(frozen=True, slots=True)
class RankedHeads:
    """The heads that are kept, the best first, and of how many questions each found the sentence."""

    heads: tuple[AttentionHead, ...]
    right: tuple[int, ...]
    questions: int


def find_heads(
    engine: Engine,
    tokenizer: Tokenizer,
    style: ReadingStyle,
    text: str,
    *,
    report: Progress = lambda stage, share: None,
    sections: int = SECTIONS,
    section_tokens: int = SECTION_TOKENS,
) -> RankedHeads:
    """Reads `text` in READS stretches and asks for what was planted in each section. None is kept where no
    head finds half of it, or the text is too short.
    """
    config = engine.model.config
    layers = config.kv_shape.seeing_all
    heads = [AttentionHead(layer, head) for layer in layers for head in range(config.heads)]
    looking = QueryRecorder(heads, group=config.heads // config.kv_heads)
    right, asked = torch.zeros(len(heads), dtype=torch.long), 0
    for number, paragraphs in enumerate(_stretches(tokenizer, text, sections * section_tokens)):
        read = _Read(tokenizer, style, paragraphs, number, sections)
        context = engine.new_context(len(read.ids) + read.longest + 1)
        for at, question in enumerate(read.questions):
            masses = _masses(engine, context, looking, read, question)
            right += (masses.argmax(1) == at).long()
            asked += 1
            report(_("Where the model looks"), (number + at / sections) / READS)
        context.close()
    return _chosen(heads, right.tolist(), asked)


def _chosen(heads: Sequence[AttentionHead], right: Sequence[int], asked: int) -> RankedHeads:
    best = max(right, default=0)
    least = max(LEAST_FOUND * asked, NEAR_BEST * best, 1)
    order = sorted(range(len(heads)), key=lambda at: (-right[at], heads[at]))
    kept = [at for at in order[:MOST_HEADS] if right[at] >= least]
    return RankedHeads(tuple(heads[at] for at in kept), tuple(right[at] for at in kept), asked)


class _Read:
    """A stretch of text with a sentence planted in each of its sections, as ids, and the questions as ids."""

    def __init__(
        self, tokenizer: Tokenizer, style: ReadingStyle, paragraphs: list[str], number: int, sections: int
    ) -> None:
        frame = tokenizer.frame(style.system)
        self.ids, self.borders, self.questions = [*frame.opening], [len(frame.opening)], []
        share = len(paragraphs) / sections
        for at in range(sections):
            section = paragraphs[round(at * share) : round((at + 1) * share)]
            planted, question = _plant(number, at)
            section.insert(len(section) // 2, planted)
            self.ids += tokenizer.encode("\n\n".join(section) + "\n\n")
            self.borders.append(len(self.ids))
            prompt = asked_of_text(style, question)
            before = tokenizer.count(prompt.partition(question)[0])
            asked = [*tokenizer.encode(prompt), *frame.ask]
            self.questions.append((asked, before, before + tokenizer.count(question)))

    @property
    def longest(self) -> int:
        """Tokens of the longest question with what is around it."""
        return max(len(asked) for asked, _first, _last in self.questions)


def _plant(number: int, at: int) -> tuple[str, str]:
    """A sentence and its question; no two of one stretch have the same name."""
    said, asked = PLANTS[(number + at) % len(PLANTS)]
    words = {
        "name": NAMES[at % len(NAMES)],
        "other": OTHERS[(3 * number + at) % len(OTHERS)],
        "thing": THINGS[(2 * number + at) % len(THINGS)],
        "count": str(11 + 7 * at + number),
    }
    return said.format(**words), asked.format(**words)


def _stretches(tokenizer: Tokenizer, text: str, tokens: int) -> list[list[str]]:
    """READS stretches of so many tokens, in paragraphs; fewer where the text ends before."""
    found: list[list[str]] = [[]]
    held = 0
    for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
        if held >= tokens:
            found.append([])
            held = 0
        found[-1].append(paragraph)
        held += tokenizer.count(paragraph) + 1
    return [one for one in found if one][: READS if held >= tokens else min(READS, len(found) - 1)]


def _masses(
    engine: Engine,
    context: Context,
    looking: QueryRecorder,
    read: _Read,
    question: tuple[list[int], int, int],
) -> torch.Tensor:
    """What each head spends on each section while the question is read: [heads, sections]."""
    asked, first, last = question
    ids, start = [*read.ids, *asked], len(read.ids)
    context.looking = looking
    looking.begin(start)
    context.keep_prefix_of(read.ids)
    for _event in engine.generate(context, ids, _ONE):
        pass
    return torch.tensor(
        looking.masses(context.cache, range(start + first, start + last), read.borders), dtype=torch.float64
    )
