"""A text that another program sends with its question: what was read of it is kept as that of a book."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.cache.disk import SnapshotFolder
from core.events import Finished
from core.request import HistoryTurn, Request
from tests.support.paused_sessions import STYLE, TEXT, opened
from tests.support.talks import make
from tests.support.tiny_tokenizer import TinyTokenizer

TOKENS = len(TEXT) + 1  # with the system's


def put(session, question: str, *, text: str = TEXT, history: tuple[HistoryTurn, ...] = ()) -> Finished:
    *_, last = session.ask(Request(question, None, "api", low_priority=True, text=text, history=history))
    assert isinstance(last, Finished)
    return last


def restarted(folder: Path, session=None):
    if session is not None:
        session.save(should_stop=lambda: False)  # what the worker does in idle time
        session.close()
    return opened(folder, STYLE)


def test_text_is_not_read_again_after_a_restart(tmp_path):
    """Only books of the shelf were; a program that sends its text paid for all of it anew."""
    first = restarted(tmp_path)
    asked = put(first, "Who writes?")
    assert asked.stats.reused_tokens == 0
    assert put(first, "Where?").stats.reused_tokens >= TOKENS, "in memory, for another conversation, too"
    second = restarted(tmp_path, first)
    again = put(second, "Where?", history=(HistoryTurn("Who writes?", asked.text),))
    assert again.stats.snapshot_tokens >= TOKENS
    (tmp_path / "other").mkdir()
    alone = restarted(tmp_path / "other")
    assert put(alone, "Where?", history=(HistoryTurn("Who writes?", asked.text),)).text == again.text


@pytest.mark.wide
def test_text_is_kept_by_what_it_says_and_goes_with_what_is_kept_of_books(tmp_path):
    session = restarted(tmp_path)
    put(session, "Who?")
    put(session, "Who?", text=TEXT.replace("Mara", "Nora"))
    session = restarted(tmp_path, session)
    folder = SnapshotFolder(tmp_path)
    assert folder.usage().books == 2
    folder.forget(Request(text=TEXT).text_id)
    assert folder.usage().books == 1
    assert put(session, "Who?").stats.snapshot_tokens == 0
    folder.clear()
    assert folder.usage().bytes == 0


def test_question_and_answer_are_not_on_the_disk(tmp_path):
    """A program's conversation is kept only if it asks for that."""
    session = restarted(tmp_path)
    put(session, "Whose secret is it?")
    restarted(tmp_path, session)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("*/*/*.kv"))
    for words, kept in (("boathouse", True), ("secret", False)):
        ids = ",".join(map(str, TinyTokenizer().encode(words))).encode()
        assert (ids in stored) is kept, words


def test_prompt_is_exactly_what_was_sent():
    """The text is told apart for the disk's sake: the model sees the same words as without that."""
    prompts = []
    for text, question in (("", "The sea.\n\nWho?"), ("The sea.\n\n", "Who?")):
        session, engine = make()
        list(session.ask(Request(question, None, "api", text=text)))
        prompts.append(engine.prompts[-1])
    assert prompts[0] == prompts[1]


def test_conversation_without_a_book_is_laid_out_alike_after_a_restart():
    """Its earlier questions were put as questions about a book, and all of it was read again."""
    style = {"style": STYLE.__class__(system="S", answer_prompt="Q: {question}", quote_prompt="Quote.")}
    session, engine = make(**style)
    *_, first = session.ask(Request("Who?", None, "c"))
    said = (HistoryTurn("Who?", first.text, first.token_ids),)
    list(session.ask(Request("Where?", None, "c", history=said)))
    new, new_engine = make(**style)
    list(new.ask(Request("Where?", None, "c", history=said)))
    assert new_engine.prompts[-1] == engine.prompts[-1]
