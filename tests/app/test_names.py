"""The panel of people, places and terms: up to where the person is, kept with the book, nothing behind it."""

from __future__ import annotations

import re

import pytest

from app.store.notebook import Notebook
from app.web.names import SHOWN_NAMES, columns
from app.web.page import Page
from core.documents.document import Document, Section
from tests.support.fake_runtime import wait_until
from tests.support.said import figures, text_in
from tests.support.stories import in_chapters, on_shelf, region, stand

FIRST = (
    "Mr. Ansell came to Saltby in March. “Good day,” said Mr. Ansell, who was an engineer. "
    "Hannah Rudd laughed.\n\n"
    "“It is late,” said Hannah. Nobody in Saltby saw Mr. Ansell go.\n\n"
)
SECOND = (
    "“I am Zyxomma,” said Zyxomma Quint, who was Hannah’s son. He lived in Wexmoor. Everybody in "
    "Wexmoor wept for Zyxomma.\n\n"
)
FRONT = "Printed by Pilkington Sons in Leeds. “Read it,” said Mr. Pilkington.\n\n"


@pytest.fixture
def story() -> Document:
    return in_chapters((FIRST, SECOND, FIRST), front=FRONT)


@pytest.fixture
def desk(make_desk, engine, story):
    return on_shelf(make_desk(engine), story)


def act(desk, name: str, **sent: str) -> None:
    desk.actions.dispatch({"act": name, **sent})


def shown(desk) -> str:
    return region(desk, "names")


def listed(desk) -> list[str]:
    return re.findall(r'data-act="name" data-id="([^"]*)"', shown(desk))


@pytest.mark.parametrize("partly", [False, True])
def test_parts_in_another_language_are_said_to_be_left_out(make_desk, engine, partly: bool):
    """Of a book with German letters the names in them were not there, as if nobody wrote them."""
    german = "„Guten Tag“, sagte Konrad, und er ging zu dem Hafen, der nicht weit war.\n\n" * 40
    desk = on_shelf(make_desk(engine), in_chapters((FIRST * 48, *[german] * partly)))
    act(desk, "names")
    act(desk, "names-up-to", value="all")
    assert "Hannah Rudd" in listed(desk)
    assert ('<p class="quiet">' in shown(desk).split('class="names-kinds"')[0]) is partly


def test_it_is_folded_until_wanted_and_looks_at_nothing_before(desk, monkeypatch):
    looked = []
    monkeypatch.setattr("app.desk.names.occurrences", lambda text, end: looked.append(end) or ())
    assert 'aria-expanded="false"' in shown(desk) and looked == []
    act(desk, "names")
    assert 'aria-expanded="true"' in shown(desk) and len(looked) == 1
    act(desk, "names")
    act(desk, "names")
    assert len(looked) == 1, "what was found up to a place is kept"


def test_who_occurs_up_to_here_with_first_and_last_place_and_the_sentence_that_introduces_them(desk, story):
    stand(desk, story, "Nobody in Saltby")
    act(desk, "names")
    assert listed(desk) == ["Mr. Ansell", "Hannah Rudd"]
    act(desk, "name", id="Mr. Ansell")
    html = shown(desk)
    assert (
        "“Good day,” said Mr. Ansell, who was an engineer." in html
        and figures(text_in(html, "name-mentions"))[0] == "3"
    )
    places = [one.start() for one in re.finditer("Ansell", story.text)][:3]
    assert all(f'data-act="cite" data-offset="{one}"' in html for one in places)
    act(desk, "name", id="Mr. Ansell")
    assert "name-card" not in shown(desk)
    act(desk, "names-kind", id="place")
    assert listed(desk) == ["Saltby"]
    act(desk, "names-kind", id="nonsense")
    assert desk.state.names.kind == "place"


def test_nothing_behind_the_place_is_shown_and_reading_on_adds(desk, story):
    """A marker stands behind the place, and one before the first chapter, which is no part of the story."""
    stand(desk, story, "Nobody in Saltby")
    act(desk, "names")
    before, html = listed(desk), shown(desk)
    assert "Zyxomma" not in html and "Wexmoor" not in html and "Pilkington" not in html
    assert all(end <= desk.state.names.end for one in desk.state.names.found for _start, end in one.mentions)
    stand(desk, story, "“I am")
    assert listed(desk) == before, "what lies open is not drawn anew while one reads"
    act(desk, "names-up-to", value="here")
    assert set(before) < set(listed(desk)) and "Zyxomma Quint" in listed(desk)


def test_going_back_takes_nothing_away_unless_it_is_wanted(desk, make_desk, engine, story):
    """A mention that is looked up in an earlier chapter does not fold the panel up to there."""
    stand(desk, story, "“I am")
    act(desk, "names")
    there = desk.state.names.end
    act(desk, "cite", offset=str(story.text.index("Mr. Ansell")), length="10")
    assert desk.state.names.end == there and "Zyxomma Quint" in listed(desk)
    again = make_desk(engine)
    again.resume()
    act(again, "names")
    assert again.state.names.end == there, "kept with the book"
    act(again, "names-up-to", value="here")
    assert again.state.names.end < there and "Zyxomma Quint" not in listed(again)


