"""What is said keeps its entry and its values on every way, and becomes words where it is shown."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from core.errors import UserError
from core.events import Failed, Finished, Loading, ReadingStep, Stats
from core.text.packing import from_json, from_text, to_json_text, to_text
from core.text.words import Message, duration, in_language, joined_sentences, listed_texts, localized, size
from core.text.words import translated as _
from core.text.words import translated_count as _n
from core.wire import from_line, pack, to_line, unpack

KEPT = _("{reason} The earlier answer is kept.").format(reason=_("The engine is not running."))
GERMAN = "Die Engine läuft nicht. Die frühere Antwort bleibt."
CHINESE = "引擎未运行。先前的回答会保留。"


def here(code: str, text: str) -> str:
    with in_language(code):
        return str(localized(text))


def by_the_pipe(message: Message) -> str:
    event = unpack(from_line(to_line({"id": 1, "event": pack(Failed(message))}))["event"])
    return event.message


WAYS = {
    "an error": lambda one: str(UserError(one)),
    "the pipe": by_the_pipe,
    "a file": lambda one: from_json(to_json_text({"notes": [one]}))["notes"][0],
    "a title": lambda one: from_text(to_text(one)),
    "a copy": copy.deepcopy,
    "a process": lambda one: pickle.loads(pickle.dumps(one)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_message_comes_as_it_was_sent(way: str):
    come = WAYS[way](KEPT)
    assert (here("en", come), here("de", come), here("zh", come)) == (str(KEPT), GERMAN, CHINESE)


def test_every_event_keeps_what_it_says():
    label = _("Chapter {first}").format(first="IV")
    events = (
        Loading(_("Loading the model"), 0.5),
        ReadingStep(1, 2, label),
        Finished("stop", "x", Stats(), sources=(label,), notes=(KEPT,), plan={"notes": (KEPT,)}),
    )
    loading, reading, done = (unpack(from_line(to_line(pack(one)))) for one in events)
    assert here("de", loading.stage) == "Modell wird geladen"
    assert here("de", reading.label) == here("de", done.sources[0]) == "Kapitel IV"
    assert [here("de", one) for one in (*done.notes, *done.plan["notes"])] == [GERMAN, GERMAN]


@pytest.mark.parametrize("value", ["{reason}", "{0} {", "}}", "{reason.__class__}", "%s {reason!r:>9}"])
def test_a_value_is_never_read_as_an_entry(value: str):
    """A book may be called anything."""
    said = _("“{title}” was deleted here in the meantime.").format(title=value)
    assert value in said and value in localized(from_json(to_json_text(said)))
    inside = _("{reason} The earlier answer is kept.").format(reason=value)
    assert here("de", from_text(to_text(inside))) == f"{value} Die frühere Antwort bleibt."


def test_counts_quantities_and_rows_of_messages_are_of_the_language_that_looks():
    counted = _n("{count} word", "{count} words", 1200).format(count=f"{1200:,}")
    assert (counted, here("de", from_json(to_json_text(counted)))) == ("1,200 words", "1.200 Wörter")
    assert here("de", _n("{count} word", "{count} words", 1).format(count=1)) == "1 Wort"
    row = from_json(to_json_text(listed_texts((size(9.1e9), duration(5400)))))
    assert (row, here("de", row), here("zh", row)) == ("9.1 GB, 1.5 h", "9,1 GB, 1,5 h", "9.1 GB、1.5 小时")
    assert here("zh", joined_sentences(KEPT, KEPT)) == CHINESE * 2, (
        "a full stop of Chinese brings its own space"
    )


def test_what_is_made_for_a_page_is_no_less_a_message():
    """A notice that a German page brought about may be looked at in English."""
    with in_language("de"):
        made = _("{reason} The earlier answer is kept.").format(reason=_("The engine is not running."))
        big = size(9.1e9)
    assert (made, big) == (GERMAN, "9,1 GB")
    assert (localized(made), localized(big), here("zh", made)) == (str(KEPT), "9.1 GB", CHINESE)


def test_json_for_programs_is_english_text():
    assert json.loads(json.dumps({"notes": [KEPT]})) == {"notes": [str(KEPT)]}


def test_what_an_older_version_kept_and_what_a_newer_one_has_no_more_are_shown():
    assert here("de", "The engine is not running.") == "The engine is not running.", "text is text"
    gone = {
        "said": 1,
        "template": "The {thing} of old was {kind}.",
        "values": {"thing": "lamp", "kind": "lit"},
    }
    assert here("de", from_json(json.dumps(gone))) == "The lamp of old was lit."


@pytest.mark.parametrize(
    "template", ["{a.__class__}", "{a[0]}", "{a:>999999999}", "{a:{b}}", "{", "{missing}", "{}", "{a:d}"]
)
def test_a_stranger_sends_no_more_than_text(template: str):
    """The process that parsed a book is not trusted; what it says is at most shown."""
    sent = {"said": 1, "template": template, "values": {"a": "x", "b": 9}}
    assert from_json(json.dumps(sent)) == template
    for odd in ({**sent, "values": 3}, {**sent, "template": 3}, {**sent, "said": 99}, {**sent, "many": 3}):
        from_json(json.dumps(odd))
