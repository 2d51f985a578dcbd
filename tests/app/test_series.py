"""Books in the order of a series: by their files, by hand, and what volume 2 knows of volume 1."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from app.store.book_entry import BookEntry
from app.store.series import SeriesFile
from app.web.composer import asks_too_html
from app.web.series import series_html
from tests.support.fake_runtime import wait_until
from tests.support.said import figures
from tests.support.stories import in_chapters, region


def entry(letter: str, *, series: str = "", volume: float | None = None) -> BookEntry:
    return BookEntry(letter * 64, letter.upper(), "", "epub", 10, 1, opened=0.0, series=series, volume=volume)


A, B, C, D = (entry(letter) for letter in "abcd")


@pytest.fixture
def kept(tmp_path) -> SeriesFile:
    return SeriesFile(tmp_path / "series.json")


def order(kept: SeriesFile, shelf: list[BookEntry], of: BookEntry) -> str | None:
    series = kept.of(shelf, of.id)
    return series and "".join(one.title for one in series.volumes)


def test_books_stand_in_the_order_that_their_files_say(kept):
    one, two = entry("c", series="Wend", volume=1), entry("a", series=" WEND", volume=2)
    last = entry("b", series="Wend")
    shelf = [two, last, one, D]
    assert order(kept, shelf, two) == "CAB" and kept.of(shelf, D.id) is None
    assert kept.of([one], one.id).name == "Wend"


def test_a_person_puts_books_in_order_moves_them_and_takes_them_out(kept, tmp_path):
    shelf = [A, B, C]
    kept.put_behind(shelf, B.id, A.id)
    assert order(kept, shelf, A) == "AB" and kept.of(shelf, A.id).name == ""
    kept.put_behind(shelf, C.id, A.id)
    assert order(kept, shelf, A) == "ACB"
    kept.move(shelf, C.id, 1)
    assert order(kept, shelf, A) == "ABC"
    kept.move(shelf, C.id, 1)
    kept.move(shelf, A.id, -1)
    assert order(kept, shelf, A) == "ABC", "at an end nothing happens"
    kept.rename(shelf, A.id, "  The   Wend ")
    again = SeriesFile(tmp_path / "series.json")
    assert order(again, shelf, C) == "ABC" and again.of(shelf, C.id).name == "The Wend"
    again.take_out(B.id)
    assert order(again, shelf, A) == "AC" and again.of(shelf, B.id) is None
    again.put_behind(shelf, A.id, A.id)
    again.put_behind(shelf, A.id, "f" * 64)
    assert order(again, shelf, A) == "AC"


def test_a_volume_that_comes_later_finds_its_place_among_those_that_were_moved(kept):
    files = [entry("a", series="Wend", volume=1), entry("b", series="Wend", volume=5)]
    files.append(entry("d", series="Wend", volume=9))
    kept.put_behind([*files, C], C.id, files[0].id)
    kept.move([*files, C], files[1].id, -1)
    assert order(kept, [*files, C], C) == "ABCD", "B and C have changed places"
    later = entry("e", series="Wend", volume=7)
    assert order(kept, [*files, C, later], C) == "ABCED"
    kept.take_out(files[0].id)
    assert order(kept, [*files, C, later], C) == "BCED", "though its file says so"


def test_a_book_goes_from_one_series_into_another(kept):
    shelf = [A, B, C, D]
    kept.put_behind(shelf, B.id, A.id)
    kept.put_behind(shelf, D.id, C.id)
    kept.put_behind(shelf, B.id, C.id)
    assert order(kept, shelf, C) == "CBD" and kept.of(shelf, A.id) is None
    kept.put_behind(shelf, C.id, A.id)
    assert order(kept, shelf, A) == "ACBD", "a first volume takes its series along"


@pytest.mark.parametrize("other", [D, entry("e", series="Other", volume=1)])
def test_a_series_that_goes_behind_a_book_keeps_the_name_that_its_file_or_its_reader_gave(kept, other):
    """The name that stood in a file was gone, without a word."""
    one, two = entry("a", series="Wend", volume=2), entry("b", series="Wend", volume=3)
    shelf = [one, two, other]
    kept.put_behind(shelf, one.id, other.id)
    series = kept.of(shelf, one.id)
    assert order(kept, shelf, other) == f"{other.title}AB" and series.name == (other.series or "Wend")
    kept.put_behind([*shelf, C], other.id, C.id)
    assert kept.of([*shelf, C], C.id).name == (other.series or "Wend")


def test_a_book_that_was_taken_out_can_go_back_where_its_file_says(kept):
    one, two = entry("a", series="Wend", volume=1), entry("b", series="Wend", volume=2)
    kept.take_out(one.id)
    assert kept.of([one, two], one.id) is None
    kept.rejoin(one.id)
    assert order(kept, [one, two], one) == "AB"


def test_a_book_that_is_deleted_leaves_no_gap_and_nothing_behind(kept, tmp_path):
    shelf = [A, B, C]
    kept.put_behind(shelf, B.id, A.id)
    kept.put_behind(shelf, C.id, B.id)
    kept.rename(shelf, A.id, "Wend")
    assert order(kept, [A, C], A) == "AC", "off the shelf for now"
    assert order(kept, shelf, A) == "ABC", "and back in its place"
    kept.forget(B.id)
    assert order(kept, [A, C], A) == "AC" and B.id not in (tmp_path / "series.json").read_text()
    kept.forget(A.id)
    kept.forget(C.id)
    assert json.loads((tmp_path / "series.json").read_text()) == {"places": {}, "names": {}}


def test_a_damaged_file_costs_itself_alone_and_a_full_disk_changes_nothing(kept, tmp_path, monkeypatch):
    path = tmp_path / "series.json"
    for damaged in (
        "{",
        "[]",
        '{"places": {"a": 3}, "names": {}}',
        '{"places": {"a": ["k", "x"]}, "names": {}}',
    ):
        path.write_text(damaged)
        assert SeriesFile(path).of([A, B], A.id) is None
        assert path.with_name("series.damaged.json").read_text() == damaged and not path.exists()

    def full(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.store.series.write_whole", full)
    with pytest.raises(OSError):
        kept.put_behind([A, B], B.id, A.id)
    assert kept.of([A, B], A.id) is None


FIRST = (
    "Captain Orrin Hale came to Saltby in March. “Good day,” said Captain Hale, who was the pilot of the "
    "harbour. Nobody in Saltby was glad to see Captain Hale.\n\n“It is late,” said Hannah Rudd.\n\n",
    "“I am lost,” said Zyxomma Quint, who was a liar. Zyxomma wept in Wexmoor. Hannah Rudd saw Wexmoor "
    "burn.\n\n",
)
SECOND = (
    "“Who is there?” said Hale, who was old now. Hannah Rudd laughed. Everybody in Saltby heard Hannah Rudd. "
    "“Nobody,” said Captain Hale.\n\n",
    "“It was I,” said Zyxomma Quint, who was not dead. Zyxomma laughed.\n\n",
)
THIRD = ("“I never was in Saltby,” said Hannah Rudd, who was Markerwoman’s daughter. Hannah wept.\n\n",)


@pytest.fixture
def desk(make_desk, engine):
    """Three books; the second is open, and comes after the first; the third comes after it."""
    made = make_desk(engine)
    for letter, title, bodies in (("d", "Three", THIRD), ("c", "One", FIRST), ("e", "Two", SECOND)):
        made.shelf.put(replace(in_chapters(bodies), sha256=letter * 64, title=title), again=False, cover=b"")
    act(made, "book", id="d" * 64)
    act(made, "follow", value="e" * 64)
    act(made, "book", id="e" * 64)
    act(made, "follow", value="c" * 64)
    return made


def act(desk, name: str, **sent: str) -> None:
    desk.actions.dispatch({"act": name, **sent})


def known(desk) -> set[str]:
    wait_until(lambda: desk.state.names.known_before is not None)
    return set(desk.state.names.known_before)


def test_the_books_side_has_the_series_in_order_and_leads_to_its_volumes(desk):
    html = region(desk, "series")
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', html) == ["c", "e", "d"]
    act(desk, "volume-back", id="d" * 64)
    act(desk, "name-series", text="The Wend")
    html = region(desk, "series")
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', html) == ["c", "d", "e"]
    assert "Series: The Wend" in html and "3 volumes" in html
    act(desk, "leave-series")
    assert 'data-act="leave-series"' not in region(desk, "series") and "“" not in region(desk, "series")
    act(desk, "book", id="c" * 64)
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', region(desk, "series")) == ["c", "d"]


def said_of_the_volume(html: str) -> str:
    """What stands beside an earlier volume's title."""
    return re.search(r'class="name-earlier".*?<small>(.*?)</small>', html, re.DOTALL)[1]


