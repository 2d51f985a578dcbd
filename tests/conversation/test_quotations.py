"""What of a long place is quoted below an answer: the part that has the words it is there for."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation import verifier
from core.conversation.retrieval_result import quotation
from core.conversation.verifier import NAMES, Verifier
from core.documents.document import Document, Section
from core.documents.quotes import find_quotes
from tests.support.ferry import HIDDEN, QUESTION, reader, told
from tests.support.talks import STYLE, ask, finished, make

ROUND = " ".join(f"and then tale {number} went on without an end," for number in range(16))
BORNE_OUT = tuple(float(name == "borne out") for name in NAMES)


def _book(text: str) -> Document:
    return Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="q")


def _quoted(text: str, *words: str) -> str:
    """What is shown of all of it."""
    return quotation(_book(text), (0, len(text)), frozenset(words))[1].text.removeprefix("\n> ")


def test_a_short_place_is_quoted_whole():
    assert _quoted("The keeper rowed\nout. It was dusk.", "dusk") == "The keeper rowed out. It was dusk."


def test_paragraphs_of_a_quotation_stand_apart_and_so_does_what_stands_above_one():
    """It read "1.3 The Keeper Dr. Hilda Marsh kept Lake Orrin for 21 years."."""
    text = "1.3 The Keeper\n\nDr. Marsh kept the lake\nfor 21 years.\n\nShe rowed."
    shown = _quoted(text, "lake")
    assert shown == "1.3 The Keeper\n>\n> Dr. Marsh kept the lake for 21 years.\n>\n> She rowed."
    book = _book(f"She rowed. {text}")
    (found,) = find_quotes(f"One:\n> {shown}", book)
    assert book.text[found.found : found.found_end + 1] == text, "one place; its last was said before"


@pytest.mark.parametrize(
    "opens, closes", ["\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb", "\u00bb\u00ab", '""']
)
def test_a_quotation_begins_and_ends_with_the_speech_it_lies_in(opens: str, closes: str):
    """It began in the middle, and ended with a quotation mark that nothing had opened."""
    speech = f"{opens}It was tea with rum. I drank the rest of it.{closes}"
    text = f"{opens}Who?{closes} asked Ida. {speech} Emil laughed.\n\n{opens}And then?{closes} said Ida."

    def shown(*place: str) -> str:
        start = text.index(place[0])
        return quotation(_book(text), (start, text.index(place[-1], start) + len(place[-1])))[1].text[3:]

    assert shown("I drank the rest of it.") == speech
    assert shown(f"I drank the rest of it.{closes} Emil laughed.") == f"{speech} Emil laughed."
    assert shown("It was tea with rum.") == shown(speech) == speech
    assert shown("Emil laughed.") == "Emil laughed."
    assert shown(f"{opens}Who?{closes} asked Ida.") == f"{opens}Who?{closes} asked Ida."
    assert shown("And then?") == f"{opens}And then?{closes}"


@pytest.mark.parametrize("label", ["TARLE. ", "FIRST SAILOR.\n", "PIP. [Aside.] "])
def test_a_quotation_from_a_play_begins_with_who_speaks(label: str):
    """“Never one was dark. PIP.” stood there: what Tarle says, and who speaks next."""
    text = f"{label}Forty lamps. Never one was dark.\n\nPIP. And then?\n\nXII. It was late. He came."

    def shown(sentence: str) -> str:
        start = text.index(sentence)
        return quotation(_book(text), (start, start + len(sentence)))[1].text[3:]

    assert shown("Never one was dark.") == f"{label}Forty lamps. Never one was dark.".replace("\n", " ")
    assert shown("Forty lamps.") == f"{label}Forty lamps.".replace("\n", " ")
    assert shown("He came.") == "He came."


def test_a_speech_longer_than_a_quotation_is_not_made_whole():
    text = f"\u201cIt was tea. {ROUND} I drank it. {ROUND}\u201d"
    start = text.index("I drank")
    assert quotation(_book(text), (start, start + 11))[1].text == "\n> I drank it."


def test_of_a_long_place_the_beginning_is_shown_where_it_says_as_much_as_any_part():
    text = f"The keeper lit the lamp. It was late {ROUND} and he slept."
    for words in (("keeper", "lamp"), (), ("owl",)):
        shown = _quoted(text, *words)
        assert shown.startswith("The keeper lit") and shown.endswith(" …") and len(shown) <= 502


def test_a_sentence_behind_a_long_one_is_shown_from_its_beginning():
    """“Starbuck.” stood above a quotation that was cut before his name: three of 24 answers about books."""
    text = f"Now it was late {ROUND}. The first mate was Starbuck, a Quaker. He rowed {ROUND}."
    shown = _quoted(text, "starbuck")
    assert shown.startswith("… The first mate was Starbuck, a Quaker. He rowed") and shown.endswith(" …")


def test_inside_a_long_sentence_it_begins_with_a_word():
    shown = _quoted(f"Now it was late, {ROUND} {ROUND} until the Pequod came, {ROUND}", "pequod")
    assert shown.startswith("… ") and shown.endswith(" …") and len(shown) <= 504
    assert 150 < shown.index("the Pequod") < 350, "with what stands before and behind it"
    end = _quoted(f"Now it was late, {ROUND} {ROUND} until the Pequod came.", "pequod")
    assert end.startswith("… ") and end.endswith("the Pequod came.")


def test_a_word_longer_than_a_quotation_is_one():
    assert _quoted("a" * 700, "b") == "a" * 700
    assert _quoted(f"An {'a' * 700}.", "b").startswith("An …")


@pytest.mark.parametrize("given", [0.0, 9.0])
def test_the_words_of_an_answer_are_quoted_whether_it_is_given_or_not(monkeypatch, given: float):
    """What was not given stands in the nearest passage: it is what the person looks for there."""
    monkeypatch.setattr(verifier, "load_verifier", lambda name: Verifier(0.0, BORNE_OUT, given, given, given))
    session, _engine = make(reader(HIDDEN), style=dataclasses.replace(STYLE, consensus=2, verifier="a"))
    book = told((f"The silver key of Oddo, {ROUND} lies under the third plank of the jetty.",))
    done = finished(ask(session, book, QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(HIDDEN["third plank"]) is (given == 0.0)
    below = done.text.partition("\n\n")[2]
    assert "lies under the third plank of the jetty." in below
    quotes = find_quotes(below, book)
    assert quotes and all(quote.found is not None for quote in quotes)


def test_without_any_answer_the_questions_words_are_shown():
    session, _engine = make(reader({}), style=STYLE)
    book = told((f"In the beginning {ROUND} Oddo hid the silver key.",))
    done = finished(ask(session, book, QUESTION, reading_mode="retrieval"))
    assert "Oddo hid the silver key." in done.text
