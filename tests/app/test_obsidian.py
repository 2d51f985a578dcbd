"""Exports in a vault of Obsidian: names that can be linked to, properties that are YAML, footnotes that lead
somewhere, quotations that stay in their place. What Obsidian takes:
https://help.obsidian.md/obsidian-flavored-markdown
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import pytest
import yaml

from app.render.vault import file_name, properties, short_title
from app.web.answers import cited_answer
from app.web.citations import Citations
from tests.support.fake_runtime import wait_until

HARD = 'C# & "Läufer": [one] / two | three^'


def cite(*answer):
    return cited_answer(Citations(), *answer).citations


@pytest.fixture
def noted(desk, engine, book):
    """A book with a hard title, a question with marks in its answer, a bookmark and a note."""
    desk.library.add(replace(book, title=HARD, author="A: Keeper"))
    desk.books.select(book.sha256)
    engine.answer = "The keeper lit the lamp. “Nobody came.”"
    desk.questions.ask("Who keeps the lamp?")
    wait_until(lambda: not desk.state.busy)
    desk.reader.mark(7, "The keeper lit the lamp.")
    desk.reader.note(7, "See [[Lamps]].")
    desk.exports._today = lambda: date(2026, 1, 2)
    return desk


@pytest.fixture(params=["conversation", "notes"])
def exported(noted, request):
    return getattr(noted.exports, request.param)("md", cite)


def test_the_name_can_be_linked_to_and_written_by_every_system(exported):
    assert exported.name.startswith("C & Läufer one two three")
    assert not set('#^[]|\\/:*?"<>') & set(exported.name) and exported.name.endswith(".md")


def test_the_head_is_yaml_that_says_book_author_and_day(exported):
    head = exported.content.split("---\n")[1]
    values = yaml.safe_load(head)
    assert (values["title"], values["author"]) == (HARD, "A: Keeper")
    assert values["date"] == date(2026, 1, 2) and values["source"] == "TriForce Chat"
    assert exported.content.startswith("---\n") and "\n---\n\n# " in exported.content


def test_every_footnote_is_explained_once_and_each_on_a_line_of_its_own(noted):
    text = noted.exports.conversation("md", cite).content
    used = set(re.findall(r"\[\^(\d+)\](?!:)", text))
    explained = re.findall(r"^\[\^(\d+)\]: \S.*$", text, re.M)
    assert used and sorted(explained) == sorted(used)
    assert "## Who keeps the lamp?" in text


def test_the_books_words_stay_in_their_quotation_and_the_note_keeps_its_links(noted):
    text = noted.exports.notes("md", cite).content
    assert "> The keeper lit the lamp." in text and "\n\nSee [[Lamps]]." in text


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("", "book -.md"),
        ("...", "book -.md"),
        ("con", "con -.md"),
        ("../../etc/passwd", "etc passwd.md"),
        ("a\nb\tc\x00", "a b c.md"),
        ("Der Prozeß", "Der Prozeß.md"),
        ("红楼梦：上", "红楼梦：上.md"),
        ("x" * 300, "x" * 120 + ".md"),
    ],
)
def test_names_of_all_kinds(title, name):
    assert file_name(title, "md") == name


def test_a_long_title_leaves_room_for_what_the_file_is_in_any_script():
    """80 Chinese characters are 240 bytes, and file systems take 255."""
    for title in ("紅" * 300, "Ж" * 300, "a" * 300, "  The\nLamp "):
        name = file_name(f"{short_title(title)}, Zusammenfassungen", "html")
        assert len(name.encode()) <= 255 and name.endswith(", Zusammenfassungen.html")
    assert short_title("  The\nLamp ") == "The Lamp"


def test_a_book_without_an_author_has_no_empty_property(book):
    assert "author" not in properties(replace(book, author=""), [], date(2026, 1, 2))
