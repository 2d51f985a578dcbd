"""What tests of the desk do again and again."""

from __future__ import annotations

from pathlib import Path

from app.api.answering import ApiAnswers
from app.api.kept import KeptAnswers
from app.api.key import ApiKey
from app.api.routes import Api
from app.desk.assembly import AppServices
from tests.support.fake_runtime import wait_until


def done(desk) -> None:
    wait_until(lambda: not desk.state.busy)


def put(tmp_path, name: str = "book.txt"):
    path = tmp_path / "uploads" / "abc" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("anything")
    return path


def card(desk: AppServices) -> dict | None:
    """What the engine says about the open book; None until it has said it."""
    book = desk.books.current
    return desk.cards.of(book, desk.state.spoiler_limit) if book else None


def answers_of(desk: AppServices) -> ApiAnswers:
    """What answers other programs."""
    return ApiAnswers(desk.engine, KeptAnswers(desk.library, desk.history, desk.store.tell))


def api_of(desk: AppServices, folder: Path, answers: ApiAnswers | None = None) -> Api:
    """What they are served; the key lies in the folder."""
    key = ApiKey(folder / "api.key")
    return Api(desk.engine, desk.library, desk.preferences, key=key, answers=answers or answers_of(desk))
