"""A session over an engine that only counts, shared by the tests of conversations and of summaries."""

from __future__ import annotations

from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.documents.document import Document, Section
from core.events import Finished
from core.request import HistoryTurn, Request
from tests.support.fakes import CharTokenizer, FakeEngine

STYLE = ReadingStyle(
    part_tokens=300,
    whole_tokens=500,
    note_tokens=60,
    system="S",
    part_prompts=("part?",),
    join_prompts=("join?",),
    whole_prompt="whole?",
    temperature=0.1,
)
TOPICS = ("lighthouse keeper", "copper magnet", "wedding guests", "winter harbour")


WHOLE = "The lighthouse keeper, the copper magnet and the wedding guests came again."


def book(chapters: int = 4, sentences: int = 12, title: str = "B") -> Document:
    text, sections = "", []
    for i in range(chapters):
        start, text = len(text), text + f"The {TOPICS[i % 4]} came again.\n\n" * (sentences // 2)
        sections.append(Section(f"Chapter {i + 1}", start, len(text)))
    return Document(title, "", "txt", text, tuple(sections), sha256=title)


def encoded(text: str) -> list[int]:
    return CharTokenizer().encode(text)


def make(reply=lambda ids, params: encoded("It is so."), **options) -> tuple[Session, FakeEngine]:
    engine = FakeEngine(reply, **{name: options.pop(name) for name in ("context_tokens",) if name in options})
    session = Session(
        engine, CharTokenizer(), options.pop("style", STYLE), **{"allowance_bytes": 10**9, **options}
    )
    return session, engine


def ask(session: Session, document: Document | None, question: str | None, **options) -> list:
    should_stop = options.pop("should_stop", lambda: False)
    return list(
        session.ask(
            Request(question, document, options.pop("conversation", "c"), **options), should_stop=should_stop
        )
    )


def finished(events: list) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def turns(question: str, done: Finished) -> tuple[HistoryTurn, ...]:
    return (HistoryTurn(question, done.text, done.token_ids),)


def reply_by_prompt(ids, params):
    text = CharTokenizer().decode(ids)
    for topic in TOPICS:
        if text.endswith("part?") and topic in text:
            return encoded(f"All this is about the {topic} alone.")
    return encoded(WHOLE) if "join?" in text else encoded("So it was.")
