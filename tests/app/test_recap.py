"""Where the person is: what was read is told once more, up to there and no further."""

from __future__ import annotations

import pytest

from app.store.notebook import Notebook
from core.documents.document import Document
from tests.support.fake_runtime import wait_until
from tests.support.said import figures
from tests.support.stories import in_chapters, on_shelf, region, stand

VISIT = 'data-id="visit"'


@pytest.fixture
def story() -> Document:
    days = (f"Oddo rows over the harbour on day {number}. " * 20 for number in range(1, 6))
    return in_chapters(f"{told}\n\nEnd of {number}.\n\n" for number, told in enumerate(days, 1))


@pytest.fixture
def desk(make_desk, engine, story):
    return on_shelf(make_desk(engine), story)


def act(desk, name: str, **sent: str) -> None:
    desk.actions.dispatch({"act": name, **sent})
    wait_until(lambda: not desk.state.busy)


def test_this_chapter_is_told_up_to_the_paragraph_where_the_book_stands_open(desk, story):
    stand(desk, story, "Oddo rows over the harbour on day 3")
    act(desk, "recap", id="chapter")
    asked = desk.engine.asked[-1]
    assert asked.chapters == (3, 3) and asked.question is None and asked.summary_length == "paragraph"
    assert story.text[: asked.end].endswith("on day 3. ") or story.text[: asked.end].endswith("on day 3.")
    assert figures(desk.books.turns[-2].text) == ["3"]
    assert desk.chapters.summaries(story) == {}, "a part of a chapter is no summary of it"
    act(desk, "regenerate")
    assert desk.engine.asked[-1].end == asked.end and desk.engine.asked[-1].chapters == (3, 3)


def test_the_chapter_before_is_told_whole_and_kept(desk, story):
    stand(desk, story, "Oddo rows over the harbour on day 3")
    act(desk, "recap", id="before")
    assert desk.engine.asked[-1].chapters == (2, 2) and desk.engine.asked[-1].end is None
    assert list(desk.chapters.summaries(story)) == [2]


def test_since_the_last_visit_begins_where_that_began(desk, make_desk, engine, story):
    assert VISIT not in region(desk, "recap"), "it is the first"
    stand(desk, story, "Oddo rows over the harbour on day 2")
    second = make_desk(engine)
    second.resume()
    assert VISIT in region(second, "recap")
    stand(second, story, "Oddo rows over the harbour on day 4")
    third = make_desk(engine)
    third.resume()
    act(third, "recap", id="visit")
    asked = third.engine.asked[-1]
    assert asked.chapters == (2, 4) and story.text[: asked.end].rstrip().endswith("on day 4.")
    assert figures(third.books.turns[-2].text) == ["2", "4"]


def test_opening_the_book_twice_at_the_same_place_is_one_visit():
    first = Notebook(position=50, visit=10, visit_before=0)
    opened = first.visited()
    assert (opened.visit, opened.visit_before) == (50, 10) and opened.visited() == opened
    assert Notebook().visited() == Notebook()
    assert Notebook.from_json(opened.to_json()) == opened


def test_where_hardly_anything_was_read_nothing_is_asked(desk, story):
    stand(desk, story, "Chapter 3")
    act(desk, "recap", id="chapter")
    assert desk.engine.asked == [] and "read" in desk.state.notice.text
    act(desk, "stand", value="0")
    act(desk, "recap", id="before")
    act(desk, "recap", id="nonsense")
    assert desk.engine.asked == []


def test_a_limit_holds_a_recap(desk, story):
    stand(desk, story, "Oddo rows over the harbour on day 4")
    act(desk, "limit", value="2")
    act(desk, "recap", id="chapter")
    asked = desk.engine.asked[-1]
    assert asked.spoiler_limit == 2 and asked.chapters == (2, 2) and asked.end <= story.sections[1].end
