"""The shelf says what is kept of each book, and finds what was said about all, never behind a limit."""

from __future__ import annotations

import errno
import re
import threading
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import pytest

from app.desk import shelf
from app.desk.shelf import kept_of_books
from app.desk.values import ImportedFile, ShownPassage
from app.store import library
from app.store.history import History
from app.store.library import Library
from app.web.library import _last_read
from app.web.page import Page
from core import paths
from core.cache.disk import BLOCK_TOKENS, SnapshotFolder
from core.documents.document import Section
from tests.support.desks import card
from tests.support.fake_runtime import wait_until
from tests.support.said import figures, text_in, values, worded_by

NONE = 'data-found="none"'


def ask(desk, question: str, answer: str) -> str:
    desk.engine.answer = answer
    desk.books.begin_conversation()
    desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)
    return desk.state.conversation_id


def look(desk, words: str) -> str:
    desk.actions.dispatch({"act": "search", "text": words})
    wait_until(lambda: not desk.state.text_search.running)
    return "".join(Page(desk).render()["hits"])


def kind(name: str) -> str:
    """How a hit of this kind is known on the page."""
    return f'data-kind="{name}"'


def places(html: str, book_id: str) -> list[str]:
    """How many places in the text of a book are said to be found."""
    return figures(text_in(html, f'data-texts="{book_id}"')) if f'data-texts="{book_id}"' in html else []


@pytest.fixture
def two(desk, book):
    """Two books, the second open."""
    desk.shelf.put(
        replace(book, sha256="b" * 64, title="Über Land", author="B. Zwei"), cover=b"", again=False
    )
    return desk


@pytest.mark.parametrize("working", [False, True])
def test_a_file_that_is_there_under_another_name_says_so(desk, book, working):
    """The entry on the shelf got the new name without a word, as if a second book stood there."""
    if working:
        desk.engine.pace = 0.05
        desk.questions.ask("Who?")
    desk.shelf.put(replace(book, title="Another Name"), cover=b"", again=False)
    (told,) = desk.state.arrivals
    (said,) = worded_by(shelf._arrived, told.words)
    assert said.values == {"title": "Another Name", "before": book.title}
    assert [one.title for one in desk.library.entries()] == ["Another Name"]


def test_every_word_said_about_any_book_is_found_at_its_turn(two, book):
    second = ask(two, "Where does she go?", "To Kraków, by the night train.")
    two.books.select(book.sha256)
    first = ask(two, "Who went to Krakow?", "Nobody did.")
    (near, (asked,)), (far, (told,)) = (
        two.search.look_for("krakow"),
        two.search.results(two.state.shelf_search),
    )[1].said
    assert (near.id, asked.talk, asked.number) == (book.sha256, first, 1)
    assert (far.id, told.talk, told.number) == ("b" * 64, second, 2)
    assert (told.before, told.words, told.after) == ("To ", "Kraków", ", by the night train.")
    html = look(two, "krak")
    assert f'data-id="{second}"' in html and 'data-turn="2"' in html
    two.actions.dispatch({"act": "said", "id": second, "book": "b" * 64})
    assert two.state.book_id == "b" * 64 and two.state.conversation_id == second
    assert f'data-turn="{second}:2"' in "".join(Page(two).render()["turns"])
    assert NONE in look(two, "Warsaw") and look(two, "  ") == ""


def test_the_books_own_places_come_first_and_what_a_fork_repeats_once(two):
    """Five forks held one answer five times, above the two places of the book."""
    talk = ask(two, "Who is it?", "The keeper, says Zyxomma.")
    two.history.fork(talk, 2)
    word = re.search(r"[A-Z]\w{3,}", two.library.find(two.state.book_id).text)[0]
    html = look(two, "zyxomma")
    assert html.count(kind("answer")) == 1 and html.count("data-turn") == 1
    ask(two, f"And {word}?", "It is so.")
    html = look(two, word)
    assert html.index("data-texts") < html.index(kind("question"))


