"""What a person does in the open book: it is kept, survives a restart, and never goes behind the limit."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from app.store.notebook import Bookmark, Notebook
from app.web.page import Page
from app.web.reader import SHOWN_HITS
from core.documents.document import Document, Section

PARAGRAPHS = (
    "Oddo hid the silver key\nunder the third plank.",
    "Nobody saw the Ferryman.",
    "Zyxomma took the key.",
)


@pytest.fixture
def story() -> Document:
    text, sections = "", []
    for number, body in enumerate(PARAGRAPHS, 1):
        start = len(text)
        text += f"Chapter {number}\n\n{body}\n\n"
        sections.append(Section(f"Chapter {number}", start, len(text)))
    return Document("Ferry", "A. Writer", "txt", text, tuple(sections), (0, 40), sha256="c" * 64)


@pytest.fixture
def desk(make_desk, engine, story):
    made = make_desk(engine)
    made.shelf.put(story, again=False, cover=b"")
    return made


def act(desk, **sent: str) -> None:
    desk.actions.dispatch(sent)


def shown(desk, region: str) -> str:
    return "".join(map(str, Page(desk).render()[region]))


def test_a_book_opens_where_it_was_left(desk, make_desk, engine, story):
    second = story.sections[1].start
    act(desk, act="turn", value="on")
    assert desk.state.passage.offset == second
    act(desk, act="stand", value=str(second + 20))
    again = make_desk(engine)
    again.resume()
    assert again.state.passage.offset == second + 20
    assert f'data-place="{second + 20}:0"' in shown(again, "reader")


def test_chapters_turn_and_stop_at_the_ends(desk, story):
    for value, expected in (("back", 0), ("on", 1), ("on", 2), ("on", 2), ("back", 1)):
        act(desk, act="turn", value=value)
        assert desk.state.passage.offset == story.sections[expected].start
        assert shown(desk, "reader").count(f"Chapter {expected + 1}") == 3, (
            "a choice, the source, the heading"
        )


def test_a_chapter_turns_also_where_the_place_cannot_be_kept(desk, story, monkeypatch):
    """A drive that is gone must not hold the book closed."""

    def gone(*_given):
        raise OSError("the drive is gone")

    monkeypatch.setattr(desk.library, "write_notebook", gone)
    with pytest.raises(OSError):
        act(desk, act="turn", value="on")
    assert desk.state.passage.offset == story.sections[1].start


def test_what_is_found_is_shown_by_chapters_with_its_page_and_opens_there(desk, story):
    act(desk, act="find", text="silver  KEY under")
    start = story.text.index("silver")
    assert desk.state.book_search.found.places == ((start, start + len("silver key\nunder")),)
    html = shown(desk, "found")
    assert "1 place" in html and f'data-offset="{start}"' in html and "p. 1" in html
    assert 'data-length="16"' in html
    assert "<mark>silver key\nunder</mark>" in html
    act(desk, act="find", text="silver KEY", exact="1")
    assert "0 places" in shown(desk, "found") and 'class="quiet"' in shown(desk, "found")
    act(desk, act="find", text=" ")
    assert shown(desk, "found") == ""


def test_all_places_in_a_chapter_are_one_click_away(desk, story):
    half = "Oddo rows.\n\n" * 60
    sections = (Section("One", 0, len(half)), Section("Two", len(half), 2 * len(half)))
    many = replace(story, text=half * 2, sections=sections, sha256="d" * 64)
    desk.shelf.put(many, again=False, cover=b"")
    act(desk, act="find", text="oddo")
    html = shown(desk, "found")
    assert html.count("<li>") == 2 * SHOWN_HITS and html.count('data-act="unfold"') == 2
    act(desk, act="unfold", value=str(len(half)))
    assert shown(desk, "found").count("<li>") == SHOWN_HITS + 60
    act(desk, act="find", text="Oddo")
    assert shown(desk, "found").count("<li>") == 2 * SHOWN_HITS


def test_a_bookmark_stands_at_the_selected_words_and_keeps_its_note(desk, make_desk, engine, story):
    """A browser sends the words with line breaks as it draws them."""
    start = story.text.index("silver key")
    act(desk, act="mark", offset=str(story.text.index("Oddo")), text="silver key under")
    act(desk, act="note", offset=str(start), text=" who has it now? ")
    assert desk.reader.bookmarks == (Bookmark(start, 16, "silver key\nunder", "who has it now?"),)
    again = make_desk(engine)
    again.resume()
    html = shown(again, "marks")
    assert "who has it now?" in html and "1 bookmark" in html and f'data-offset="{start}"' in html
    name, text = again.exports.conversation()
    assert name == "Ferry.md" and re.search("\n## .+\n\n> silver key\n> under", text)
    assert "(Chapter 1, p. 1)" in text and "who has it now?" in text
    page, parsed = again.exports.conversation("html")[1], json.loads(again.exports.conversation("json")[1])
    assert "silver key<br>under</blockquote>" in page and "who has it now?" in page
    noted = {"words": "silver key\nunder", "place": "Chapter 1, p. 1", "note": "who has it now?"}
    assert parsed["notes"] == [{**noted, "offset": start, "length": 16}]
    act(again, act="unmark", offset=str(start))
    assert shown(again, "marks") == "" and "Bookmarks" not in again.exports.conversation()[1]


@pytest.mark.parametrize("sent", [("0", "not there"), ("99999", "key"), ("", ""), ("0", " \n ")])
def test_what_stands_nowhere_is_not_marked(desk, sent):
    act(desk, act="mark", offset=sent[0], text=sent[1])
    assert desk.reader.bookmarks == ()


def test_nothing_behind_the_limit_is_shown_found_or_turned_to(desk, story):
    third = story.text.index("Zyxomma")
    act(desk, act="mark", offset=str(third), text="Zyxomma took")
    act(desk, act="find", text="key")
    act(desk, act="cite", offset=str(third), length="7")
    assert desk.state.book_search.found.count == 2 and "Zyxomma" in shown(desk, "reader")
    act(desk, act="limit", value="2")
    page = {name: "".join(map(str, html)) for name, html in Page(desk).render().items()}
    assert not any("Zyxomma" in html for html in page.values())
    assert not any("Chapter 3" in page[name] for name in ("reader", "found", "marks"))
    assert desk.state.book_search.found.count == 1 and "Zyxomma" not in desk.exports.conversation()[1]
    act(desk, act="turn", value="on")
    act(desk, act="cite", offset=str(third))
    act(desk, act="find", text="Zyxomma")
    assert desk.state.passage.offset < third and desk.state.book_search.found.count == 0
    act(desk, act="limit", value="0")
    assert [one.offset for one in desk.reader.bookmarks] == [third], "it was hidden, not lost"


def test_bookmarks_follow_their_words_when_the_file_is_read_anew(desk, story):
    start = story.text.index("silver key")
    act(desk, act="mark", offset=str(start), text="silver key")
    act(desk, act="mark", offset=str(story.text.index("Nobody")), text="Nobody saw")
    text = "A preface.\n\n" + story.text.replace("Nobody saw", "All saw")
    read = replace(story, text=text, sections=(Section("All", 0, len(text)),))
    desk.shelf.put(read, again=True, cover=b"")
    first, second = desk.reader.bookmarks
    assert (first.offset, first.lost, second.lost) == (start + 12, False, True)
    assert shown(desk, "marks").count('class="cite"') == 1, "the lost one leads nowhere"


def test_a_damaged_notebook_is_put_aside_and_the_book_opens(desk, story, tmp_path, make_desk, engine):
    file = tmp_path / "books" / story.sha256 / "notebook.json"
    for data in (
        "{",
        "[]",
        '{"position": -1, "bookmarks": []}',
        '{"position": 0, "bookmarks": [{"offset": "x"}]}',
    ):
        file.write_text(data)
        again = make_desk(engine)
        again.resume()
        assert again.state.notebook == Notebook() and not file.exists()
        assert file.with_suffix(".damaged.json").read_text() == data


def test_a_notebook_is_what_was_written():
    book = Notebook(3, (Bookmark(1, 2, "a", "b"), Bookmark(5, 2, "c", lost=True)))
    assert Notebook.from_json(json.loads(json.dumps(book.to_json()))) == book


@pytest.fixture
def long_desk(make_desk, engine):
    """A book of three long chapters, read up to the second."""
    text, sections = "", []
    for number in (1, 2, 3):
        start = len(text)
        text += f"Chapter {number}\n\n" + f"Oddo rows on day {number}. " * 120 + "\n\n"
        sections.append(Section(f"Chapter {number}", start, len(text)))
    made = make_desk(engine)
    book = Document("Ferry", "A. Writer", "txt", text, tuple(sections), sha256="c" * 64)
    made.shelf.put(book, again=False, cover=b"")
    made.reader.stand(sections[1].start + 50)
    return made


def test_a_place_that_is_looked_up_leaves_a_way_back(long_desk, make_desk, engine):
    """A mention in the first chapter took the reader there, and nothing knew where they had been."""
    chapters = long_desk.books.current.sections
    read = chapters[1].start + 50
    assert shown(long_desk, "way-back") == "", "nothing was looked up"
    act(long_desk, act="cite", offset="20", length="4")
    act(long_desk, act="cite", offset=str(chapters[2].start + 40), length="4")
    assert "Chapter 2" in shown(long_desk, "way-back"), "from however many places"
    again = make_desk(engine)
    again.resume()
    act(again, act="back")
    assert again.state.passage.offset == read and shown(again, "way-back") == ""


def test_who_reads_on_from_there_or_comes_back_alone_is_not_asked_again(long_desk):
    act(long_desk, act="cite", offset="20", length="4")
    act(long_desk, act="stay")
    assert shown(long_desk, "way-back") == ""
    act(long_desk, act="cite", offset=str(long_desk.books.current.sections[2].start), length="4")
    act(long_desk, act="goto", value="0")
    assert shown(long_desk, "way-back") == "", "that is where they were"
    act(long_desk, act="turn", value="on")
    assert shown(long_desk, "way-back") == "" and long_desk.state.passage.length == 0


def test_the_way_back_does_not_lead_behind_the_limit(long_desk):
    long_desk.reader.stand(long_desk.books.current.sections[2].start + 50)
    act(long_desk, act="cite", offset="20", length="4")
    act(long_desk, act="limit", value="2")
    assert shown(long_desk, "way-back") == ""
    act(long_desk, act="back")
    assert long_desk.state.passage.offset == 20
