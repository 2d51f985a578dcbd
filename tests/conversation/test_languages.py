"""The language of an answer follows the question, where the model has more than one."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation import answer_language
from core.conversation.answer_language import english_only, no_english
from core.documents.document import Document, Section
from core.evidence.support import UNFOUND
from tests.support.fakes import CharTokenizer
from tests.support.ferry import reader, told
from tests.support.said import values, worded_by
from tests.support.talks import STYLE, ask, book, finished, make

ENGLISH = dataclasses.replace(STYLE, english=True)
NOTE = "This model answers in English only."
GERMAN = "Der Wärter zündete die Lampe an und schrieb, dass niemand kam. Er war nicht allein.\n\n" * 4
LONG = Document("M", "", "txt", GERMAN * 3, (Section("Eins", 0, len(GERMAN) * 3),), sha256="m")
WHOLE = Document("L", "", "txt", GERMAN, (Section("Eins", 0, len(GERMAN)),), sha256="l")
TELLER = dataclasses.replace(ENGLISH, passages=True, summaries="supported")


def novel() -> Document:
    """An English one, with somebody in it."""
    days = "".join(f"On day {at} the patient Oddo walked to the old pier.\n\n" for at in range(60))
    text = "“I am late,” said Oddo, who was the keeper of the lamp.\n\n" + days
    return Document("Pier", "", "txt", text, (Section("One", 0, len(text)),), sha256="novel")


def asked_in(question: str, **options) -> tuple[str, tuple[str, ...]]:
    """The prompt, and the notes of the answer."""
    session, engine = make(**options)
    done = finished(ask(session, book(1), question))
    return CharTokenizer().decode(engine.prompts[-1]), done.notes


def test_question_in_another_language_asks_for_its_language():
    """The prompt around it is English, and pulls an answer into English."""
    prompt, notes = asked_in("Wer bewacht die Lampe?")
    assert "Wer bewacht die Lampe?\nAnswer in the language of this question." in prompt
    assert notes == ()


def test_english_question_is_put_as_it_always_was():
    """What was measured was measured with these prompts, and what was read of a book is known by them."""
    prompt, notes = asked_in("Who keeps the lamp?")
    assert "Answer in the language" not in prompt and notes == ()


def test_model_of_one_language_says_so():
    """It would answer a German question in English, and nobody would know why."""
    prompt, notes = asked_in("Wer bewacht die Lampe?", style=ENGLISH)
    assert "Answer in the language" not in prompt
    assert [note[: len(NOTE)] for note in notes] == [NOTE]
    assert asked_in("Who keeps the lamp?", style=ENGLISH)[1] == ()


def test_what_such_a_question_does_not_find_is_put_down_to_its_language_at_once():
    """The page said that the book does not say it, and to ask with words that stand in the book; far below,
    why.
    """
    for question in ("钥匙在哪里？", "Wo ist der Schlüssel, und hat ihn der silver key priest?"):
        session, _ = make(reader({}), style=ENGLISH)
        done = finished(ask(session, told(), question, reading_mode="retrieval"))
        first, second = values(done.pieces[0].text)["part0"], values(done.pieces[0].text)["part1"]
        assert first == UNFOUND and worded_by(english_only, second)
        assert not any(NOTE in note for note in done.notes)
    session, _ = make(reader({"silver": "Under the plank."}), style=ENGLISH)
    done = finished(ask(session, told(), "Wo ist the silver key, wer hat ihn?", reading_mode="retrieval"))
    assert NOTE not in done.text and [NOTE in note for note in done.notes] == [True]


@pytest.mark.parametrize("mode", ["retrieval", "full", "auto"])
def test_a_book_in_another_language_is_not_said_to_lack_what_it_says(mode: str):
    """Above the very sentence that answers stood that the book does not seem to say; and "No.", to what the
    dog is called. To ask in English would not help there.
    """
    for question in ("Wer zündete die Lampe an?", "Who lit the Lampe?"):
        session, engine = make(reader({"": "No."}), style=ENGLISH)
        done = finished(ask(session, WHOLE if mode == "full" else LONG, question, reading_mode=mode))
        assert worded_by(no_english, values(done.pieces[0].text)["part1"]) and done.text.startswith(UNFOUND)
        assert "Lampe" in done.text and "No." not in done.text.replace(UNFOUND, "")
        assert engine.prompts == [] and done.notes == ()


@pytest.mark.parametrize("question", ["Worum geht es?", "Wie endet es?", "Wer sind die Hauptfiguren?"])
@pytest.mark.parametrize("summaries", ["own", "supported"])
def test_what_the_model_does_not_say_is_not_said_to_be_in_english(question: str, summaries: str):
    """Under the German sentences of a German book stood that this model answers in English only."""
    style = dataclasses.replace(ENGLISH, passages=True, summaries=summaries)
    session, engine = make(style=style)
    done = finished(ask(session, LONG, question))
    assert engine.prompts == []
    assert not worded_by(answer_language, *done.notes)


def test_people_counted_without_the_model_are_not_said_to_be_its_answer():
    """To ask in English would have listed them no otherwise."""
    session, engine = make(style=dataclasses.replace(ENGLISH, passages=True))
    done = finished(ask(session, novel(), "Wer sind die Hauptfiguren?"))
    assert "Oddo" in done.text and engine.prompts == []
    assert not worded_by(answer_language, *done.notes)


def test_an_english_summary_for_a_question_in_another_language_says_why_it_is_english():
    said = "On day 3 the patient Oddo walked to the old pier."
    session, engine = make(lambda ids, params: CharTokenizer().encode(said), style=TELLER)
    done = finished(ask(session, novel(), "Worum geht es?"))
    assert engine.prompts and len(worded_by(english_only, *done.notes)) == 1


def test_card_of_a_book_in_another_language_says_so():
    """Before it is read: afterwards half an hour is lost."""
    (note,) = make(style=ENGLISH)[0].card(WHOLE)["notes"]
    assert worded_by(no_english, note) and "reads" in note
    assert make(style=ENGLISH)[0].card(book(1))["notes"] == []
    assert make()[0].card(WHOLE)["notes"] == []


def summary_prompts(document: Document, **options) -> list[str]:
    """What is asked for its summary, part by part."""
    session, engine = make(**options)
    ask(session, document, None)
    return [CharTokenizer().decode(prompt) for prompt in engine.prompts]


def test_summary_is_in_the_language_of_the_book():
    """Nobody asks, so no question says which: a German book was summarised in English."""
    wish = "\nWrite in the language of the text."
    (whole,) = summary_prompts(WHOLE)
    assert wish in whole
    parts = summary_prompts(LONG)
    assert len(parts) > 2 and all(wish in prompt for prompt in parts[:2])
    for document, options in ((book(1), {}), (book(4), {}), (LONG, {"style": ENGLISH})):
        assert not any("language of" in prompt for prompt in summary_prompts(document, **options))


def test_summary_in_another_language_is_known_again():
    """What was noted of a part is found by the words it was asked for with."""
    session, engine = make()
    ask(session, LONG, None)
    read = len(engine.prompts)
    ask(session, LONG, None)
    told = [CharTokenizer().decode(prompt) for prompt in engine.prompts]
    assert any("part?" in prompt for prompt in told[:read])
    assert not any("part?" in prompt for prompt in told[read:])