def test_volume_2_knows_the_people_of_volume_1_and_leads_to_their_first_mention(desk):
    act(desk, "names-up-to", value="all")
    assert known(desk) == {"Captain Hale", "Hannah Rudd", "Saltby", "Zyxomma Quint"}
    act(desk, "name", id="Captain Hale")
    (mention,) = desk.state.names.earlier
    text = desk.library.get("c" * 64).text
    assert (mention.title, mention.name, mention.times) == ("One", "Captain Orrin Hale", 3)
    assert text[mention.first[0] :].startswith("Orrin Hale came to Saltby")
    html = region(desk, "names")
    assert "In “One”" in html and "the pilot of the harbour" in html
    assert "Captain Orrin Hale" in said_of_the_volume(html)
    at = str(mention.first[0])
    assert f'data-act="place" data-book="{"c" * 64}" data-offset="{at}"' in html
    act(desk, "place", book="c" * 64, offset=at, length="4")
    assert (desk.state.book_id, desk.state.passage.offset) == ("c" * 64, mention.first[0])


def test_nothing_comes_from_a_later_volume_nor_from_behind_the_open_ones_place(desk):
    act(desk, "names")
    assert "Zyxomma" not in region(desk, "names"), "volume 1 names her, volume 2 not up to here"
    act(desk, "names-up-to", value="all")
    known(desk)
    act(desk, "name", id="Hannah Rudd")
    html = region(desk, "names")
    assert [one.title for one in desk.state.names.earlier] == ["One"] and "Markerwoman" not in html
    act(desk, "book", id="c" * 64)
    act(desk, "names-up-to", value="all")
    assert known(desk) == set(), "the first volume knows of none"
    act(desk, "book", id="d" * 64)
    act(desk, "names-up-to", value="all")
    assert known(desk) == {"Hannah Rudd", "Saltby"}
    act(desk, "name", id="Hannah Rudd")
    assert [one.title for one in desk.state.names.earlier] == ["One", "Two"]


