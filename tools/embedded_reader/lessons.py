"""What the embedded model is taught to read by: texts with what is asked of them and what a reader says. No
torch.

Stories with questions (FairytaleQA's form), stories with summaries (SQuALITY's form), plain instructions
with answers of the model itself, and bare text to keep its language by. Every kind comes at every length.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from tools.embedded_reader.abstracts import abstracts, paragraph_passages, paragraphs, stands_alone

# how many neighbouring sections make a passage, and how often
SECTIONS, SECTION_SHARES = (1, 2, 3, 5, 8), (44, 32, 14, 7, 3)
FOREIGN = 0.2  # of the questions are not answered by their passage
SAME_STORY = 0.5  # of these are about another place of the same story: hard to tell, even for people
SUMMARISED_WORDS = (320, 500, 700, 1000)
ABSTRACT_WORDS, ABSTRACT_SENTENCES = (22, 120), 5
NOTES_TOLD = (2, 3, 4)  # passages whose abstracts are told together
_QUESTIONS_AT_ONCE = 10
_LONGEST_ANSWER = 40  # words
_BARE_WORDS = 380
_WORD = re.compile(r"[a-z]+")
_SMALL = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be because been but by did do for from had has have he her his in into is it its "
        "of on or she so that the their them they to was were will with would",
    )
)


@dataclass(frozen=True, slots=True)
class Branch:
    """What is asked of a text, and the answer. `whole`: the answer ends where its text does."""

    asked: str
    answer: str
    kind: str  # "fact" | "foreign" | "summary" | "story" | "chat" | "bare"
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Lesson:
    """A text with its branches, each read as if the others were not there."""

    text: str
    branches: tuple[Branch, ...]


def load_lessons(path: Path) -> list[dict[str, Any]]:
    """The stories of a file. Raises UserError when it cannot be read."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        said = "{file} cannot be read ({reason}). Name the folder with the questions and summaries."
        raise UserError(said.format(file=path, reason=error)) from error


def about_passages(stories: Sequence[dict[str, Any]], style: ReadingStyle, seed: str) -> list[Lesson]:
    """Each story cut once into passages of one to eight sections, with the questions they answer and foreign
    ones, some of them from elsewhere in the same story.
    """
    dice = random.Random(f"{seed}/passages")
    found = []
    for story in stories:
        start = 0
        while start < len(story["sections"]):
            count = dice.choices(SECTIONS, SECTION_SHARES)[0]
            held = range(start, min(start + count, len(story["sections"])))
            start = held.stop
            text = joined_sections([story["sections"][index] for index in held])
            own, elsewhere = _questions(story, held, text)
            chosen = dice.sample(own, min(len(own), _QUESTIONS_AT_ONCE))
            branches = [Branch(asked_of(style, q), sentence(q["answers"][0]), "fact") for q in chosen]
            for _turn in chosen:
                if dice.random() < FOREIGN / (1 - FOREIGN):
                    other = dice.choice([s for s in stories if s is not story] or [story])
                    pool = elsewhere if elsewhere and dice.random() < SAME_STORY else other["questions"]
                    branches.append(Branch(asked_of(style, dice.choice(pool)), style.refusal, "foreign"))
            if chosen:
                dice.shuffle(branches)
                found.append(Lesson(text, tuple(branches)))
    return found


def about_stories(stories: Sequence[dict[str, Any]], style: ReadingStyle, seed: str) -> list[Lesson]:
    """Passages of several lengths with the abstracts that fall on them, and abstracts of some passages in a
    row, by one writer, with what a shorter writer says of the same stretch.
    """
    found = []
    for story in stories:
        parts = paragraphs(story["text"])
        for words in SUMMARISED_WORDS:
            texts = paragraph_passages(parts, words)
            plots = [
                {a.first: a.text for a in abstracts(s, texts)} for s in story["questions"][0]["summaries"]
            ]
            for index, text in enumerate(texts):
                said = {
                    plot[index]
                    for plot in plots
                    if index in plot
                    and stands_alone(plot[index], text, words=ABSTRACT_WORDS, most=ABSTRACT_SENTENCES)
                }
                if said:
                    asked = style.part_prompts[0]
                    found.append(Lesson(text, tuple(Branch(asked, one, "summary") for one in sorted(said))))
            found += _notes(plots, style)
    random.Random(f"{seed}/stories").shuffle(found)
    return found


def _notes(plots: Sequence[dict[int, str]], style: ReadingStyle) -> Iterator[Lesson]:
    """Summaries of summaries: no story twice by the same pair of writers."""
    for told in plots:
        places = sorted(told)
        for count in NOTES_TOLD:
            for start in range(0, len(places) - count + 1, count):
                held = places[start : start + count]
                text = "\n\n".join(told[index] for index in held)
                for other in plots:
                    shorter = " ".join(other[index] for index in held if index in other)
                    if (
                        other is not told
                        and len(shorter.split()) < 0.7 * len(text.split())
                        and stands_alone(shorter, text, words=ABSTRACT_WORDS, most=ABSTRACT_SENTENCES + 1)
                    ):
                        yield Lesson(text, (Branch(style.join_prompts[0], shorter, "story"),))
                        break


def bare(stories: Sequence[dict[str, Any]], seed: str) -> list[Lesson]:
    """Stretches of book text as they are."""
    texts = [text for story in stories for text in paragraph_passages(paragraphs(story["text"]), _BARE_WORDS)]
    random.Random(f"{seed}/bare").shuffle(texts)
    return [Lesson("", (Branch("", text, "bare", whole=False),)) for text in texts]


def chat_lessons(answers: Sequence[tuple[str, str, bool]]) -> list[Lesson]:
    """Plain instructions with the model's own answers: (instruction, answer, whether it came to its end)."""
    return [Lesson("", (Branch(asked, said, "chat", whole),)) for asked, said, whole in answers]


def joined_sections(sections: Sequence[str]) -> str:
    """Sections as one text in paragraphs."""
    return "\n\n".join(
        " ".join(line.split()) for part in sections for line in part.split("\n") if line.strip()
    )


def sentence(answer: str) -> str:
    """An answer of a few words as it is written: a capital and a full stop."""
    answer = " ".join(answer.split()).strip()
    answer = answer[:1].upper() + answer[1:]
    return answer if answer.endswith((".", "!", "?", '"')) else answer + "."


def asked_of(style: ReadingStyle, question: dict[str, Any]) -> str:
    """A question as it is put behind a passage."""
    return style.passage_prompt.replace("{question}", " ".join(question["question"].split()))


def telling_words(text: str) -> set[str]:
    """The words of a text that say something, in small letters."""
    return set(_WORD.findall(text.lower())) - _SMALL


def _questions(
    story: dict[str, Any], held: range, text: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Those that the passage answers, and those from farther away whose answers it does not hold."""
    numbers = {story["first_section"] + index for index in held}
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    own = [
        question
        for question in story["questions"]
        if set(question["sections"]) <= numbers and len(question["answers"][0].split()) <= _LONGEST_ANSWER
    ]
    known = set(_WORD.findall(text.lower()))
    elsewhere = [
        question
        for question in story["questions"]
        if not near & set(question["sections"]) and telling_words(question["answers"][0]) - known
    ]
    return own, elsewhere
