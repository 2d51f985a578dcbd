"""Quotations in answers, looked up in the book: where each stands, or that it stands nowhere."""

from __future__ import annotations

from app.markup import Citation
from core.documents.document import Document
from core.documents.quotes import Quote, QuoteIndex, find_quotes
from core.text.words import translated as _


class Citations:
    """Finds the quotations of an answer. Keeps the index of the last book: building one takes a moment."""

    def __init__(self) -> None:
        self._book_id = ""
        self._index: QuoteIndex | None = None

    def __call__(self, text: str, book: Document) -> tuple[Citation, ...]:
        """The quotations in order; `offset` None for one that is not in the book."""
        if self._index is None or self._book_id != book.sha256:
            self._index, self._book_id = QuoteIndex(book), book.sha256
        return tuple(_citation(quote) for quote in find_quotes(text, self._index))


def _citation(quote: Quote) -> Citation:
    if quote.found is None or quote.found_end is None:
        return Citation(quote.start, quote.end, None)
    page = _("page {page}").format(page=quote.page) if quote.page else ""
    where = ", ".join(part for part in (quote.chapter, page) if part)
    return Citation(quote.start, quote.end, quote.found, quote.found_end - quote.found, where)
