"""The translations of the page's sentences: whole, with the same values in them, and found again."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from core.text import catalogues
from core.text.said import said
from core.text.words import in_language

REPO = Path(__file__).resolve().parent.parent
LOCALE = REPO / "assets" / "locale"
LANGUAGES = sorted(catalogues.FOLDERS)
FIELD = re.compile(r"\{[^}]*\}")


@cache
def template() -> Catalog:
    with (LOCALE / "messages.pot").open("rb") as file:
        return read_po(file)


@cache
def translation(code: str, name: str = "messages") -> Catalog:
    with (LOCALE / catalogues.FOLDERS[code] / "LC_MESSAGES" / f"{name}.po").open("rb") as file:
        return read_po(file)


def forms(told: str | tuple[str, ...]) -> tuple[str, ...]:
    return (told,) if isinstance(told, str) else tuple(told)


@pytest.mark.parametrize("code", LANGUAGES)
def test_values_are_those_of_the_english_sentence(code: str):
    """A lost name leaves a hole in the sentence; a misspelt one ends the page with a KeyError."""
    wrong = []
    for message in translation(code):
        if message.id:
            values = set(FIELD.findall(forms(message.id)[-1]))
            for told in message.string if isinstance(message.string, tuple) else (message.string,):
                singular = message.pluralizable and told == message.string[0] != message.string[-1]
                found = set(FIELD.findall(told))
                if found != values and not (singular and found == values - {"{count}"}):
                    wrong.append((message.id, told))
    assert wrong == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_what_the_engine_says_is_found_again(code: str):
    """A sentence filled in elsewhere comes without its entry: it must be found by its words, and no other."""
    lost = []
    for message in template():
        files = {file for file, _line in message.locations}
        if not any(file.startswith("core/") for file in files):
            continue
        told = catalogues.of(code).forms.get(forms(message.id)[0])
        if not told:
            continue
        told = told if len(told) == len(forms(message.id)) else told * 2
        for english, here in zip(forms(message.id), told, strict=True):
            here = here if FIELD.search(english) else here.replace("{count}", "1")
            clear = len(re.sub(r"\W", "", FIELD.sub("", english))) >= 7
            if " " in english and clear and said_in(code, filled(english)) != filled(here):
                lost.append((english, said_in(code, filled(english))))
    assert lost == []


def filled(sentence: str) -> str:
    return FIELD.sub("7", sentence)


def said_in(code: str, sentence: str) -> str:
    with in_language(code):
        return said(sentence)