@pytest.mark.parametrize("asked", [True, False])
def test_an_earlier_volume_counts_up_to_its_own_spoiler_limit(desk, asked):
    """Also one that nothing was asked about yet."""
    act(desk, "book", id="c" * 64)
    if asked:
        assert desk.questions.ask("Who is it?")
        wait_until(lambda: not desk.state.busy)
    act(desk, "limit", value="1")
    act(desk, "book", id="e" * 64)
    act(desk, "names-up-to", value="all")
    assert known(desk) == {"Captain Hale", "Hannah Rudd", "Saltby"}
    act(desk, "name", id="Hannah Rudd")
    (mention,) = desk.state.names.earlier
    assert figures(said_of_the_volume(region(desk, "names"))) == [str(mention.times), "1"]
    act(desk, "name", id="Zyxomma Quint")
    assert desk.state.names.earlier == ()


def test_the_panel_follows_the_open_ones_limit_and_the_order(desk):
    act(desk, "limit", value="1")
    act(desk, "names")
    assert known(desk) == {"Captain Hale", "Hannah Rudd", "Saltby"}
    act(desk, "name", id="Captain Hale")
    act(desk, "limit", value="2")
    assert "Zyxomma Quint" in known(desk)
    wait_until(lambda: desk.state.names.earlier)
    act(desk, "leave-series")
    assert known(desk) == set() and desk.state.names.earlier == ()
    act(desk, "follow", value="c" * 64)
    assert "Captain Hale" in known(desk)


def test_a_deleted_volume_is_gone_from_the_series_and_back_when_that_is_undone(desk):
    act(desk, "forget", id="c" * 64)
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', region(desk, "series")) == ["e", "d"]
    act(desk, "names")
    assert known(desk) == set()
    act(desk, "undo", id="c" * 64)
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', region(desk, "series")) == [
        "c",
        "e",
        "d",
    ]
    act(desk, "forget", id="c" * 64)
    desk.trash.purge(all_of_them=True)
    act(desk, "book", id="e" * 64)
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', region(desk, "series")) == ["e", "d"]
    assert "c" * 64 not in desk.library.series._path.read_text()


def test_a_book_whose_text_is_gone_offers_neither_a_series_nor_other_books(desk):
    entries = desk.library.entries()
    current, asked = entries[0].id, ()
    assert series_html(entries, current, None) and asks_too_html(entries, asked, current)
    gone = [replace(one, missing=one.id == current) for one in entries]
    assert not series_html(gone, current, None) and not asks_too_html(gone, asked, current)


def test_a_book_whose_file_names_its_series_stands_in_it(desk):
    for letter, volume in (("a", 2.0), ("b", 1.0)):
        book = replace(in_chapters(FIRST), sha256=letter * 64, title=letter, series="Ferries", volume=volume)
        desk.shelf.put(book, again=False, cover=b"")
    html = region(desk, "series")
    assert "Series: Ferries" in html
    assert re.findall(r'class="volume" data-act="book" data-id="(.)', html) == ["b", "a"]
    act(desk, "leave-series")
    assert "Ferries" in region(desk, "series")
    act(desk, "rejoin-series")
    assert "Series: Ferries" in region(desk, "series")