def test_an_answer_that_is_found_stands_under_its_question(two):
    """It stood under its conversation's name, the first question, as if that had been answered so."""
    ask(two, "Who is it?", "The keeper.")
    for answer, begin in (
        ("A lamp.", lambda: two.questions.ask("What is it?")),
        ("A boat.", two.questions.regenerate),
    ):
        two.engine.answer = answer
        begin()
        wait_until(lambda: not two.state.busy)
    for words, where, kind_of in (
        ("boat", "What is it?", "answer"),
        ("lamp", "What is it?", "version"),
        ("keeper", "Who is it?", "answer"),
        ("who is it", "Who is it?", "question"),
    ):
        assert where in text_in(look(two, words), kind(kind_of))


def test_an_earlier_version_of_an_answer_is_found_and_leads_to_itself(two):
    """Made anew, an answer took all it had said out of sight."""
    talk = ask(two, "Where does she go?", "To Zyxomma, by boat.")
    two.engine.answer = "To Hull, by train."
    two.questions.regenerate()
    wait_until(lambda: not two.state.busy)
    html = look(two, "zyxomma")
    assert kind("version") in html and 'data-version="1"' in html and f'data-id="{talk}"' in html
    assert 'data-version="1"' in "".join(Page(two).render()["turns"])
    two.conversations.use_version(2, 1)
    assert kind("version") not in look(two, "zyxomma") and kind("version") in look(two, "hull")
    two.trash.throw_conversation(talk)
    assert NONE in look(two, "hull")


def test_versions_are_indexed_in_a_file_from_before_and_leave_no_word_behind(tmp_path):
    history = History(tmp_path / "c.db")
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    number = history.add(talk, "assistant", "Quillfeather of old", extra={"spoiler_limit": 2})
    history.update(talk, number, "Nobody", state="finished", extra={}, keeps_version=True)
    history._db.execute("INSERT INTO said(said) VALUES ('delete-all')")  # as an index without them
    history.close()
    again = History(tmp_path / "c.db")
    (found,) = again.search("quillfeather old")
    assert (found.version, found.spoiler_limit, found.number, found.role) == (1, 2, 2, "assistant")
    again.forget_book("book")
    assert again.search("quillfeather") == []
    again.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"uillfeather" not in kept


def test_own_notes_and_kept_summaries_are_found_and_lead_to_their_places(two, book):
    two.books.select(book.sha256)
    last = book.chapters[-1]
    two.reader.mark(last.start, book.text[last.start : last.start + 12])
    two.reader.note(last.start, "Compare with the Zyxomma of chapter one.")
    two.questions.summarize_chapter(1)
    wait_until(lambda: not two.state.busy)
    told = two.chapters.summaries(book)[1]
    word = max(told.split(), key=len).strip(".")
    two.books.select("b" * 64)
    html = look(two, "zyxomma compare")
    assert kind("note") in html and f'data-offset="{last.start}"' in html and "<mark>Zyxomma</mark>" in html
    two.actions.dispatch({"act": "place", "book": book.sha256, "offset": str(last.start), "length": "12"})
    assert two.state.book_id == book.sha256 and two.state.passage == ShownPassage(last.start, 12)
    html = look(two, word)
    assert kind("summary") in html and f'data-offset="{book.chapters[0].start}"' in html
    two.actions.dispatch({"act": "limit", "value": "1"})
    assert kind("note") not in look(two, "zyxomma") and 'data-withheld="1"' in look(two, "zyxomma")
    assert kind("summary") in look(two, word), "what was told of chapter 1 alone tells nothing more"


def test_a_note_written_while_it_is_looked_for_is_found(two, book):
    two.books.select(book.sha256)
    page = Page(two)
    two.actions.dispatch({"act": "search", "text": "zyxomma"})
    wait_until(lambda: not two.state.text_search.running)
    assert NONE in page.render()["hits"][0]
    two.reader.mark(book.chapters[0].start, book.text[book.chapters[0].start :][:12])
    two.reader.note(book.chapters[0].start, "Zyxomma.")
    assert kind("note") in page.render()["hits"][0]


