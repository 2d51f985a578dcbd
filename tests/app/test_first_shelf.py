"""A data folder that the first version left behind opens in this one, with all that was said in it.

`first_shelf` was written by that version's own desk: a web page, of which it read a line that no browser
shows, a summary of it and two conversations. It is never made anew.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from app.desk.assembly import AppServices
from app.desk.import_queue import Readers
from app.models.catalogue import Models
from app.server.main import make_services
from app.web.page import Page
from core.config import Settings
from core.documents import read_document
from core.documents.document import READER_VERSION
from core.hardware.gpus import imagined_hardware
from tests.support.fake_runtime import FakeRuntime, wait_until

NOTES = '<ul class="notes">'

LEFT = Path(__file__).with_name("first_shelf")
HIDDEN = "This line was put here by a program"
QUOTED = "When she left for the mainland he wrote her a letter each Sunday."


@pytest.fixture
def desk(home: Path):
    shutil.copytree(LEFT / "books", home / "books")
    shutil.copy(LEFT / "conversations.db", home)
    readers = Readers(lambda path, **_: read_document(path), lambda *_args, **_kwargs: b"", lambda: False)
    models = Models(Settings(), look=imagined_hardware)
    made = make_services(FakeRuntime(pace=0.01), models=models, readers=readers)
    yield made
    made.close()


def opened(desk: AppServices, talk: int) -> str:
    """The page of a conversation about the only book; 0 is the newest."""
    desk.books.select(desk.library.entries()[0].id)
    talks = desk.history.conversations(desk.state.book_id)
    desk.books.open_conversation(talks[talk].id)
    return "".join("".join(html) for html in Page(desk).render().values())


def drop_again(desk: AppServices) -> None:
    upload = desk.imports._uploads / "x" / "the-two-lamps.html"
    upload.parent.mkdir()
    shutil.copy(LEFT / upload.name, upload)
    desk.imports.upload(str(upload), upload.name)
    wait_until(lambda: not upload.exists() and desk.state.opening is None)


def test_everything_is_there_as_it_was_and_says_that_it_can_be_read_better(desk: AppServices):
    [entry] = desk.library.entries()
    assert (entry.title, entry.author, entry.chapters) == ("The Two Lamps", "Nora Hale", 6)
    page = opened(desk, 0)
    assert "Did she answer?" in page and HIDDEN in desk.books.current.text and desk.books.current.outdated
    assert NOTES in page
    page = opened(desk, 1)
    words = re.sub(r"<[^>]*>", "", page)
    assert "Who kept the ledger" in words and "play draughts through a winter without ships" in words
    assert [turn.role for turn in desk.books.turns] == ["user", "assistant"] * 2


def test_dropped_again_it_is_read_anew_and_old_marks_are_found_again(desk: AppServices):
    """Quotations by their words, where they stand now; one that the text has no longer is said to be none."""
    before = opened(desk, 1)
    old = desk.books.current.text.index(QUOTED)
    assert f'data-offset="{old}"' in before
    said = [turn.text for turn in desk.books.turns]
    talks = len(desk.history.conversations(desk.state.book_id))

    drop_again(desk)
    after = opened(desk, 1)
    new = desk.books.current.text.index(QUOTED)
    assert (
        new < old
        and HIDDEN not in desk.books.current.text
        and desk.books.current.reader_version == READER_VERSION
    )
    assert f'data-offset="{new}"' in after and f'data-offset="{old}"' not in after
    assert "cite-missing" in after and "cite-missing" not in before
    assert [turn.text for turn in desk.books.turns] == said
    assert len(desk.history.conversations(desk.state.book_id)) == talks and len(desk.library.entries()) == 1
    assert NOTES not in after


def test_its_conversations_go_on(desk: AppServices):
    opened(desk, 0)
    desk.engine.start()
    wait_until(lambda: desk.engine.state == "ready")
    assert desk.questions.ask("And then?")
    wait_until(lambda: not desk.state.busy)
    assert [turn.role for turn in desk.books.turns] == ["user", "assistant"] * 2
