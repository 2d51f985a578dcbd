"""What tests of the desk do again and again."""

from __future__ import annotations

from tests.support.fake_runtime import wait_until


def done(desk) -> None:
    wait_until(lambda: not desk.busy)


def put(tmp_path, name: str = "book.txt"):
    path = tmp_path / "uploads" / "abc" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("anything")
    return path