def test_titles_and_authors_are_found_whatever_their_accents(two):
    assert "Über Land" in look(two, "uber") and "Über Land" in look(two, "zwei")
    assert "The Lamp" not in look(two, "zwei")


def test_words_are_found_in_scripts_without_spaces(two):
    talk = ask(two, "钥匙在哪里?", "码头的木板下面。")
    assert f'data-id="{talk}"' in look(two, "木板") and "data-act=" not in look(two, "板木")


def test_nothing_found_lies_behind_a_spoiler_limit(two, book):
    """Neither in the open book nor in one that would open with a limit."""
    ask(two, "How does it end?", "Zyxomma drowns.")
    two.actions.dispatch({"act": "limit", "value": "1"})
    assert "drowns" not in look(two, "zyxomma") and 'data-withheld="1"' in look(two, "zyxomma")
    assert 'data-act="said"' not in look(two, "how does it end")
    ask(two, "Who is she so far?", "Zyxomma is a ferryman.")
    assert "ferryman" in look(two, "zyxomma") and "drowns" not in look(two, "zyxomma")
    two.books.select(book.sha256)
    assert "ferryman" in look(two, "zyxomma") and "drowns" not in look(two, "zyxomma")


def test_what_is_being_written_and_what_was_replaced_is_not_found(tmp_path):
    history = History(tmp_path / "c.db")
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    number = history.add(talk, "assistant", "", state="writing")
    history.update(talk, number, "Perhaps Oddo", state="writing")
    assert history.search("oddo") == []
    history.update(talk, number, "Certainly Oddo", state="finished", extra={"spoiler_limit": 3})
    assert [one.spoiler_limit for one in history.search("certainly odd")] == [3]
    history.update(talk, number, "Nobody", state="finished", extra={})
    assert history.search("oddo") == [] and history.search('no" OR "certainly') == []
    assert history.search("nobody") and history.search('"') == []
    history.close()


def test_a_file_from_before_the_index_is_indexed_at_the_start(tmp_path):
    history = History(tmp_path / "c.db")
    history.add(history.create("book").id, "user", "Where is Quillfeather?")
    history._db.execute("DROP TABLE said")
    history.close()
    again = History(tmp_path / "c.db")
    assert again.search("quillfeather")
    again.close()


def test_what_is_kept_on_disk_is_said_and_when_it_opens_in_seconds(home, desk, book):
    """Of another model's reading nothing can be said but its size."""
    snapshots = SnapshotFolder(paths.subdir("snapshots"))
    wait_until(lambda: card(desk))
    tokens = desk.library.entries()[0].tokens
    assert 0 < tokens == card(desk)["tokens"] <= BLOCK_TOKENS
    for model in ("mine", "another"):
        block = snapshots.of(model, book.sha256) / "a-b.kv"
        block.parent.mkdir(parents=True)
        block.write_bytes(bytes(3_000_000))
    kept = kept_of_books(desk.library, "")[book.sha256]
    assert 6_000_000 < kept.bytes < 6_100_000 and not kept.prefilled
    page = Page(desk)
    assert "6\u00a0MB" in page.render()["library"][0] and "<i>" not in page.render()["library"][0]
    desk.engine.stored_as = snapshots.of("mine", "").parent.name
    desk.engine.stored += 1
    assert "<i>" in page.render()["library"][0], "it opens in seconds"
    desk.books.select(book.sha256)
    assert desk.library.entries()[0].tokens == tokens, "opening a book forgets nothing"


