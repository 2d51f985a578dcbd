"""Which texts are in another language than English."""

from __future__ import annotations

import pytest

from core.text.language_detection import foreign, partly_foreign

ENGLISH = (
    "Who keeps the lamp?",
    "Summarise chapter three",
    "What does Herr von der Tann say to the Baron?",
    "Why did Zoë leave?",
    "The keeper read: “Quand on est seul, la mer est une vie.” Nobody knew what it meant to him.",
    "Lee?",
    "",
    "1984",
)
OTHERS = (
    "Wer bewacht die Lampe?",
    "Wie endet das Buch?",
    "Qui garde la lampe ?",
    "¿Quién guarda la lámpara del faro?",
    "Chi custodisce la lampada del faro?",
    "Quem guarda a lâmpada e por que mente?",
    "Wie bewaakt de lamp van het eiland?",
    "谁看守这盏灯？",
    "だれが灯台の明かりを守っていますか。",
    "Кто хранит лампу?",
    "מי שומר על המנורה?",
)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not_foreign(text: str):
    """A note that the model knows no English, under an English question, would be wrong."""
    assert not foreign(text)


@pytest.mark.parametrize("text", OTHERS)
def test_other_languages_are(text: str):
    assert foreign(text)


def test_book_is_judged_by_its_middle():
    """A licence in English stands before and behind many books in other languages."""
    licence = "This book is for the use of anyone anywhere. " * 400
    book = licence + "Der Wärter zündete die Lampe an und schrieb, dass niemand kam. " * 900 + licence
    assert foreign(book)
    assert not foreign(licence)


def test_a_text_that_is_in_another_language_in_part_is_known_wherever_that_stands():
    """Its middle alone says nothing of its end."""
    english = "The keeper lit the lamp, and nobody came to the pier. " * 400
    german = "Der Wärter zündete die Lampe an, und niemand kam an den Steg. " * 100
    assert not foreign(english + german) and not partly_foreign(english)
    assert partly_foreign(english + german) and partly_foreign(german + english)
    assert not partly_foreign(english * 4 + german), "a twentieth"
    assert partly_foreign(german) and not partly_foreign("")
