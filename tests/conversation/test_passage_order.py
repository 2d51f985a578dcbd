"""Passages in the model's order: how likely the question is behind each, and what it doubts."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation.asking import asked_of_passage
from core.request import HistoryTurn
from tests.support.fakes import CharTokenizer
from tests.support.ferry import FACTS, HIDDEN, LOST, QUESTION, REFUSAL, prompts, reader, told
from tests.support.talks import STYLE, ask, finished, make


def doubting(
    answers: dict[str, str],
    likely: dict[str, float],
    asked: dict[str, float] | None = None,
    **weights: float | None,
):
    """A session whose model would refuse so likely about the passages with these words, and find the question
    so likely behind those of `asked`. What it was asked the likelihood of is kept.
    """
    style = dataclasses.replace(STYLE, **{"doubt": -2.0, **weights})
    session, engine = make(reader(answers), style=style)
    heard = []

    def weighed(ids, said) -> list[float]:
        heard.append(CharTokenizer().decode(said))
        prompt, tail = CharTokenizer().decode(ids), len(REFUSAL)

        def value(known: dict[str, float], usual: float) -> float:
            return next((one for words, one in known.items() if words in prompt), usual)

        # the wording around the person's own words counts for nothing
        start = heard[-1].index(QUESTION)
        own = value(asked or {}, -50.0) / len(QUESTION)
        around = [-1e6 * len(ids)] * (len(said) - len(QUESTION) - tail)
        around[start:start] = [own] * len(QUESTION)
        return [*around, *([value(likely, -99.0) / tail] * tail)]

    engine.likely = weighed
    return session, engine, heard


@pytest.mark.parametrize(("likely", "given"), [(-1.9, False), (-2.1, True)])
def test_a_passage_that_the_model_doubts_gives_no_answer(likely: float, given: bool):
    """Greedy text does not tell it: a refusal of one in three is never written."""
    session, engine, heard = doubting(HIDDEN, {"third plank": likely})
    text = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text
    assert text.startswith("Under the third plank" if given else "The book does not seem to say.")
    assert heard and all(one.endswith(REFUSAL) and QUESTION in one for one in heard)


def test_a_doubted_passage_is_not_asked():
    session, engine, _ = doubting({**HIDDEN, "priest": LOST}, {"priest": -0.5})
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(HIDDEN["third plank"]) and done.sources == ("a passage of Chapter 1",)
    written = [one for one in prompts(engine) if one.endswith(QUESTION)]
    assert len(written) == 1 and "third plank" in written[0]


@pytest.mark.parametrize(
    ("asked", "likely", "weights", "first"),
    [
        ({}, {}, {}, LOST),  # by words
        ({"third plank": -20.0}, {}, {"asked_weight": 1.0}, HIDDEN["third plank"]),
        ({"priest": -20.0}, {}, {"asked_weight": 1.0}, LOST),
        ({"third plank": -20.0}, {}, {}, LOST),  # a model that was not measured to gain by it
        ({}, {"priest": -5.0}, {"refused_weight": 1.0}, HIDDEN["third plank"]),
        ({"priest": -20.0}, {"priest": -70.0}, {"asked_weight": 1.0, "refused_weight": 1.0}, LOST),
    ],
)
def test_the_model_puts_the_passages_in_order(asked: dict, likely: dict, weights: dict, first: str):
    """The question is likelier behind the passage that answers it, and the refusal less so."""
    session, _, _ = doubting({**HIDDEN, "priest": LOST}, likely, asked, **weights)
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith(first)


@pytest.mark.parametrize(("margin", "given"), [(0.0, True), (0.5, False)])
def test_a_question_no_likelier_behind_its_passage_than_behind_others_is_doubted(margin: float, given: bool):
    asked = {"third plank": -60.0}  # 50 behind the others
    session, _, _ = doubting(HIDDEN, {"third plank": -2.5}, asked, margin_weight=margin)
    text = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text
    assert text.startswith("Under the third plank") is given


@pytest.mark.parametrize(
    ("name", "chapters_between", "given"), [("Brandt", 3, True), ("Brandt", 11, False), ("Ogilvie", 11, True)]
)
def test_a_passage_far_from_every_name_of_the_question_is_not_asked(
    name: str, chapters_between: int, given: bool
):
    """Another chapter tells of other ships. A name that the book does not know may be a slip."""
    book = told((FACTS[0], *["Nothing came to pass."] * chapters_between, FACTS[2]))
    session, _, _ = doubting(HIDDEN, {})
    text = finished(ask(session, book, f"{QUESTION} Of {name}.", reading_mode="retrieval")).text
    assert text.startswith(HIDDEN["third plank"] if given else "The book does not seem to say.")


def test_a_follow_up_is_about_the_names_of_the_question_before_it():
    book = told((FACTS[0], *["Nothing came to pass."] * 11, FACTS[2]))
    session, _, _ = doubting(HIDDEN, {})
    said = (HistoryTurn("What had Brandt?", "A key of copper.", (5,)),)
    text = finished(
        ask(session, book, f"{QUESTION} Was it hers?", reading_mode="retrieval", history=said)
    ).text
    assert text.startswith("The book does not seem to say.")


def test_where_the_model_refuses_the_nearest_passages_are_shown_in_its_order():
    session, _, _ = doubting({}, {}, {"third plank": -20.0}, asked_weight=1.0)
    text = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text
    assert text.index("Chapter 1:") < text.index("Chapter 2:")


def test_what_was_read_to_be_put_in_order_is_not_read_again_to_answer():
    session, engine, heard = doubting(HIDDEN, {})
    ask(session, told(), QUESTION, reading_mode="retrieval")
    assert max(engine.fed[len(heard) :]) <= len(asked_of_passage(STYLE, QUESTION)) + 5


def test_what_is_put_in_order_can_be_stopped():
    session, _, heard = doubting(HIDDEN, {})
    done = finished(
        ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=lambda: len(heard) == 1)
    )
    assert done.reason == "user" and not done.text and len(heard) == 1
    assert "Stopped in passage 2 of 4." in done.notes


def test_a_model_whose_refusals_were_not_measured_is_not_asked_whether_it_doubts():
    session, _, heard = doubting(HIDDEN, {"third plank": 0.0}, doubt=None)
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith(
        "Under the third plank"
    )
    assert not heard