def test_the_last_reading_is_a_day_in_words():
    at = datetime(2026, 3, 1, 23, 30).timestamp()
    today, yesterday, earlier, long_ago = (_last_read(at, date(2026, 3, day)) for day in (1, 2, 4, 20))
    assert len({today, yesterday, earlier, long_ago}) == 4 and not figures(today + yesterday)
    assert values(earlier) == {"count": 3} and values(long_ago) == {"date": "2026-03-01"}
    assert _last_read(at, date(2026, 2, 1)) == today, "a clock that was set back"


def test_a_pasted_text_has_the_name_it_was_given(make_desk, engine, book, tmp_path):
    desk = make_desk(engine)
    for title, name in (("  My \n notes ", "My notes"), ("", book.title)):
        path = tmp_path / "uploads" / "pasted.txt"
        path.write_text("anything")
        sent = {"act": "upload", "path": str(path), "name": "pasted.txt", "title": title}
        desk.actions.dispatch(sent)
        wait_until(lambda: desk.state.opening is None)
        assert desk.books.current.title == name
    desk.actions.dispatch(sent)
    assert len(desk.state.failures) == 1


def test_a_pasted_text_is_cited_by_its_name(desk, book):
    """As "a passage of pasted": its one chapter was called after the file."""
    whole = replace(book, title="pasted", sections=(Section("pasted", 0, 40), Section("Two", 40, 80)))
    named = desk.imports._named(whole, ImportedFile(Path("pasted.txt"), "pasted.txt", title="My notes"))
    assert [one.title for one in named.sections] == ["My notes", "Two"]


@pytest.mark.parametrize(
    ("inside", "given", "expected"),
    [
        ("mbtags", "", "The Lamp"),
        ("", "", "The Lamp"),
        ("A Title", "", "A Title"),
        ("mbtags", "Mine", "Mine"),
    ],
)
def test_a_copy_under_another_file_name_keeps_the_title_on_the_shelf(desk, book, inside, given, expected):
    """The book was called after the copy; a title from inside the file, or a person's, is a better one."""
    copy = ImportedFile(Path("mbtags.txt"), "m & <b>tags.txt", title=given)
    assert desk.imports._named(replace(book, title=inside), copy).title == expected
    other = replace(book, title="mbtags", sha256="c" * 64)
    assert desk.imports._named(other, copy).title == (given or "m & <b>tags"), "its name lost signs"


@pytest.mark.parametrize("working", [False, True])
def test_a_file_that_is_there_is_said_to_be_there(desk, book, working):
    """It "was read and stands on the shelf", as if a second book stood there."""
    if working:
        desk.engine.pace = 0.05
        desk.questions.ask("Who?")
    desk.shelf.put(book, cover=b"", again=False)
    (told,) = desk.state.arrivals
    (said,) = worded_by(shelf._arrived, told.words)
    assert "already" in said.template and desk.state.failures == ()


def test_a_book_is_called_as_the_person_does_whatever_its_file_says(desk, book):
    """“Unknown author” and a title made of a file's name stood there for good."""
    desk.actions.dispatch({"act": "name-title", "text": "  The  Lamp\nof Orrin "})
    desk.actions.dispatch({"act": "name-author", "text": "P. Lindqvist"})
    desk.actions.dispatch({"act": "name-title", "text": "  "})

    def named(shelf: Library) -> set[tuple[str, str]]:
        (entry,), there = shelf.entries(), shelf.get(book.sha256)
        return {(entry.title, entry.author), (there.title, there.author)}

    own = {("The Lamp of Orrin", "P. Lindqvist")}
    assert named(desk.library) == named(Library(desk.library._root)) == own
    assert all(one in "".join(Page(desk).render()["stage"]) for one in own.copy().pop())
    desk.shelf.put(book, cover=b"", again=False)  # its file once more
    desk.shelf.put(replace(book, text=f"{book.text} Read anew."), cover=b"", again=True)
    assert named(desk.library) == own and desk.library.get(book.sha256).text.endswith("anew.")
    desk.actions.dispatch({"act": "name-author", "text": ""})
    assert named(desk.library) == {("The Lamp of Orrin", "")}


