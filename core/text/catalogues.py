"""Catalogues of translated sentences (assets/locale/*/LC_MESSAGES/*.po), read as translators write them:
there is no compiled copy that could be older.
"""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

LOCALES = Path(__file__).resolve().parents[2] / "assets" / "locale"
FOLDERS = {"de": "de", "zh": "zh_CN"}
_LINE = re.compile(r'(?:(msgid|msgid_plural|msgstr(?:\[\d+])?) )?(".*")')


class Catalogue:
    """The sentences of one language: English to one form, or to as many as its plural has."""

    def __init__(self, text: str = "") -> None:
        """Takes in the text of a .po file; see `add`."""
        self.forms: dict[str, tuple[str, ...]] = {}
        self._plural: Callable[[int], int] = lambda count: int(count != 1)
        self.add(text)

    def add(self, text: str) -> None:
        """Takes in another .po file. What has no translation yet is left out."""
        for entry in _entries(text):
            told = tuple(part for key, part in entry.items() if key.startswith("msgstr"))
            if not entry.get("msgid"):
                rule = re.search(r"plural=(.+?);?\s*$", told[0] if told else "", re.MULTILINE)
                self._plural = gettext.c2py(rule[1]) if rule else self._plural
            elif all(told):
                if "msgid_plural" in entry:
                    self.forms[entry["msgid_plural"]] = told[-1:]
                self.forms[entry["msgid"]] = told

    def sentence(self, message: str) -> str:
        """The translation; the message itself where there is none."""
        return self.forms.get(message, (message,))[0]

    def counted(self, one: str, many: str, count: int) -> str:
        """The form for `count`; English where there is none."""
        forms = self.forms.get(one)
        return forms[self._plural(count)] if forms else one if count == 1 else many


def _entries(text: str) -> Iterator[dict[str, str]]:
    """{keyword: its string} of each entry of a .po file. Comments, contexts and obsolete entries are passed
    over.
    """
    entry: dict[str, str] = {}
    field = ""
    for line in (*text.splitlines(), ""):
        found = _LINE.fullmatch(line.strip())
        if found:
            field = found[1] or field
            entry[field] = entry.get(field, "") + ast.literal_eval(found[2])
        elif not line.strip() and entry:
            yield entry
            entry = {}


@cache
def of(code: str) -> Catalogue | None:
    """The catalogue of a language; None where there is none, as for English."""
    files = sorted((LOCALES / FOLDERS[code] / "LC_MESSAGES").glob("*.po")) if code in FOLDERS else []
    if not files:
        return None
    made = Catalogue()
    for file in files:
        made.add(file.read_text(encoding="utf-8"))
    return made
