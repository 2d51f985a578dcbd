"""Lessons from more questions that people wrote: about passages of an encyclopedia (SQuAD 2.0's form), single
sentences (QAMR's form), and the world a story plays in (StorySparkQA's form). No torch.

Half of SQuAD's look as if their passage answered them and it does not; what is asked about the world a story
mostly does not say. Both teach to refuse what stands near, beside questions about the same text that it does
answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.quality.reading.cases import APART
from core.conversation.reading import ReadingStyle
from tools.embedded_reader.lessons import Branch, Lesson, asked_of, joined_sections, sentence, telling_words

_AT_ONCE = 10  # questions of one text in a lesson
_SENTENCES = 8  # that stand in one lesson's text at most
_WORD = re.compile(r"[a-z]+")


def about_articles(passages: Sequence[dict[str, Any]], style: ReadingStyle, seed: str) -> list[Lesson]:
    """Passages of an encyclopedia with questions that they answer and ones that only look so; no tenth one,
    which is kept apart.
    """
    dice = random.Random(f"{seed}/articles")
    found = []
    for number, passage in enumerate(passages):
        if number % APART == 0:
            continue
        branches = [
            Branch(asked_of(style, one), sentence(dice.choice(one["answers"])), "fact")
            if one["answers"]
            else Branch(asked_of(style, one), style.refusal, "foreign")
            for one in passage["questions"]
        ]
        found += _lessons(joined_sections([passage["passage"]]), branches, dice)
    return found


def about_sentences(sentences: Sequence[dict[str, Any]], style: ReadingStyle, seed: str) -> list[Lesson]:
    """A few sentences of different articles in one text, with questions about each."""
    dice = random.Random(f"{seed}/sentences")
    order, found = dice.sample(range(len(sentences)), len(sentences)), []
    while order:
        held = [sentences[order.pop()] for _ in range(min(len(order), dice.randint(1, _SENTENCES)))]
        branches = [
            Branch(asked_of(style, one), sentence(dice.choice(one["answers"])), "fact")
            for each in held
            for one in dice.sample(each["questions"], min(len(each["questions"]), _AT_ONCE))
            if one["answers"]
        ]
        found += _lessons("\n\n".join(each["sentence"] for each in held), branches, dice)
    return found


def about_the_world(
    tales: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]], style: ReadingStyle, seed: str
) -> list[Lesson]:
    """Sections of tales with the questions that they answer, and refused ones about the world: those of which
    an answer's word does not stand in the section.
    """
    dice = random.Random(f"{seed}/world")
    by_story, found = {tale["story"]: tale for tale in tales}, []
    for section in asked:
        if section["story"] not in by_story:
            continue
        known, place = set(_WORD.findall(section["text"].lower())), {section["section"]}
        own = [
            Branch(asked_of(style, one), sentence(one["answers"][0]), "fact")
            for one in by_story[section["story"]]["questions"]
            if set(one["sections"]) == place
        ]
        strange = [
            Branch(asked_of(style, one), style.refusal, "foreign")
            for one in section["questions"]
            if telling_words(one["answer"]) - known
        ]
        if strange:
            found += _lessons(joined_sections([section["text"]]), [*own, *strange], dice)
    return found


def _lessons(text: str, branches: list[Branch], dice: random.Random) -> list[Lesson]:
    """Branches in any order, so many a lesson as are asked at once."""
    dice.shuffle(branches)
    parts = range(0, len(branches), _AT_ONCE)
    return [Lesson(text, tuple(branches[start : start + _AT_ONCE])) for start in parts]
