"""The translations of the page's sentences: whole, with the same values in them, and found again."""

from __future__ import annotations

import ast
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
from core.model.store.catalogue import load_catalogue
from core.planning.offers import offers
from core.text import catalogues
from core.text.words import in_language, localized
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


def said_in(code: str, sentence: str) -> str:
    with in_language(code):
        return localized(sentence)


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
    named = {entry.languages for entry in load_catalogue().values() if entry.languages}
    assert named == set(NAMED)


def test_no_message_is_lost_in_a_string():
    """An f-string or a sum with a message in it is text in the language of whoever made it. The page makes
    its own for itself; elsewhere `sentences` and `listed` keep it.
    """
    shows = re.compile(
        rf"{COMMANDS.pattern}|app/(render|web)/.*|core/text/words\.py"
        r"|app/desk/(exports|reader)\.py"  # for a file
    )
    files = [file for folder in ("app", "core") for file in sorted((REPO / folder).rglob("*.py"))]
    found = []
    for file in files:
        name = file.relative_to(REPO).as_posix()
        if not shows.fullmatch(name):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found += [f"{name}:{line}" for node in ast.walk(tree) for line in lost_in(node)]
    assert sorted(set(found)) == []


def test_a_lost_message_is_found():
    lost = "def f():\n    said = _('a').format(b=1)\n    return f'{said} c', said + 'd', ' '.join([said])"
    kept = "def f():\n    said = _('a')\n    return said.format(b=1), f'{3}'"
    count = [sum(len(lost_in(node)) for node in ast.walk(ast.parse(code))) for code in (lost, kept)]
    assert count == [3, 0]


def lost_in(function: ast.AST) -> list[int]:
    """Lines of a function where what was put through `_` becomes text."""
    if not isinstance(function, ast.FunctionDef):
        return []
    named: set[str] = set()
    for _again in range(2):
        for one in ast.walk(function):
            if isinstance(one, ast.Assign) and is_message(one.value, named):
                named |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    found = []
    for one in ast.walk(function):
        inside: list[ast.AST] = []
        if isinstance(one, ast.FormattedValue):
            inside = [one.value]
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            inside = [one.left, one.right]
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "join":
            inside = [each for given in one.args for each in getattr(given, "elts", [given])]
        if any(is_message(each, named) for each in inside):
            found.append(one.lineno)
    return found


def is_message(node: ast.AST, named: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in named
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return is_message(node.func.value, named)
    return isinstance(node.func, ast.Name) and node.func.id in ("_", "_n", "listed", "sentences")
