"""What the page's buttons do, and what its choices mean to the engine."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest

from app.desk import action_table

NAMES = re.findall(r'^        "([a-z-]+)": action', inspect.getsource(action_table), re.MULTILINE)


def send(desk, **data: str) -> None:
    desk.actions.dispatch(data)


def test_sampling_is_the_models_own_unless_the_reader_wants_another(desk):
    names = {"temperature", "top_p", "repetition_penalty"}
    assert not names & desk.requests.make().params.keys()
    for key, value in (("temperature", "0.7"), ("max_new_tokens", "64"), ("seed", "5"), ("stop", '["END"]')):
        send(desk, act="set", id=key, value=value)
    params = desk.requests.make().params
    assert params["temperature"] == 0.7 and params["max_new_tokens"] == 64 and params["seed"] == 5
    assert params["stop"] == ("END",) and "top_p" not in params
    send(desk, act="set", id="temperature", value="auto")
    assert "temperature" not in desk.requests.make().params


def test_no_seed_means_another_one_every_time(desk):
    seeds = {desk.requests.make().params["seed"] for _ in range(4)}
    assert len(seeds) == 4 and 0 not in seeds


def test_the_choices_beside_summarize_reach_the_wish(desk):
    send(desk, act="from", value="2")
    send(desk, act="length", value="chapters")
    send(desk, act="reading-mode", value="chunked")
    wish = desk.requests.make()
    assert (wish.chapters, wish.summary_length, wish.reading_mode) == ((2, 2), "chapters", "chunked")
    send(desk, act="to", value="1")
    assert desk.requests.make().chapters == (1, 2), "the other way round means the same"
    send(desk, act="from", value="99")
    send(desk, act="to", value="")
    assert desk.state.chapters == (0, 0) and desk.requests.make().chapters is None


def test_the_books_own_sentences_are_one_of_the_lengths_and_keep_the_length(desk):
    send(desk, act="length", value="chapters")
    assert desk.preferences.origin("summaries") == "default", "what was not chosen is not set"
    send(desk, act="length", value="own")
    wish = desk.requests.make()
    assert (wish.summaries, wish.summary_length) == ("own", "chapters")
    send(desk, act="length", value="page")
    wish = desk.requests.make()
    assert (wish.summaries, wish.summary_length) == ("auto", "page")


@pytest.mark.parametrize("name", NAMES)
def test_every_action_fits_what_it_calls(desk, name):
    """A field that its handler does not take, or takes for something else, is found before a click."""
    one = desk.actions._table[name]
    wanted = inspect.signature(one.do).parameters
    inspect.signature(one.do).bind(**one.fields)
    for key, field in one.fields.items():
        assert wanted[key].annotation.removesuffix(" | None") == field.type.__name__, key


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        {"act": 5},
        {"act": "nothing"},
        {"act": "limit", "value": "one"},
        {"act": "limit", "value": "-1"},
        {"act": "limit", "value": "²"},
        {"act": "limit", "value": "9" * 40},
        {"act": "turn", "value": "over"},
        {"act": "book", "id": "../../etc/passwd"},
        {"act": "book", "id": {"a": 1}},
    ],
)
def test_what_a_browser_may_not_send_changes_nothing(desk, sent):
    before = desk.state
    desk.actions.dispatch(sent)
    assert replace(desk.state, notice=None) == before


def test_texts_are_cut_where_their_field_ends(desk):
    send(desk, act="refused", name="x" * 5000, limit="9")
    (said,) = desk.state.failures
    assert len(said) < 300 and "9 MB" in said
