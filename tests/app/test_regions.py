"""Regions of the page name the values that they show: they get no others and are drawn for no others."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from app.desk.state import AppState
from app.desk.values import BookSearch, ComparisonRun, DiskShortage, Notice, ReadingsUsage, ShownPassage
from app.models.local_files import FileInspection, FolderChoice
from app.store.notebook import Bookmark
from app.web.answers import AnswerViews
from app.web.page import Page
from app.web.region_cache import RegionMemo, RegionValues, names_of
from app.web.region_table import REGIONS, answer_regions
from app.web.values import derived, sources
from core.documents.finding import Places
from core.request import Request
from tests.support.desks import card, done
from tests.support.fake_runtime import wait_until

ALL = {**REGIONS, **answer_regions(AnswerViews())}
ONCE_READ = ("ready",)  # by the page itself
# what is made of fields of the state by others than app.web.values
MADE_OF = {
    "is_answered_here": ("answer", "answer_place", "conversation_id", "comparing"),
    "shown_answer": ("answer", "answer_place", "conversation_id"),
    "answer_elsewhere": ("answer", "answer_place", "conversation_id"),
    "shown_overflow": ("overflow", "book_id", "conversation_id"),
    "card": ("book_id", "spoiler_limit"),
    "room": ("book_id", "conversation_id", "spoiler_limit", "chapters", "selected_chapters"),
}


def shown_by(desk, name: str) -> set[str]:
    """The names of all values that a region shows, those that others are made of among them."""
    made, found = derived(desk), set()
    waiting = list(names_of(ALL[name]))
    while waiting:
        one = waiting.pop()
        found.add(one)
        waiting += names_of(made[one]) if one in made else MADE_OF.get(one, ())
    return found


def counted(page: Page) -> dict[str, int]:
    """How often each region is drawn from now on."""
    drawn = dict.fromkeys(page._regions, 0)

    def count(name: str, make):
        def again(**given):
            drawn[name] += 1
            return make(**given)

        again.__signature__ = inspect.signature(make)
        return again

    page._regions = {name: count(name, make) for name, make in page._regions.items()}
    return drawn


def test_every_name_is_a_value(desk):
    known = {*sources(desk), *derived(desk), *ONCE_READ, *(one.name for one in fields(AppState))}
    known |= {name for name, one in vars(AppState).items() if isinstance(one, property)}
    named = [*ALL.values(), *derived(desk).values()]
    assert {name for make in named for name in names_of(make)} - known == set()


def reads_elsewhere(make) -> set[str]:
    """What a region could read beside what it names."""
    return set(inspect.getclosurevars(make).nonlocals)


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_gets_the_values_that_it_names_and_can_reach_no_other(desk, name):
    assert reads_elsewhere(REGIONS[name]) == set()
    services = [*vars(desk).values(), desk, desk.state]
    view = RegionValues(
        lambda: desk.state, {**sources(desk), "ready": lambda: True}, derived(desk), RegionMemo()
    )
    given = view.of(REGIONS[name])
    assert not any(one is service for one in given for service in services)
    assert all(one.__dataclass_params__.frozen for one in given if is_dataclass(one))


def test_one_that_reads_what_it_does_not_name_is_found(desk):
    def cheats(notice: Notice | None) -> str:
        return f"{notice} {desk.state.book_id}"

    assert reads_elsewhere(cheats) == {"desk"}
    with pytest.raises(AttributeError, match="no_such"):
        RegionValues(lambda: desk.state, {}, {}, RegionMemo()).of(lambda no_such: "")


OTHERS = {
    "passage": ShownPassage(9, 3),
    "book_search": BookSearch("lamp", False, Places(((11, 15),), 1)),
    "chapters": (1, 2),
    "selected_chapters": (2,),
    "comparing": ComparisonRun(3, 1.0),
    "queued": Request("Who waits?"),
    "shortage": DiskShortage(Path("drive"), 9, 10, ()),
    "shelf_search": "lamp",
    "kept": ReadingsUsage(9, 10, ()),
    "choosing": FolderChoice(error="none"),
    "looking": FileInspection("a.gguf", 3.0),
    "notice": Notice("Something."),
    "closable": True,
    "was_left": True,
    "spoiler_limit": 1,
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_field_that_changes_draws_the_regions_that_name_it_and_no_others(desk, field):
    wait_until(lambda: card(desk))
    page = Page(desk)
    wait_until(lambda: page.render()["meter"] != ("",) and page._is_ready())
    page.render()
    drawn = counted(page)
    page.render()
    assert set(drawn.values()) == {0}, "nothing has changed"
    desk.store.update(**{field: OTHERS[field]})
    page.render()
    again = {name for name, times in drawn.items() if times}
    assert again <= {name for name in ALL if field in shown_by(desk, name)}
    assert again, "nobody shows it"
    desk.store.update(**{field: OTHERS[field]})
    page.render()
    # once more; of another limit the card comes later
    assert max(drawn.values()) <= 1 or field == "spoiler_limit"


def test_a_page_that_was_kept_up_shows_what_a_new_one_shows(desk, book):
    """Whatever is done, in whatever order: nothing stays that does not hold any more."""
    wait_until(lambda: card(desk))
    kept = Page(desk)
    acts = [
        {"act": "summarize"},
        {"act": "tick", "id": "2"},
        {"act": "find", "text": "lamp"},
        {"act": "mark", "offset": "7", "text": "The keeper lit"},
        {"act": "note", "offset": "7", "text": "Who?"},
        {"act": "limit", "value": "1"},
        {"act": "tell", "value": "1"},
        {"act": "instruct", "value": "Briefly."},
        {"act": "search", "text": "keeper"},
        {"act": "suggest", "text": "Who?"},
        {"act": "regenerate"},
        {"act": "version", "id": "6", "value": "1"},
        {"act": "fork", "value": "2"},
        {"act": "rename-talk", "id": "", "text": "Another"},
        {"act": "length", "value": "own"},
        {"act": "new"},
        {"act": "limit", "value": "0"},
        {"act": "forget", "id": book.sha256},
        {"act": "undo", "id": book.sha256},
    ]
    for one in acts:
        desk.actions.dispatch(one)
        done(desk)
        wait_until(lambda: desk.engine.state == "ready" and desk.books.current is None or card(desk))
        settled(kept)
        assert settled(kept) == settled(Page(desk)), one


def settled(page: Page) -> dict:
    """What it shows once the book is prepared and the engine has said how full the context is."""
    page.render()
    if page._view["known"] is not None:
        wait_until(page._is_ready)
    shown = page.render()
    wait_until(lambda: (now := page.render()) == page.render() and now["meter"] is not None)
    return page.render() if shown else shown


def test_a_bookmark_elsewhere_is_no_reason_to_draw_the_marks(desk):
    """Only what may be read of the book is shown of the notebook."""
    page = Page(desk)
    page.render()
    drawn = counted(page)
    behind = Bookmark(10**6, 3, "far")
    desk.store.update(notebook=replace(desk.state.notebook.with_bookmark(behind), position=9))
    page.render()
    assert drawn["marks"] == 0
