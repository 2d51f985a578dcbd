"""The page's templates (app/templates): values in, HTML out, with every value escaped."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from core.text.words import duration, size, translated, translated_count

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(name: str, /, **values: object) -> Markup:
    """The template filled in. Markup (what another template made) is kept; a missing value raises UndefinedError."""
    return Markup(_environment.get_template(name).render(values))


def _sentence(message: str) -> Markup:
    """`_` of the templates. Filled in by `.format()`, which escapes the values: no sentence holds HTML."""
    return escape(translated(message))


def _counted(one: str, many: str, count: int) -> Markup:
    """`_n` of the templates: the sentence for `count` things, with {count} filled in."""
    return escape(translated_count(one, many, count)).format(count=f"{count:,}")


def _number(value: int) -> str:
    return f"{value:,}"


_environment = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals.update({"_": _sentence, "_n": _counted, "size": size, "duration": duration})
_environment.filters["number"] = _number
