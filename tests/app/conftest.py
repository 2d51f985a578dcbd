"""A desk with a scripted engine, and the sample book it reads."""

from __future__ import annotations

import pytest

from app.api.key import ApiKey
from app.desk import disk_usage
from app.desk.assembly import AppServices
from app.desk.import_queue import Readers
from app.models.catalogue import Models
from app.store.history import History
from app.store.library import Library
from core.config import Settings
from core.documents.document import Document, Section
from core.hardware.gpus import imagined_hardware
from core.planning import offers
from tests.support.desks import api_of
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.planned_once import planned_once
from tests.support.served import served


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk refused is not tried again in the midst of a test that says when."""
    monkeypatch.setattr(disk_usage, "RETRY_S", 3600.0)


@pytest.fixture
def book() -> Document:
    text = "Front. " + "The keeper lit the lamp. " * 40 + "\n\n" + "Nobody came. " * 40
    middle = text.index("\n\n") + 2
    return Document(
        title="The Lamp",
        author="A. Keeper",
        format="txt",
        text=text,
        sha256="a" * 64,
        sections=(
            Section("Title page", 0, 7, kind="front"),
            Section("One", 7, middle),
            Section("Two", middle, len(text)),
        ),
    )


@pytest.fixture
def engine() -> FakeRuntime:
    made = FakeRuntime(pace=0.001)
    made.start()
    wait_until(lambda: made.state == "ready")
    return made


@pytest.fixture
def plans_made_once(monkeypatch) -> None:
    """For tests that list models again and again; those of the planner make each plan anew."""
    monkeypatch.setattr(offers, "make_plan", planned_once)


@pytest.fixture
def make_desk(tmp_path, book):
    """A function that makes a desk on the test's folder; `read` gives the book whatever the file."""
    made: list[AppServices] = []

    def make(engine, *, read=None, cover=b"", can_ocr=True, models=None, preferences=None) -> AppServices:
        uploads = tmp_path / "uploads"
        uploads.mkdir(exist_ok=True)
        readers = Readers(
            read or (lambda *_args, **_kwargs: book),
            cover if callable(cover) else lambda *_args, **_kwargs: cover,
            lambda: can_ocr,
        )
        desk = AppServices(
            engine,
            Library(tmp_path / "books"),
            History(tmp_path / "chats.db"),
            models=models or Models(Settings(), look=imagined_hardware),
            readers=readers,
            uploads=uploads,
            preferences=preferences,
        )
        made.append(desk)
        return desk

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(make_desk, engine, book) -> AppServices:
    made = make_desk(engine)
    made.library.add(book)
    made.books.select(book.sha256)
    return made


@pytest.fixture
def opened(make_desk, book):
    """A function that opens the book on a desk whose engine is scripted as asked: (desk, engine)."""

    def start(**script) -> tuple[AppServices, FakeRuntime]:
        engine = FakeRuntime(**script)
        engine.start()
        wait_until(lambda: engine.state == "ready")
        desk = make_desk(engine)
        desk.library.add(book)
        desk.books.select(book.sha256)
        return desk, engine

    return start


@pytest.fixture
def key(tmp_path) -> str:
    """What lets other programs in."""
    return ApiKey(tmp_path / "api.key").renew()


@pytest.fixture
def address(desk, key, tmp_path):
    """Where they ask, while the test runs."""
    with served(api_of(desk, tmp_path).routes()) as at:
        yield f"http://127.0.0.1:{at.port}/v1"
