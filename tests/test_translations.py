"""The translations of the page's sentences: whole, with the same values in them, and found again."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from app.models.catalogue import survey
from app.store.settings_docs import program_entries
from app.web.models import LANGUAGES as NAMED
from app.web.settings import titled
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import load
from core.planning.offers import offers
from core.text import catalogues
from core.text.said import said
from core.text.words import in_language
from tests.support.regions_shown import every_region

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


# said by the command line alone, which speaks English
COMMANDS = re.compile(
    r"app/(cli|mcp)/.*|app/server/main\.py|app/host/instance\.py"
    r"|core/planning/(doctor|wording)\.py|core/selftest/device\.py|core/(training|tuning)/.*"
    r"|core/backend/cuda/triton/trial\.py|installer/.*"
)


def shown() -> set[str]:
    """What the page may show, by the English sentence."""
    return {
        forms(message.id)[0]
        for message in template()
        if message.id and not all(COMMANDS.fullmatch(file) for file, _line in message.locations)
    }


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_sentence_of_the_page_is_translated(code: str):
    """One that is missing stays English in the middle of a page; one that nobody says any more is in the way.
    How they are added: CONTRIBUTING.
    """
    told = {forms(one.id)[0] for one in translation(code) if one.id and all(forms(one.string))}
    assert shown() - told == set(), "not translated yet"
    everything = {forms(message.id)[0] for message in template() if message.id}
    assert told - everything == set(), "said nowhere any more"


@pytest.mark.parametrize("code", LANGUAGES)
def test_counted_sentences_have_all_forms(code: str):
    """German has two, Chinese one."""
    number = {"de": 2, "zh": 1}[code]
    counted = [message for message in translation(code) if message.pluralizable]
    assert len(counted) > 20
    assert [one.id for one in counted if len(forms(one.string)) != number] == []


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
def test_settings_are_explained_in_every_language(code: str):
    """The drawer shows what config.yaml says of each key."""
    shown = set()
    for group, entries in program_entries():
        shown |= {group, *(titled(one.key) for one in entries)}
        shown |= {one.explained for one in entries}
    told = {message.id for message in translation(code, "settings") if message.id and message.string}
    assert told == shown


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_sentence_is_translated_in_one_way_only(code: str):
    """The catalogues are one to the page: a button would be called what a setting of that name is called."""
    page = {one.id: one.string for one in translation(code)}
    both = [one for one in translation(code, "settings") if one.id and one.id in page]
    assert [(one.id, one.string, page[one.id]) for one in both if one.string != page[one.id]] == []


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


@pytest.mark.parametrize("card", [None, "RTX 4070", "RTX 4090"])
@pytest.mark.parametrize("code", LANGUAGES)
def test_no_english_is_left_in_what_the_planner_says(code: str, card: str | None):
    """Of every model on a real machine: sentences in sentences, enumerations, remedies with a capital."""
    hardware = imagined_hardware(gpu=card)
    listed = survey(hardware, Settings())
    told = {text for one in listed for text in (one.times, one.reason, one.would_fit_with) if text}
    told |= {
        note
        for one in offers(hardware, Settings(), is_downloaded=bool)
        if one.plan
        for note in one.plan.notes
    }
    assert len(told) > 20
    english = re.compile(r"\b(the|and|of|with|for|after|set|choose|lower|needs|free)\b")
    said_here = {text: said_in(code, text) for text in told}
    assert {text: here for text, here in said_here.items() if english.search(here)} == {}


def filled(sentence: str) -> str:
    return FIELD.sub("7", sentence)


def said_in(code: str, sentence: str) -> str:
    with in_language(code):
        return said(sentence)


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_english_is_left_on_the_page(code: str):
    """Every region in the language: none shows a sentence of more than two words in English."""
    assert len(english_in("en")) > 60, "or this finds nothing at all"
    assert english_in(code) == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_measures_of_the_page_are_no_words(code: str):
    """A width of 82,2 % is none for a browser: the bars of a German page were empty."""
    with in_language(code):
        page = "\n".join(every_region())
    widths = re.findall(r"style=\"width:([^;\"]*)", page)
    assert widths and [one for one in widths if not re.fullmatch(r"[\d.]+%", one)] == []


def english_in(code: str) -> list[str]:
    """The English entries of more than two words that the page shows."""
    with in_language(code):
        page = "\n".join(every_region())
    shown = " ".join(html.unescape(page).split())
    sentences = {message.id for message in template() if isinstance(message.id, str)}
    sentences |= {message.id for message in translation("de", "settings") if message.id}
    long = {one for one in sentences if len(re.findall(r"[A-Za-z]{2,}", FIELD.sub("", one))) > 2}
    return sorted(one for one in long if all(part in shown for part in parts(one)))


def parts(sentence: str) -> list[str]:
    """What of it stands between its values."""
    return [part for part in FIELD.split(" ".join(sentence.split())) if part.strip(" .:,;")]


def test_every_language_that_the_catalogue_names_is_known():
    """They are data, which no extraction sees: German pages had "29 languages, English and Chinese first"."""
    named = {entry.languages for entry in load().values() if entry.languages}
    assert named == set(NAMED)
