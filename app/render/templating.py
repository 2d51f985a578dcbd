"""The page's templates (app/templates): values in, HTML out, with every value escaped."""

from __future__ import annotations

import re

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from core.conversation.chapter_names import section_title
from core.documents.word_count import count_words
from core.model.store.catalogue import spelt, title_of
from core.paths import ROOT
from core.text.words import Message, duration, entry, language, localised, localized, size

TEMPLATES = ROOT / "app" / "templates"
BEGUN_CHARS, LONG_CHARS = 240, 900  # of a question, of which more is folded
UNIT = re.compile(r"(?<=\d) (?=(?:[KMG]B|ms|min|s|h)\b)")


def render(name: str, /, **values: object) -> Markup:
    """The template filled in. Markup (what another template made) is kept. Raises UndefinedError for a value
    that the template needs and was not given.
    """
    return Markup(_environment.get_template(name).render(values))


def nonbreaking(text: str) -> str:
    """The text with each figure on one line with its unit."""
    return UNIT.sub("\u00a0", text)


# --- words and figures in templates: {{ _("{done} of {total}", done=1, total=2) }}, {{ tokens|number }}


def _sentence(message: str, /, **values: object) -> Markup:
    """`_`: no sentence holds HTML, and the values put into it are escaped."""
    sentence = escape(entry(message))
    return _filled(sentence, values) if values else sentence


def _counted(one: str, many: str, number: int, /, **values: object) -> Markup:
    """`_n`: like `_`, with {count} filled in."""
    return _filled(escape(entry(one, many, number)), {"count": number, **values})


def _filled(sentence: Markup, values: dict[str, object]) -> Markup:
    shown = {
        name: _number(value) if isinstance(value, int) else _shown(value) for name, value in values.items()
    }
    return Markup(nonbreaking(sentence.format(**shown)))


def _number(value: int) -> str:
    return localised(f"{value:,}")


def _size(amount: float) -> str:
    return nonbreaking(size(amount))


def _duration(seconds: float) -> str:
    return nonbreaking(duration(seconds))


def _decimal(value: float, digits: int = 1) -> str:
    return localised(f"{value:,.{digits}f}")


def _percent(share: float, digits: int = 0) -> str:
    return localised(f"{share:.{digits}%}")


def _width(share: float) -> str:
    """A share as CSS has it, whatever the language."""
    return f"{share:.2%}"


def _shown(value: object) -> object:
    """What a template writes: of a message its words, whatever process and day it comes from."""
    return nonbreaking(localized(value)) if isinstance(value, Message) else value


def _ms(value: float) -> str:
    """Milliseconds without their unit; a dash where nothing was measured."""
    if not value:
        return "–"
    return _decimal(value, 1 if value < 100 else 0)


def _lines(text: str) -> Markup:
    """Text whose line breaks stay."""
    return Markup(str(escape(localized(text))).replace("\n", "<br>"))


def _paragraphs(text: str) -> list[str]:
    """Plain text cut at empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _beginning(text: str) -> str:
    """Of a long text how it begins; empty of one that is shown whole."""
    is_long = len(text) > LONG_CHARS or len(text.splitlines()) > 9
    begun = text[:BEGUN_CHARS].rsplit(" ", 1)[0] if is_long else ""
    return " ".join(begun.split())


_environment = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
    finalize=_shown,
)
_environment.globals.update(
    {"_": _sentence, "_n": _counted, "size": _size, "duration": _duration, "language": language}
)
_environment.filters.update(
    {
        "number": _number,
        "decimal": _decimal,
        "percent": _percent,
        "width": _width,
        "ms": _ms,
        "lines": _lines,
        "paragraphs": _paragraphs,
        "beginning": _beginning,
        "count_words": count_words,
        "told": localized,
        "titled": title_of,
        "section_title": section_title,
        "spelt": spelt,
    }
)
