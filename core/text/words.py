"""Words for people: the one catalogue of user errors, notes and the page, and quantities as they are said.

English stands in the code as it is shown; other languages are gettext catalogues of the same sentences
(assets/locale). Values are put in afterwards, so that a sentence is one entry whatever it is filled with:
`_("{title} was not opened.").format(title=title)`.
"""

from __future__ import annotations

import gettext
from pathlib import Path

DOMAIN = "messages"
LOCALES = Path(__file__).resolve().parents[2] / "assets" / "locale"
GB = 1_000_000_000

_translations: gettext.NullTranslations = gettext.NullTranslations()


def use_language(code: str | None) -> None:
    """The language of this process from now on; English where there is no catalogue of `code`."""
    global _translations
    _translations = gettext.translation(DOMAIN, LOCALES, [code] if code else [], fallback=True)


def translated(message: str) -> str:
    """The sentence in the language of this process. Imported as `_`, the name that the extractor knows."""
    return _translations.gettext(message)


def translated_count(one: str, many: str, count: int) -> str:
    """`one` or `many`, as the language counts. Imported as `_n`."""
    return _translations.ngettext(one, many, count)


def marked(message: str) -> str:
    """The sentence as it is: a key in the code, translated where it is shown. Imported as `N_`, for the
    extractor.
    """
    return message


def size(amount: float) -> str:
    """Bytes for people, in units of 1,000: 68.7 GB, below one GB in MB, below one MB in KB."""
    if amount >= GB:
        return f"{amount / GB:.1f} GB"
    return f"{amount / 1e6:.0f} MB" if amount >= 1e6 else f"{amount / 1e3:.0f} KB"


def duration(seconds: float) -> str:
    """A time for people: 4.2 s, 48 s, 12 min, 1.5 h."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
