"""The series of the open book: its volumes in order. Values in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence

from app.render.templating import render
from app.store.book_entry import BookEntry
from app.store.series import Series


def series_html(entries: Sequence[BookEntry], book_id: str, series: Series | None) -> str:
    """The series with its volumes, or the one that its file names and it has left, and the books that the
    open one may come after; empty without a book, or its text.
    """
    if not any(one.id == book_id and not one.missing for one in entries):
        return ""
    return render(
        "series.html",
        name=series.name if series else "",
        volumes=series.volumes if series else (),
        others=[one for one in entries if one.id != book_id],
        named=next((one.series for one in entries if one.id == book_id), ""),
        current=book_id,
    )
