"""The catalogue of sentences and the quantities that people are told."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.pofile import read_po, write_po

from core.paths import write_whole
from core.text import catalogues, words
from core.text.words import duration, size

REPO = Path(__file__).resolve().parent.parent
TESTS = REPO / "tests"
LOCALE = REPO / "assets" / "locale"
EXTRACT = "pybabel extract -F assets/locale/babel.cfg -k _n:1,2 --omit-header --sort-output"
TO_MEND = f"{EXTRACT} -o assets/locale/messages.pot ."

# where words are what is tested: the catalogues, other languages, what commands print
OF_WORDS = (
    "test_words.py",
    "test_translations.py",
    "text/test_messages.py",
    "app/test_chapter_menus.py",
    "app/test_shown_words.py",
    "app/test_languages.py",
    "app/test_cli.py",
    "app/test_cli_answers.py",
    "app/test_talk.py",
    "e2e/test_languages.py",
)
ASSERTED = 6  # sentences, or parts of them, in the assertions of all other tests: it only falls


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


def test_the_extractor_finds_the_words_of_the_templates():
    """Words outside the catalogue cannot be translated."""
    with (LOCALE / "babel.cfg").open(encoding="utf-8") as file:
        methods, options = parse_mapping_cfg(file)
    of_templates = [("**.html", dict(methods)["app/templates/**.html"])]
    found = extract_from_dir(REPO / "app" / "templates", of_templates, options, {"_": None, "_n": (1, 2)})
    messages = {message for _file, _line, message, _comments, _context in found}
    assert "Read them with OCR" in messages and ("{count} word", "{count} words") in messages


@pytest.fixture
def german(tmp_path, monkeypatch):
    """Writes a German catalogue for this test alone."""
    folder = tmp_path / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)

    def write(*messages: tuple) -> None:
        catalog = Catalog("de")
        for message, told in messages:
            catalog.add(message, told)
        with (folder / "messages.po").open("wb") as file:
            write_po(file, catalog)

    monkeypatch.setattr(catalogues, "LOCALES", tmp_path)
    catalogues.of.cache_clear()
    yield write
    catalogues.of.cache_clear()


def test_language_is_read_from_the_catalogue(german):
    """The sentence in the code is the key; without a catalogue it is what is shown."""
    german(("The context is full.", "Der Kontext ist voll."), (("{count} book", "{count} books"), ("a", "b")))
    assert words.translated("The context is full.") == "The context is full."
    with words.in_language("de"):
        assert words.language() == "de"
        assert words.translated("The context is full.") == "Der Kontext ist voll."
        assert words.translated("Not in it.") == "Not in it."
        assert [words.translated_count("{count} book", "{count} books", n) for n in (0, 1, 2)] == [
            "b",
            "a",
            "b",
        ]
    with words.in_language("zh"):
        assert words.translated("The context is full.") == "The context is full."
    assert words.language() == "en"


def test_catalogue_is_read_as_babel_reads_it(german):
    """Line breaks, quotation marks, entries over several lines: what a translator's editor writes."""
    hard = 'A "word"\tand a line\nand\\more. ' + "Long enough to be broken over lines. " * 4
    german((hard, hard.upper()), ("kept", ""), ("last", "zuletzt"))
    read = catalogues.of("de")
    assert read.sentence(hard) == hard.upper()
    assert read.sentence("kept") == "kept", "an empty translation is none"
    assert read.sentence("last") == "zuletzt"


@pytest.mark.parametrize(
    ("code", "given", "written"),
    [
        ("de", "8,192", "8.192"),
        ("de", "9.1 GB", "9,1 GB"),
        ("de", "1,234.5 ms", "1.234,5 ms"),
        ("de", "92%", "92\N{NO-BREAK SPACE}%"),
        ("de", "2.13.0", "2.13.0"),
        ("de", "chapter 1.5", "chapter 1.5"),
        ("zh", "12 min", "12 分钟"),
        ("zh", "8,192", "8,192"),
        ("en", "1.5 h", "1.5 h"),
    ],
)
def test_quantities_are_written_as_the_language_does(code: str, given: str, written: str):
    with words.in_language(code):
        assert words.localised(given) == written


