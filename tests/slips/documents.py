"""Slips in core/documents: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SHOWN = ("tests/app/test_shown_words.py",)

SLIPS = (
    Slip(
        "core/documents/structure/contents.py",
        "position = hit + 1",
        "position = 0",
        ("tests/documents/test_chapters.py", "tests/documents/test_books.py"),
    ),
    Slip(
        "core/documents/structure/parts.py",
        "if following == key or",
        "if following == key + key or",
        (
            "tests/documents/test_chapters.py",
            "tests/documents/test_formats.py",
            "tests/documents/test_hostile.py",
        ),
    ),
    Slip(
        "core/documents/formats/html.py",
        "resolve_entities=False",
        "resolve_entities=True",
        (
            "tests/documents/test_chapters.py",
            "tests/documents/test_formats.py",
            "tests/documents/test_hostile.py",
        ),
    ),
    Slip(
        "core/documents/document.py",
        "text=self._known_until(end),\n            sections=tuple(section for",
        "text=self.text[:end],\n            sections=tuple(section for",
        ("tests/documents/test_listed_chapters.py", "tests/app/test_limit.py"),
    ),
    Slip(
        "core/documents/listed_chapters.py",
        "return chain if len(chain) >= _LISTED else []",
        "return chain",
        ("tests/documents/test_listed_chapters.py",),
    ),
    Slip(
        "core/documents/document.py",
        "to_json_text(self.to_json(), ensure",
        '__import__("json").dumps(self.to_json(), ensure',
        _SHOWN,
    ),
)
