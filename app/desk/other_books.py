"""A question that seems to be about several books, or about another one than the open book."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.desk.store import Store
from app.desk.values import Remedy
from app.store.book_entry import BookEntry
from app.store.fulltext import searchable
from app.store.library import Library
from core.documents.document import Document
from core.text.words import translated as _

SHORTEST_TITLE = 4  # letters; two where each is a word; shorter ones are like others
# in the languages of the page
SEVERAL = re.compile(
    r"\b(?:both|these|those|all|other|several|two|my|all (?:of )?(?:the|my)|the other) books\b"
    r"|\b(?:across|between|among) (?:the |my |these |all )*books\b|\b(?:another|the other) book\b"
    r"|\bmy (?:library|shelf)\b"
    r"|\b(?:beide|diese|alle|andere|mehrere|meine)[nr]? (?:anderen )?büchern?\b|\bzwei(?:er)? büchern?\b"
    r"|\bandere[nms]? buch\b|\bmeine[mr]? (?:bibliothek|bücherregal)\b"
    r"|(?:两|几|兩|幾)本[书書]|[这那這]些[书書]|所有的?[书書]|(?:另一|其他|别的|別的)本?的?[书書]|我的[书書][架库庫]",
    re.IGNORECASE,
)


class OtherBooks:
    """Knows the titles on the shelf, and which question was refused last: asked once more it is meant for the
    open book.
    """

    def __init__(self, store: Store, library: Library) -> None:
        self._store, self._library = store, library
        self._warned = ""

    def refuses(self, question: str) -> bool:
        """Says that a question is put to one book, where it names others."""
        book = self._library.find(self._store.state.book_id)
        if question == self._warned or book is None:
            return False
        other = another_book(question, book, self._library.entries())
        if other is None and not SEVERAL.search(question):
            return False
        self._warned = question
        words = _(
            "A question is put to one book, and this one seems to be about several. Open one of them to ask "
            "about it, or send the question once more to put it to “{title}” alone."
        )
        remedies = []
        if other:
            remedies.append(Remedy(_("Open “{title}”").format(title=other.title), act="book", id=other.id))
            words = _(
                "A question is put to one book, and “{other}” is another one. Open it to ask about it, or "
                "send the question once more to put it to “{title}” alone."
            )
        said = words.format(title=book.title, other=other.title if other else "")
        self._store.say(said, "info", *remedies)
        return True


def another_book(question: str, book: Document, shelf: Sequence[BookEntry]) -> BookEntry | None:
    """Another book on the shelf that a question names, and that the open book does not; None without one."""
    asked, known = _plain(question), None
    for entry in shelf:
        named = re.split(r"[:;(\uff1a\uff1b\uff08]", entry.title)[0]  # without a subtitle
        title = _plain(named)
        short = len(searchable(named)) < SHORTEST_TITLE
        if entry.id == book.sha256 or short or f" {title} " not in f" {asked} ":
            continue
        known = known if known is not None else f" {_plain(book.title)} {_plain(book.text)} "
        if f" {title} " not in known:
            return entry
    return None


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", searchable(text).casefold()))
