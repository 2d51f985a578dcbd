"""Characters as a reader expects them: ligatures apart, invisible marks gone, broken encodings repaired.
Knows no format.
"""

from __future__ import annotations

import re
import unicodedata

_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
# soft hyphen, zero-width space and joins that carry no meaning, byte order mark, direction marks.
# U+200C and U+200D stay: Persian, Hindi and others are spelt with them.
_INVISIBLE = (
    "\u00ad\u200b\u2060\ufeff\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c"
)
_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_TABLE: dict[int, str | None] = {
    **{ord(ligature): letters for ligature, letters in _LIGATURES.items()},
    **{ord(mark): None for mark in _INVISIBLE},
    **{ord(space): " " for space in _SPACES},
    **{code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **dict.fromkeys((0xB, 0xC, 0x85, 0x2028, 0x2029), "\n"),
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), None),
}
# a search costs a tenth of a translation, which most paragraphs with a curly quote do not need
_TRANSLATED = re.compile(f"[{re.escape(''.join(map(chr, _TABLE)))}]")
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*\Z")
_EMPHASIS = re.compile(r"(?<![\w_])_(?=[^\s_])([^_]{1,300})(?<=\S)_(?![\w_])")
# what a raised number is a power of, not the mark of a note: a symbol or a unit
POWER = re.compile(r"(?:(?<![^\W_])(?!I)[^\W\d_]|(?<![^\W\d_])(?:[cdkm]m|sec|mol|kg))\Z")
_RUN_OF_SPACE = re.compile(r"[ \t]+")
# what UTF-8 read as Windows-1252 or Latin-1 leaves behind: â€™ Ã© Â« and their kind
_MOJIBAKE = re.compile(r"â€[\x80-\xbf™œ\x9d˜¦“”]|Ã[\x80-\xbf¡-¿€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|Â[\xa0-\xbf]|ï»¿")


def tidy(text: str) -> str:
    """Composed characters (NFC), plain spaces, ligatures resolved, no invisible or control characters. Line
    breaks stay.
    """
    if _PLAIN.match(text):
        return text
    composed = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    return composed.translate(_TABLE) if _TRANSLATED.search(composed) else composed


def without_emphasis(text: str) -> str:
    """The text without the underscores around words that stand for italics in plain texts. Names with
    underscores inside and rows of them (blanks to be filled in) stay.
    """
    return _EMPHASIS.sub(r"\1", text)


def one_line(text: str) -> str:
    """`tidy`, and all white space collapsed to single spaces."""
    return " ".join(tidy(text).split())


def paragraph(text: str) -> str:
    """`tidy`, and spaces collapsed within each line; empty lines dropped, line breaks kept."""
    text = tidy(text)
    if "  " in text or "\t" in text:
        text = _RUN_OF_SPACE.sub(" ", text)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def repair_mojibake(text: str) -> tuple[str, bool]:
    """The text with UTF-8 that was once read as another encoding put right, and whether anything was
    changed.
    """
    if len(_MOJIBAKE.findall(text)) < 2:
        return text, False
    import ftfy

    fixed = ftfy.fix_text(
        text,
        uncurl_quotes=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        unescape_html=False,
        normalization=None,
    )
    return fixed, fixed != text
