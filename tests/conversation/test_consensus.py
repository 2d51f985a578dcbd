"""Which of several short answers is given, and how the others are drawn."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation.consensus import agreed, drawn
from core.conversation.reading import ReadingStyle
from core.events import VerificationResult
from core.request import Params
from tests.support.fakes import CharTokenizer
from tests.support.ferry import HIDDEN, QUESTION, reader, shown, told
from tests.support.talks import STYLE, ask, encoded, finished, make

PLANK = "Under the third plank of the jetty."
WELL = "Oddo hid it."
SAME = "The third plank of the jetty."


@pytest.mark.parametrize(
    ("answers", "which"),
    [
        (["a fox"], 0),
        (["a fox", "the old man", "an old man of Hull", "the old man"], 1),
        (["a fox", "the old man", "An OLD man.", "old men"], 1),  # of equals the first; articles say nothing
        (["a fox", "an owl"], 0),
        (["", "", "an owl"], 0),
    ],
)
def test_the_answer_that_all_agree_with_most_is_given(answers: list[str], which: int):
    assert agreed(answers)[0] == which


def test_how_far_they_agree_is_the_mean_over_all_that_were_drawn():
    assert agreed(["a fox"]) == (0, 1.0)
    assert agreed(["a fox", "an owl"]) == (0, 0.5)
    assert agreed(["a fox", "the fox"], others=2) == (0, 0.5), "a refusal agrees with none"
    # two of three words of the one are all of the other's
    assert agreed(["grey fox", "fox"]) == (0, pytest.approx((1 + 2 / 3) / 2))


def test_without_answers_there_is_nothing_to_agree_on():
    with pytest.raises(ValueError):
        agreed([])


def test_each_answer_is_drawn_with_a_seed_of_its_own_and_at_least_as_varied_as_asked():
    style = ReadingStyle(consensus=3, consensus_temperature=0.7)
    cold = list(drawn(style, Params(temperature=0.0, seed=5, max_new_tokens=9)))
    assert [one.seed for one in cold] == [6, 7, 8]
    assert {(one.temperature, one.top_p, one.max_new_tokens) for one in cold} == {(0.7, 1.0, 9)}
    assert {one.temperature for one in drawn(style, Params(temperature=1.2))} == {1.2}
    assert not list(drawn(ReadingStyle(), Params())), "a model that was not measured answers once"


def agreeing(replies: list[str], count: int = 3, **style):
    """A session whose answers from the passage with the plank come in this order."""
    said, order = reader(HIDDEN), iter(replies)

    def reply(ids, params):
        return encoded(next(order)) if "third plank" in CharTokenizer().decode(ids) else said(ids, params)

    return make(reply, style=dataclasses.replace(STYLE, consensus=count, **style))


def test_more_answers_are_drawn_from_the_passage_that_says_it_and_the_one_they_agree_on_is_given():
    session, engine = agreeing([WELL, PLANK, SAME, PLANK])
    events = ask(session, told(), QUESTION, reading_mode="retrieval", params={"temperature": 0.0, "seed": 7})
    done = finished(events)
    assert done.text.split("\n\n")[0] == PLANK and shown(events) == done.text
    how = [(one.temperature, one.seed) for one in engine.params[-4:]]
    assert how == [(0, 7), (0.7, 8), (0.7, 9), (0.7, 10)]
    # the figures are those of the answer that is given; what was written for it stands apart
    assert done.stats.new_tokens <= len(PLANK) + 1 and done.stats.answers >= 4
    assert done.stats.all_tokens > len(WELL + PLANK * 2 + SAME)
    assert done.drawn["temperature"] == 0.7 and done.drawn["top_p"] == 1.0 and not done.drawn["instructed"]
    assert told().text[slice(*done.drawn["passage"])].count("third plank")
    # what was read of the passage is read once: 2,000 characters of it lie before the question
    assert all(fed < 300 for fed in engine.fed[-3:])


def test_a_drawn_refusal_and_one_that_the_passage_does_not_bear_out_are_not_given():
    session, _engine = agreeing([PLANK, STYLE.refusal, "In Rome with Caesar.", "In Rome with Caesar."])
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.split("\n\n")[0] == PLANK


def test_where_the_first_answer_does_not_count_those_that_are_drawn_still_may():
    """The likeliest answer of a model that does not doubt a passage may be beside the point."""
    session, _engine = agreeing([STYLE.refusal, PLANK, "In Rome with Caesar.", SAME])
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.split("\n\n")[0] in (PLANK, SAME)
    assert done.drawn["agreed"] < 0.5, "what does not count agrees with none"


def test_where_no_answer_counts_the_next_passage_is_asked():
    said = reader(HIDDEN)
    order = iter([STYLE.refusal, "In Rome with Caesar.", STYLE.refusal, STYLE.refusal])

    def reply(ids, params):
        priest = "priest" in CharTokenizer().decode(ids)
        return encoded(next(order)) if priest else said(ids, params)

    session, _engine = make(reply, style=dataclasses.replace(STYLE, consensus=3))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(PLANK), done.text
    assert done.stats.answers == 2 * 4, "what was drawn and not given counts as written"
    assert len(done.sources) == 2


def test_stopped_while_more_are_drawn_the_answer_that_is_there_is_given():
    session, engine = agreeing([PLANK, WELL, WELL, WELL])

    def stop() -> bool:
        return len(engine.prompts) == before

    ask(session, told(), QUESTION, reading_mode="retrieval", conversation="to see how many are read")
    before = len(engine.prompts) - 1  # the last but one that is drawn is stopped
    session, engine = agreeing([PLANK, WELL, WELL, WELL])
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=stop))
    assert done.text.split("\n\n")[0] == PLANK and done.reason == "stop"
    assert len(engine.prompts) == before


def test_an_answer_that_is_judged_is_judged_in_its_passage_by_the_law_it_was_drawn_from(monkeypatch):
    """Judged by the last draw's law, or behind another passage, a token may be called impossible."""
    judged = []

    def judge(turns, run, key, text, question, params, ids):
        judged.append((key, params.temperature, params.top_p, params.mode, tuple(ids), question))
        return VerificationResult(len(ids), 0, 0, 0.0, 0.1)

    monkeypatch.setattr("core.conversation.turns.Turns.judged", judge)
    session, _engine = agreeing([WELL, PLANK, SAME, PLANK])
    first = finished(
        ask(session, told(), QUESTION, reading_mode="retrieval", params={"temperature": 0.0, "seed": 7})
    )
    session, _engine = agreeing([WELL, WELL, WELL, WELL])
    plain = finished(
        ask(
            session,
            told(),
            QUESTION,
            reading_mode="retrieval",
            params={"temperature": 0.0, "seed": 7, "mode": "autoregressive"},
            compare=first.decoded,
            drawn=first.drawn,
        )
    )
    ((key, temperature, top_p, mode, ids, question),) = judged
    assert key[1:] == ("passage", *first.drawn["passage"]) and QUESTION in question
    assert (temperature, top_p, mode, ids) == (0.7, 1.0, "autoregressive", first.decoded)
    assert plain.stats.verified.tokens == len(first.decoded)
    judged.clear()
    session, _engine = agreeing([WELL, WELL, WELL, WELL])
    ask(session, told(), QUESTION, reading_mode="retrieval", compare=first.decoded)
    assert judged == [], "of an answer of an earlier version nobody knows how it was drawn"
