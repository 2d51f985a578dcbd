"""The templates escape what they are given, and their words come from the catalogue."""

from __future__ import annotations

import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from jinja2 import UndefinedError

from app.templating import TEMPLATES, _environment, render

ROOT = TEMPLATES.parents[1]


def test_a_value_is_text_and_another_template_is_markup():
    inner = render("notice.html", kind="error", text="<script>")
    assert "&lt;script&gt;" in inner and "<script>" not in inner
    assert str(_environment.from_string("{{ inner }}").render(inner=inner)) == inner


def test_a_value_put_into_a_sentence_is_escaped():
    """A sentence is filled in by format(): neither its values nor its own words may become tags."""
    assert "“&lt;b&gt;” is protected" in render("locked.html", name="<b>")


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        render("notice.html", kind="error")


def test_the_extractor_finds_the_words_of_the_templates():
    """Words outside the catalogue cannot be translated."""
    with (ROOT / "assets" / "locale" / "babel.cfg").open(encoding="utf-8") as file:
        methods, options = parse_mapping_cfg(file)
    found = extract_from_dir(
        TEMPLATES, [("**.html", dict(methods)["app/templates/**.html"])], options, {"_": None, "_n": (1, 2)}
    )
    assert "Read them with OCR" in {message for _file, _line, message, _comments, _context in found}