def test_a_limit_holds_the_panel_and_further_on_there_is_more(desk, story):
    act(desk, "limit", value="1")
    act(desk, "names")
    first = listed(desk)
    assert desk.state.names.end == story.sections[1].end and "Zyxomma" not in shown(desk)
    act(desk, "names-up-to", value="all")
    assert listed(desk) == first, "all that may be read"
    act(desk, "limit", value="2")
    assert set(first) < set(listed(desk)) and "Zyxomma Quint" in listed(desk)
    act(desk, "limit", value="1")
    assert listed(desk) == first and "Zyxomma" not in shown(desk)
    act(desk, "limit", value="0")
    assert listed(desk) == first, "that there is no limit any more tells nothing"
    act(desk, "names-up-to", value="all")
    assert desk.state.names.end == len(story.text)


def test_what_is_named_once_comes_when_it_is_asked_for(desk, make_desk, engine):
    many = "".join(
        f"“Yes,” said Mr. Abel{chr(97 + n)}son, and Mr. Abel{chr(97 + n)}son ate.\n\n" for n in range(20)
    )
    text = many + "“No,” said Mr. Zacharias.\n\n"
    desk.shelf.put(
        Document("Many", "", "txt", text, (Section("", 0, len(text)),), sha256="d" * 64),
        again=False,
        cover=b"",
    )
    act(desk, "names-up-to", value="all")
    assert len(listed(desk)) == SHOWN_NAMES and "9" in figures(text_in(shown(desk), "names-every"))
    act(desk, "names-every")
    assert len(listed(desk)) == 21 and "Mr. Zacharias" in listed(desk)


def sentences_of_nobody(desk) -> int:
    return instead_of_names(desk).count(".")


def instead_of_names(desk) -> str:
    return text_in(shown(desk), 'class="quiet"')


@pytest.mark.parametrize("limit", ["", "1"])
def test_where_nobody_is_named_one_is_sent_on_only_where_there_is_a_way(make_desk, engine, limit):
    """Under a limit, and at the end of a book, “Up to here” is not there to be pressed."""
    desk = on_shelf(make_desk(engine), in_chapters(("It was warm and dry.\n\n" * 9,) * 2))
    act(desk, "limit", value=limit)
    act(desk, "names")
    assert sentences_of_nobody(desk) == (2 if limit == "" else 1)
    act(desk, "limit", value="")
    act(desk, "names-up-to", value="all")
    assert sentences_of_nobody(desk) == 1


def test_a_book_in_another_language_says_so(desk):
    """And not that nobody is named; nor does the page offer to ask who is in it."""
    on_shelf(desk, in_chapters(("It was warm and dry.\n\n" * 9,)))
    act(desk, "names")
    act(desk, "names-up-to", value="all")
    nobody, offered = instead_of_names(desk), Page(desk).render()["suggestions"][0]
    text = "Der Graf ging mit der Frau nach Wien, und sie sah den Mann nicht, der aus dem Haus kam. " * 20
    desk.shelf.put(
        Document("Graf", "", "txt", text, (Section("", 0, len(text)),), sha256="e" * 64),
        again=False,
        cover=b"",
    )
    act(desk, "names")
    assert instead_of_names(desk) != nobody
    assert offered.count("data-text") == Page(desk).render()["suggestions"][0].count("data-text") + 1
    assert desk.state.names.chosen == "" and listed(desk) == []


def test_where_somebody_is_named_is_drawn_up_to_the_place_alone():
    drawn = columns(((0, 4), (5, 9), (359, 363)), 360)
    assert (drawn[0], drawn[-1], sum(drawn)) == (1.0, 0.5, 1.5)


def test_how_far_it_was_shown_is_read_back_and_an_earlier_notebook_has_none():
    kept = Notebook(position=3, names_end=9)
    assert Notebook.from_json(kept.to_json()) == kept
    assert Notebook.from_json({"position": 3, "bookmarks": []}).names_end is None
    with pytest.raises(ValueError):
        Notebook.from_json({"position": 3, "bookmarks": [], "names_end": -1})


def test_the_outline_of_a_chapter_is_made_once_with_its_summary_and_names_its_own(desk, story, monkeypatch):
    """Whom and where the chapter names, by the text up to its end, and nobody from behind it."""
    act(desk, "tell", value="1")
    wait_until(lambda: not desk.state.busy)
    act(desk, "cite", offset=str(story.sections[1].start), length="0")
    html = "".join(map(str, Page(desk).render()["told"]))
    assert "Mr. Ansell, Hannah Rudd" in html and "Saltby" in html and "Zyxomma" not in html
    made = []
    monkeypatch.setattr("app.desk.chapters.named_within", lambda *asked: made.append(asked))
    act(desk, "tell", value="1")
    wait_until(lambda: not desk.state.busy)
    assert made == [], "once for a chapter"
    act(desk, "limit", value="1")
    assert list(desk.chapters.outlines(desk.books.known)) == [1]


def test_a_damaged_outline_costs_itself_alone(desk, story):
    path = next(desk.library._root.glob("c*")) / "outlines.json"
    for damaged in ("{", "[]", '{"a": 1, "b": {"person": [1], "place": []}}'):
        path.write_text(damaged, encoding="utf-8")
        assert desk.library.outlines(story.sha256) == {}