@pytest.mark.parametrize(
    ("amount", "said"),
    [(68_700_000_000, "68.7 GB"), (1e9, "1.0 GB"), (999e6, "999 MB"), (12_300, "12 KB"), (0, "0 KB")],
)
def test_bytes_are_said_in_one_unit(amount: float, said: str):
    assert size(amount) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.004, "0.1 s"), (0.4, "0.4 s"), (48, "48 s"), (89.6, "90 s"), (700, "12 min"), (5400, "1.5 h")],
)
def test_times_are_said_as_people_do(seconds: float, said: str):
    assert duration(seconds) == said


def test_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A disk that fills up in the middle must leave the old file and no half of the new one."""
    file = tmp_path / "settings.json"
    write_whole(file, "old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_whole(file, b"new")
    assert file.read_text() == "old"
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_no_sentence_hides_inside_another_string():
    """What stands in the braces of an f-string is not extracted: it stayed English, and nobody was told."""
    hidden = []
    for folder in ("app", "core"):
        for file in (REPO / folder).rglob("*.py"):
            for outer in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(outer, ast.JoinedStr):
                    hidden += [f"{file.name}:{one.lineno}" for one in ast.walk(outer) if _sentence(one)]
    assert hidden == [], "give it a name of its own before the f-string"


def _sentence(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        return False
    return node.func.id in ("_", "_n", "N_") and isinstance(node.args[0], ast.Constant)


def test_sentences_are_asserted_where_words_are_tested():
    """One that is worded anew must fail one test, not ten: the others ask for a message's values, for the
    figures in a text or for an element of the page (tests/support/said.py).
    """
    of_words = {TESTS / name for name in OF_WORDS}
    assert [file for file in of_words if not file.is_file()] == []
    entries, found = _entries(), []
    every = "\0".join(part for parts in entries for part in parts)
    for file in sorted({*TESTS.rglob("*.py")} - of_words):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found += [
            f"{file.relative_to(TESTS)}: {one}"
            for one in _asserted(tree)
            if (one in every or _filled(one, entries)) and not _same_in_every_language(one)
        ]
    assert len(found) <= ASSERTED, "\n".join(found)
    assert len(found) == ASSERTED, f"{len(found)} are left: lower ASSERTED"


def _same_in_every_language(text: str) -> bool:
    """Whether every entry that holds it holds it in each translation, too: the name of a program, a command,
    a setting as it is written. That is no wording.
    """
    languages = [catalogues.of(code).forms for code in catalogues.FOLDERS]
    holders = [one for one in languages[0] if text in one]
    told = [form for forms in languages for one in holders for form in forms.get(one, ("",))]
    return bool(told) and all(text in one for one in told)


def _entries() -> list[list[str]]:
    """Of each entry of the catalogues what stands between its values, where that is two words or more."""
    with (LOCALE / "messages.pot").open("rb") as file:
        ids = [message.id for message in read_po(file) if message.id]
    every = {one for entry in ids for one in (entry if isinstance(entry, tuple) else (entry,))}
    parts = [re.split(r"\{[^}]*\}", one) for one in sorted(every)]
    return [one for one in parts if _words(" ".join(one)) > 1]


def _asserted(tree: ast.Module) -> list[str]:
    """The texts of two words or more in its assertions, but for what is said when they fail."""
    tests = [one.test for one in ast.walk(tree) if isinstance(one, ast.Assert)]
    every = (one.value for test in tests for one in ast.walk(test) if isinstance(one, ast.Constant))
    plain = (one.replace("\N{NO-BREAK SPACE}", " ").strip() for one in every if isinstance(one, str))
    return [one for one in plain if _words(one) > 1]


def _words(text: str) -> int:
    return sum(bool(re.search("[A-Za-z]{2}", word)) for word in text.split())


def _filled(text: str, entries: list[list[str]]) -> bool:
    """Whether an entry is in it, filled."""
    whole = (parts for parts in entries if parts[0] in text and parts[-1] in text)
    return any(re.search(".+?".join(map(re.escape, parts)), text, re.DOTALL) for parts in whole)
