"""Passages in the model's order: how likely the question is behind each, and the refusal behind that."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation import verifier
from core.conversation.asking import asked_of_passage
from core.conversation.retrieval_result import RetrievalState, behind_heading, quotation
from core.conversation.verifier import NAMES, Verifier
from core.documents.document import Document, Section
from core.evidence.support import UNFOUND, Evidence
from core.request import Request
from tests.support.fakes import CharTokenizer
from tests.support.ferry import HIDDEN, QUESTION, REFUSAL, reader, told
from tests.support.said import values
from tests.support.talks import STYLE, ask, finished, make


@pytest.fixture
def weighing(monkeypatch):
    """Makes a session whose model finds the question so likely behind the passages with the words of `asked`,
    and the refusal behind those of `refused`; its verifier gives every answer, or none.
    """

    def make_session(
        answers: dict[str, str],
        asked: dict[str, float] | None = None,
        refused: dict[str, float] | None = None,
        *,
        gives: bool = False,
        **weights: float,
    ):
        judge = Verifier(0.0, (0.0,) * len(NAMES), -1.0 if gives else 1.0, 1.0, -1.0 if gives else 1.0)
        monkeypatch.setattr(verifier, "load_verifier", lambda name: judge)
        session, engine = make(
            reader(answers), style=dataclasses.replace(STYLE, **{"verifier": "a", **weights})
        )
        heard = []

        def weighed(ids, said) -> list[float]:
            heard.append(CharTokenizer().decode(said))
            prompt, tail = CharTokenizer().decode(ids), len(REFUSAL)

            def value(known: dict[str, float] | None, usual: float) -> float:
                return next((one for words, one in (known or {}).items() if words in prompt), usual)

            # the wording around the person's own words counts for nothing
            start = heard[-1].index(QUESTION)
            around = [-1e6 * len(ids)] * (len(said) - len(QUESTION) - tail)
            around[start:start] = [value(asked, -50.0) / len(QUESTION)] * len(QUESTION)
            return [*around, *([value(refused, -99.0) / tail] * tail)]

        engine.likely = weighed
        return session, engine, heard

    return make_session


@pytest.mark.parametrize(
    ("asked", "refused", "weights", "first"),
    [
        ({}, {}, {}, 2),  # by words
        ({"third plank": -20.0}, {}, {"asked_weight": 1.0}, 1),
        ({"priest": -20.0}, {}, {"asked_weight": 1.0}, 2),
        ({"third plank": -20.0}, {}, {}, 2),  # a model that was not measured to gain by it
        ({}, {"priest": -5.0}, {"refused_weight": 1.0}, 1),
        ({"priest": -20.0}, {"priest": -70.0}, {"asked_weight": 1.0, "refused_weight": 1.0}, 2),
    ],
)
def test_where_nothing_is_given_the_passages_are_shown_in_the_models_order(
    weighing, asked: dict, refused: dict, weights: dict, first: int
):
    """The question is likelier behind the passage that answers it, and the refusal less so."""
    session, _, heard = weighing({}, asked, refused, **weights)
    text = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text
    assert text.startswith(UNFOUND) and text.split("\n\n")[1].startswith(f"Chapter {first}:")
    assert heard and all(one.endswith(REFUSAL) and QUESTION in one for one in heard)


def test_what_was_read_to_be_put_in_order_is_not_read_again_to_answer(weighing):
    session, engine, heard = weighing(HIDDEN, gives=True)
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text[done.stands[0].start :].startswith("Under the third plank")
    short = len(asked_of_passage(STYLE, QUESTION)) + 5
    assert sum(fed > short for fed in engine.fed) == len(heard) == 4
    stats = done.stats
    read = stats.prompt_tokens - stats.reused_tokens
    assert read >= sum(fed for fed in engine.fed if fed > short) and stats.answers == 4, (
        "the panel said that nothing was read, and that six times the book was known from before"
    )
    assert stats.prompt_tokens < len(told().text) + 4 * 400


def test_reading_can_be_stopped_between_passages(weighing):
    session, _, heard = weighing(HIDDEN, gives=True)
    done = finished(
        ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=lambda: len(heard) == 2)
    )
    assert done.reason == "user" and not done.text and len(heard) == 2
    assert {"number": 2, "count": 4} in map(values, done.notes)


def test_a_model_without_a_verifier_is_not_asked_how_likely_a_question_is(weighing):
    session, _, heard = weighing(HIDDEN, verifier="")
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith(
        "Under the third plank"
    )
    assert not heard


@pytest.mark.parametrize("printed", ["III. The Ledger", "III\n\nTHE LEDGER", "Chapter 3\n\nThe Ledger"])
def test_a_heading_that_has_the_questions_words_is_shown_by_what_stands_under_it(printed):
    """Printed in two lines it was one of the nearest passages, with nothing of the book."""
    text = f"{printed}\n\nThe harbour master was a stout man. He sat."
    book = Document("B", "", "txt", text, (Section("III. The Ledger", 0, len(text)),))
    evidence = Evidence(book)
    pieces = RetrievalState(evidence, 1, evidence.nearest("The ledger?")).pieces(Request("The ledger?", book))
    shown = "".join(piece.text for piece in pieces)
    assert shown.endswith("\n> The harbour master was a stout man. He sat.")


def test_of_a_search_that_was_stopped_at_once_nothing_is_said_to_be_read():
    """ "Stopped in passage 1 of 6" stood beside the chapters of all six."""
    book = told()
    evidence = Evidence(book)
    nearest = evidence.nearest(QUESTION)
    assert not RetrievalState(evidence, len(nearest), nearest, stopped=True).sources(book)
    assert RetrievalState(evidence, len(nearest), nearest).sources(book)


def test_a_quotation_begins_behind_the_heading_and_a_heading_alone_is_none():
    """It read "The Ledger The harbour master was a stout man", and "Chapter 2." as a nearest passage."""
    text = "III. The Ledger\n\nThe harbour master was a stout man.\n\nHe sat."
    book = Document("B", "", "txt", text, (Section("III. The Ledger", 0, len(text)),))
    end = text.index("\n\nHe")
    assert quotation(book, (5, end))[1].text == "\n> The harbour master was a stout man."
    assert behind_heading(book, (0, 15)) == (15, 15) and behind_heading(book, (17, end)) == (17, end)
    assert quotation(book, (0, 15))[1].text == "\n> III. The Ledger", "where nothing else is there"


def test_a_quotation_begins_behind_a_chapters_motto_and_the_source_alone_is_no_passage():
    """It ran motto, source and first sentence together; "— Anna Varga" was a nearest passage."""
    text = "III. The Ledger\n\nInk dries.\n\n— Old proverb\n\nThe harbour master was a stout man."
    book = Document("B", "", "txt", text, (Section("III. The Ledger", 0, len(text)),))
    told = "\n> The harbour master was a stout man."
    assert quotation(book, (text.index("Ink"), len(text)))[1].text == told
    assert quotation(book, (text.index("—"), len(text)))[1].text == told
    motto = text.index("Ink"), text.index("\n\n—")
    assert quotation(book, motto)[1].text == "\n> Ink dries."
    evidence = Evidence(book)
    state = RetrievalState(evidence, 1, evidence.nearest("The proverb?"))
    assert "".join(one.text for one in state.pieces(Request("The proverb?", book))).endswith(told)


def test_of_nearest_passages_that_say_the_same_one_is_shown():
    """Of three lakes it said three times what the last entry of the book was."""
    said = "The last entry in the old ledger of the station reads: level {} centimetres."
    filler = "The weather of the coast was grey on that day, and nobody rowed out to the nets. " * 18
    text = "\n\n".join(f"{said.format(at)} {filler}" for at in (114, 57, 36))
    book = Document("B", "", "txt", text, (Section("B", 0, len(text)),))
    evidence, asked = Evidence(book), "What was the last entry in the ledger of the station?"
    nearest = evidence.nearest(asked)
    assert len(nearest) == 3
    pieces = RetrievalState(evidence, 3, nearest).pieces(Request(asked, book))
    assert "".join(one.text for one in pieces).count("> ") == 1


def test_of_the_nearest_passages_that_with_most_of_the_questions_words_stands_first():
    """In German the one that had them all stood second: "Im Jahre 1847 grub der Schmied den Brunnen"."""
    filler = " Das Wetter blieb an allen Tagen grau, und niemand ging hinaus." * 26
    told = ("Der Brunnen ist tief.", "Der Schmied grub im Mai einen Brunnen.", "Er grub im Garten.")
    text = "\n\n".join(f"{one}{filler}" for one in told)
    book = Document("B", "", "txt", text, (Section("B", 0, len(text)),))
    evidence, asked = Evidence(book), "Wer grub einen Brunnen?"
    state = RetrievalState(evidence, 3, sorted(evidence.nearest(asked), key=lambda one: one.start))
    shown = "".join(one.text for one in state.pieces(Request(asked, book))).split("\n> ")
    assert len(shown) == 4 and shown[1].startswith(told[1])
