"""The page's templates (app/templates): values in, HTML out, with every value escaped."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from core.text.words import duration, size, translated, translated_count

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(name: str, /, **values: object) -> Markup:
    """The template filled in. Markup (what another template made) is kept. Raises UndefinedError for a value
    that the template needs and was not given.
    """
    return Markup(_environment.get_template(name).render(values))


# --- words and figures in templates: {{ _("{count} of {total}").format(...) }}, {{ tokens|number }}


def _sentence(message: str) -> Markup:
    """`_`: filled in by `.format()`, which escapes the values. No sentence holds HTML."""
    return escape(translated(message))


def _counted(one: str, many: str, count: int) -> Markup:
    """`_n`: filled in like `_`."""
    return escape(translated_count(one, many, count))


def _number(value: int) -> str:
    return f"{value:,}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def _ms(value: float) -> str:
    """Milliseconds without their unit; a dash where nothing was measured."""
    if not value:
        return "–"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _lines(text: str) -> Markup:
    """Text whose line breaks stay."""
    return Markup(str(escape(text)).replace("\n", "<br>"))


def _paragraphs(text: str) -> list[str]:
    """Plain text cut at empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


_environment = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals.update({"_": _sentence, "_n": _counted, "size": size, "duration": duration})
_environment.filters.update(
    {"number": _number, "percent": _percent, "ms": _ms, "lines": _lines, "paragraphs": _paragraphs}
)
