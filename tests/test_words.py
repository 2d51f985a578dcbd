"""The catalogue of sentences and the quantities that people are told."""

from __future__ import annotations

import gettext
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from core.paths import write_whole
from core.text import words
from core.text.words import duration, size

REPO = Path(__file__).resolve().parent.parent
LOCALE = REPO / "assets" / "locale"
EXTRACT = "pybabel extract -F assets/locale/babel.cfg -k _n:1,2 --omit-header --sort-output"
TO_MEND = f"{EXTRACT} -o assets/locale/messages.pot ."


def test_catalogue_holds_every_sentence():
    """A translator works from the template: a sentence that is not in it stays English for ever."""
    with (LOCALE / "babel.cfg").open() as file:
        methods, options = parse_mapping_cfg(file)
    keywords = {**DEFAULT_KEYWORDS, "_n": (1, 2)}
    sources = extract_from_dir(
        REPO, methods, options, keywords, directory_filter=lambda path: ".venv" not in path
    )
    written = {message for _file, _line, message, _comments, _context in sources}
    with (LOCALE / "messages.pot").open("rb") as file:
        known = {message.id for message in read_po(file) if message.id}
    assert written == known, f"out of date; mend it with: {TO_MEND}"


def test_language_is_read_from_the_catalogue(tmp_path, monkeypatch):
    """The sentence in the code is the key; without a catalogue it is what is shown."""
    compiled = tmp_path / "xx" / "LC_MESSAGES"
    compiled.mkdir(parents=True)
    catalog = Catalog("de")
    catalog.add("The context is full.", "Der Kontext ist voll.")
    with (compiled / "messages.mo").open("wb") as file:
        write_mo(file, catalog)
    monkeypatch.setattr(words, "LOCALES", tmp_path)
    monkeypatch.setattr(words, "_translations", gettext.NullTranslations())
    assert words.translated("The context is full.") == "The context is full."
    words.use_language("xx")
    assert words.translated("The context is full.") == "Der Kontext ist voll."
    words.use_language("yy")
    assert words.translated("The context is full.") == "The context is full."


@pytest.mark.parametrize(
    ("amount", "said"),
    [(68_700_000_000, "68.7 GB"), (1e9, "1.0 GB"), (999e6, "999 MB"), (12_300, "12 KB"), (0, "0 KB")],
)
def test_bytes_are_said_in_one_unit(amount: float, said: str):
    assert size(amount) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0.4 s"), (48, "48 s"), (89.6, "90 s"), (700, "12 min"), (5400, "1.5 h")]
)
def test_times_are_said_as_people_do(seconds: float, said: str):
    assert duration(seconds) == said


def test_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A disk that fills up in the middle must leave the old file and no half of the new one."""
    file = tmp_path / "folder" / "settings.json"
    write_whole(file, "old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_whole(file, b"new")
    assert file.read_text() == "old"
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]