def test_what_a_book_is_called_is_not_half_written_on_a_full_disk(desk, book, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(library, "write_whole", full)
    with pytest.raises(OSError, match="full"):
        desk.actions.dispatch({"act": "name-title", "text": "Another"})
    monkeypatch.undo()
    assert desk.library.get(book.sha256).title == desk.library.entries()[0].title == book.title


def test_the_books_themselves_are_looked_through_and_lead_to_their_places(two, book):
    """*Search everything* knew titles and talk, and not a word of the books."""
    two.books.select("b" * 64)
    html = look(two, "LIT the  lamp")
    assert places(html, book.sha256) == places(html, "b" * 64) == ["40"]
    offset = book.text.index("lit the lamp")
    sent = f'data-act="place" data-book="{book.sha256}" data-offset="{offset}"\n data-length="12"'
    assert sent in html and "<mark>lit the lamp</mark>" in html and html.count("<mark>lit") == 10
    two.actions.dispatch({"act": "place", "book": book.sha256, "offset": str(offset), "length": "12"})
    assert two.state.book_id == book.sha256 and two.state.passage == ShownPassage(offset, 12)


def test_an_answer_that_is_found_shows_no_marks_of_its_layout(desk):
    """The keys of a keyboard stood between its words."""
    ask(desk, "Who is *it*?", "## The *keeper*\n\n- He **lit** the lamp.\n- Nobody came.\n\n> At dusk")
    html = look(desk, "keeper")
    found = re.sub(r"<[^>]+>", "", html)
    assert "The keeper He lit the lamp. Nobody came. At dusk" in " ".join(found.split())
    assert "*it*" in look(desk, "it"), "what a person wrote is shown as it was written"


def test_what_the_limit_alone_hides_is_not_said_to_be_nowhere(desk):
    """ "Nothing on the shelf holds these words" stood above the count of the places that do."""
    desk.actions.dispatch({"act": "limit", "value": "1"})
    html = look(desk, "nobody came")
    assert 'data-withheld="40"' in html and NONE not in html
    assert NONE in look(desk, "zyxomma")


def test_what_stands_around_a_place_is_of_its_chapter(two, book):
    """The end of the chapter before and the heading stood in one line with it."""
    html = look(two, "Nobody came. Nobody")
    assert "<mark>Nobody came. Nobody</mark>" in html and "lit the lamp" not in html


def test_nothing_of_a_books_text_is_found_behind_its_limit(two, book):
    two.books.select("b" * 64)
    two.actions.dispatch({"act": "limit", "value": "1"})
    html = look(two, "nobody came")
    assert places(html, "b" * 64) == [] and places(html, book.sha256) == ["40"]
    assert 'data-withheld="40"' in html
    two.actions.dispatch({"act": "limit", "value": ""})
    assert places(look(two, "nobody came"), "b" * 64) == ["40"]
    two.actions.dispatch({"act": "limit", "value": "1"})
    assert places("".join(Page(two).render()["hits"]), "b" * 64) == [], "also of what was found before"


def test_what_is_looked_for_anew_ends_the_search_before(two, monkeypatch):
    """Words that nobody wants any more must not take the place of those that are wanted."""
    gate, find = threading.Event(), two.library.find

    def slowly(book_id: str):
        if two.state.shelf_search == "lamp":
            gate.wait(30)
        return find(book_id)

    monkeypatch.setattr(two.library, "find", slowly)
    two.actions.dispatch({"act": "search", "text": "lamp"})
    assert two.state.text_search.running
    monkeypatch.setattr(two.library, "find", find)
    two.actions.dispatch({"act": "search", "text": "keeper"})
    wait_until(lambda: not two.state.text_search.running)
    gate.set()
    for thread in [one for one in threading.enumerate() if one.name == "search"]:
        thread.join(30)
    assert two.state.text_search.wanted == "keeper" and len(two.state.text_search.found) == 2
