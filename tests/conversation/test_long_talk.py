"""A long conversation with the embedded model over a sample that its window holds: what the product's first
evening is like.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.desk.questions import too_many
from core.ask import Ask, Exchange
from core.build import open_session
from core.config import Settings
from core.conversation.session import Session
from core.documents import read_document
from core.documents.document import Document
from core.errors import UserError
from core.events import Finished
from core.paths import ROOT

pytestmark = pytest.mark.slow

SAMPLE = ROOT / "assets" / "samples" / "the-thursday-clock.md"
WHO = ("Dorcas Pell", "Mr. Ormerod", "Isaac Rudd", "the lamp-boy", "the Deacon")
QUESTIONS = [f"What does {who} {does}?" for does in ("do", "say", "find", "want") for who in WHO]
MOST_NEW = 60  # tokens of a question and its frame
ANSWER = 48


@pytest.fixture
def session(home_with_model: Path) -> Iterator[Session]:
    """The product's own, without a card."""
    settings = Settings(device="cpu", snapshot_quota_gb=0, evidence_attention=False, context_tokens=8192)
    yield open_session(settings)


@pytest.fixture(scope="module")
def book() -> Document:
    return read_document(SAMPLE)


def asked(session: Session, book: Document, question: str, said: list[Exchange], **more: object) -> Finished:
    params = {"max_new_tokens": ANSWER, "seed": 1}
    ask = Ask(question, book, "talk", fit="whole", params=params, history=tuple(said), **more)
    done = list(session.ask(ask))[-1]
    assert isinstance(done, Finished), done
    return done


def room(session: Session, book: Document, question: str, said: list[Exchange]) -> dict:
    params = {"max_new_tokens": ANSWER}
    return session.room(Ask(question, book, "talk", fit="whole", params=params, history=tuple(said)))


def test_twenty_follow_ups_read_the_book_once(session: Session, book: Document):
    """Each feeds its own words alone and is decoded by TriForce; the window's end is known before it comes,
    and each way on from there answers.
    """
    said: list[Exchange] = []
    proposed = 0
    for number, question in enumerate(QUESTIONS):
        assert too_many(room(session, book, question, said)) == 0
        done = asked(session, book, question, said, keep_all=True)
        said.append(Exchange(question, done.text, done.token_ids))
        stats = done.stats
        assert stats.mode == "triforce" and stats.new_tokens > 0 and done.text.strip()
        assert number == 0 or stats.prompt_tokens - stats.reused_tokens <= MOST_NEW, (number, stats)
        proposed += stats.acceptance_retrieval.evaluated
    assert proposed > 0, "nothing was ever proposed: the panel would be empty"
    assert len(said) == 20

    longer = said.copy()
    while not too_many(room(session, book, QUESTIONS[0], longer)):
        longer.append(said[len(longer) % len(said)])
    with pytest.raises(UserError, match="choose what is left out"):
        asked(session, book, QUESTIONS[0], longer, keep_all=True)
    least = too_many(room(session, book, QUESTIONS[0], longer))
    assert asked(session, book, QUESTIONS[0], longer[least:], keep_all=True).text.strip()
    assert asked(session, book, QUESTIONS[0], [], keep_all=True).text.strip()
