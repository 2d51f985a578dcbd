"""What a folder of test files expects of the reader, and what of it does not come true.

`expect.json` and `facts.json` beside the files say what each must yield: text or one clear sentence, passages
that stand in it or must not, the number of words, the number of chapters and their titles.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

from core.documents import Document, read_safely
from core.errors import DocumentError

FOLDERS = ("books", "hostile", "hard", "hard2")
_MAY_FAIL = ("error", "either", "text_or_error", "error_or_warning")


def expectations(folder: Path) -> dict[str, dict]:
    """By file name: the folder's expect.json, or the facts of its books said in the same words."""
    path = folder / "expect.json"
    if path.is_file():
        return {entry["file"]: entry for entry in json.loads(path.read_text("utf-8"))}
    books = json.loads((folder / "facts.json").read_text("utf-8"))["books"]
    return {book["file"]: _of_book(book) for book in books}


def wrong(path: Path, wanted: dict) -> list[str]:
    """Why the file does not behave as `wanted`; empty when it does. Read in the child, as the app reads."""
    try:
        document = read_safely(path)
    except DocumentError as error:
        return _wrong_refusal(str(error), path, wanted)
    if wanted["expect"] == "error":
        return [f"was read, {document.words:,} words, instead of being refused"]
    if wanted["expect"] == "error_or_warning" and not document.warnings:
        return ["neither refused nor warned of"]
    return _wrong_text(document, wanted)


def flat(text: str) -> str:
    """As expectations quote a text: NFKC, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _of_book(book: dict) -> dict:
    evidence = [fact["evidence"] for fact in book["facts"]]
    return {
        "expect": "text",
        "snippets": [book["first_sentence"], book["last_sentence"], *evidence],
        "chapters": book["chapters"],
        "words": book["words_whole_file"],
        "title": book["title"],
        "author": book["author"],
    }


def _wrong_refusal(message: str, path: Path, wanted: dict) -> list[str]:
    if wanted["expect"] not in _MAY_FAIL:
        return [f"refused: {message}"]
    if (
        "\n" in message
        or path.name not in message
        or not re.search(wanted.get("error_regex", ""), message, re.I)
    ):
        return [f"refused in the wrong words: {message}"]
    return []


def _wrong_text(document: Document, wanted: dict) -> list[str]:
    text = flat(document.text)
    everything = json.dumps(document.to_json(), ensure_ascii=False)
    reasons = [
        f"lacks {snippet!r}"
        for snippet in [*wanted.get("snippets", []), *wanted.get("also", [])]
        if flat(snippet) not in text
    ]
    reasons += [f"holds {piece!r}" for piece in wanted.get("must_not", []) if piece in everything]
    reasons += [
        f"{field} is {getattr(document, field)!r}, not {wanted[field]!r}"
        for field in ("title", "author")
        if field in wanted and getattr(document, field) != wanted[field]
    ]
    titles = [section.title for section in document.chapters]
    if titles != wanted.get("titles", titles):
        reasons.append(f"chapters are {titles}, not {wanted['titles']}")
    reasons += [
        f"no chapter's title holds {piece!r}"
        for piece in wanted.get("titles_contain", [])
        if not any(piece in title for title in titles)
    ]
    found, words = len(document.chapters), document.words
    if "chapters" in wanted and abs(found - wanted["chapters"]) > max(1, 0.03 * wanted["chapters"]):
        reasons.append(f"{found} chapters, not {wanted['chapters']}")
    if words < wanted.get("min_words", 0):
        reasons.append(f"{words:,} words, fewer than {wanted['min_words']:,}")
    if "words" in wanted and abs(words - wanted["words"]) > 0.03 * wanted["words"]:
        reasons.append(f"{words:,} words, not about {wanted['words']:,}")
    return reasons
