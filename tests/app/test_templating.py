"""The templates escape what they are given, and their words come from the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
from jinja2 import UndefinedError, meta

from app.render.templating import TEMPLATES, _environment, render
from app.store.notebook import Notebook
from app.web import regions
from app.web.chapters import recap_html
from tests.support.regions_shown import BOOK, every_region

ROOT = TEMPLATES.parents[1]


def test_no_text_becomes_a_tag_in_any_template(monkeypatch):
    """One value that is not escaped is enough for a book to run code in the page."""
    used = set()
    load = _environment.loader.get_source

    def noting(environment, name):
        used.add(name)
        return load(environment, name)

    _environment.cache.clear()
    monkeypatch.setattr(_environment.loader, "get_source", noting)
    for html in every_region():
        assert "<script" not in html and "&lt;script&gt;" in html
        assert "\"'" not in html, "a quotation mark that may end an attribute"
    for html in (regions.suggestions_html(None, None), recap_html(BOOK, Notebook())):
        assert "<script" not in html  # of the app's own words only
    filled = {path.name for path in TEMPLATES.glob("*.html") if _needs(path.read_text(encoding="utf-8"))}
    assert filled <= used, "a template that no attack was tried on"


def _needs(source: str) -> set[str]:
    """The values that a template must be given."""
    return meta.find_undeclared_variables(_environment.parse(source)) - set(_environment.globals)


def test_nothing_switches_the_escaping_off():
    for path in TEMPLATES.glob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe|autoescape|={{", source), path.name


def test_lines_end_where_those_of_the_code_do():
    with (ROOT / "pyproject.toml").open("rb") as file:
        longest = tomllib.load(file)["tool"]["ruff"]["line-length"]
    numbered = ((path, *one) for path in TEMPLATES.iterdir() for one in _lines(path))
    assert [f"{path.name}:{number}" for path, number, line in numbered if len(line) > longest] == []


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)


def test_another_template_is_not_escaped_again():
    inner = render("notice.html", kind="error", text="a < b", remedies=())
    assert str(_environment.from_string("{{ inner }}").render(inner=inner)) == inner


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        render("notice.html", kind="error")


def test_every_word_of_the_templates_is_in_the_catalogue():
    """A sentence written into a template as it stands stays English for ever."""
    named = {"TriForce", "Chat", "ms", "p95", "Esc"}
    aside = r"{#.*?#}|{{.*?}}|{%.*?%}|<style>.*?</style>|<script>.*?</script>|<code>.*?</code>"
    for path in TEMPLATES.glob("*.html"):
        bare = re.sub(aside, "\0", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        words = set(re.findall(r"[A-Za-z]\w+", re.sub(r"<[^>]*>", " ", bare)))
        said = set(re.findall(r'(?:aria-label|title|placeholder|data-confirm)="([^"\0]+)"', bare))
        assert words - named == set() and said == set(), path.name
