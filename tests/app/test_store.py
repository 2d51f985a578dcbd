"""One place replaces what lies on the desk."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError, replace

import pytest

from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import ComparisonRun, Notice
from tests.support.said import worded_by


def test_a_state_is_replaced_and_the_one_before_stays_what_it_was():
    store, seen = Store(), []
    before = store.state
    store.watch(lambda: seen.append(store.state))
    after = store.update(lambda now: replace(now, selected_chapters=(1,)), spoiler_limit=3)
    assert (before, after) == (AppState(), AppState(selected_chapters=(1,), spoiler_limit=3)) and seen == [
        after
    ]
    with pytest.raises(FrozenInstanceError):
        after.spoiler_limit = 4


def test_no_change_is_lost_between_threads():
    store = Store()

    def count() -> None:
        for _ in range(500):
            store.update(lambda now: replace(now, answers=now.answers + 1))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert store.state.answers == 4000


def test_whoever_watches_may_look_and_change():
    """A watcher that waited for the lock would stand still for ever."""
    store = Store()
    store.watch(lambda: store.state.notice or store.say("Seen."))
    store.update(spoiler_limit=1)
    assert store.state.notice == Notice("Seen.")


def test_what_must_not_be_done_now_is_refused_in_words():
    store = Store()
    assert not store.refuse_while_busy() and store.state.notice is None
    store.update(comparing=ComparisonRun())
    assert store.refuse_while_busy() and worded_by(Store.refuse_while_busy, store.state.notice.text)
