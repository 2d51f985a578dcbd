"""A book of four facts, and a model that says them of the passages they stand in."""

from __future__ import annotations

from collections.abc import Sequence

from core.documents.document import Document, Section
from core.events import Delta
from tests.support.fakes import CharTokenizer, FakeEngine
from tests.support.talks import STYLE, encoded

REFUSAL = STYLE.refusal
SUMMER = "Once in the summer the keeper of the ferry painted his boat. "
FACTS = (
    "The ferryman Oddo hid the silver key under the third plank of the jetty. Nobody saw him do it.",
    "Oddo told the priest that the silver key was lost. The priest did not believe the ferryman.",
    "In spring the widow Brandt found a key of copper in her well. It opened nothing at all.",
    "The schoolmaster counted the herring boats, and 41 of them came home before the storm.",
)


def told(facts: Sequence[str] = FACTS, *, pages: bool = False) -> Document:
    """A chapter of some 300 words round every fact."""
    text, sections, starts = "", [], []
    for number, fact in enumerate(facts, 1):
        start = len(text)
        starts.append(start)
        filler = " ".join(
            f"Number {number * 100 + at} of the tales has no end and no moral." for at in range(26)
        )
        text += f"{fact}\n\n{filler}\n\n"
        sections.append(Section(f"Chapter {number}", start, len(text)))
    return Document("Ferry", "", "txt", text, tuple(sections), tuple(starts if pages else ()), sha256="f")


def reader(answers: dict[str, str]):
    """Answers a prompt by the passage it holds: the first key that stands in it; else it refuses."""

    def reply(ids, params):
        prompt = CharTokenizer().decode(ids)
        said = next((answer for words, answer in answers.items() if words in prompt), REFUSAL)
        return encoded(said)

    return reply


def prompts(engine: FakeEngine) -> list[str]:
    return [CharTokenizer().decode(ids) for ids in engine.prompts]


def shown(events: list) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


QUESTION = "Where is the silver key?"
HIDDEN = {"third plank": "Under the third plank of the jetty."}
LOST = "The priest heard that the silver key was lost."  # of the passage that the question points at first
