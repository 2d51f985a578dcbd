"""Whether a text is in another language than English: by its script, else by the small words that no text of
its language goes without.
"""

from __future__ import annotations

import re

_LATIN = 0.6  # of its letters; foreign names and quotations stand in English books, too
_SAMPLE = 20_000  # characters from the middle of a longer text
_STRETCH, _STRETCHES = 2_000, 40  # characters, and the most such stretches of a text that are looked at,
_PART = 0.1  # of which so many are a part of it that counts
_WORD = re.compile(r"[^\W\d_]+")
# small words that are not English ones, too
_FOREIGN = frozenset(
    _WORD.findall(
        """
    aber als auch auf aus bei bin das dass dem den der des die diese dieser du ein eine einem einen
    einer er
    es für hat ich ihm ihr im ist kann mit nach nicht noch nur oder sein seine sich sie sind über um und
    von vor
    wann warum welche wem wen wenn wer werden wie wird wo wurde zu zum zur
    au aux avec ce ces cette comment dans de du elle est et il ils je la le les leur mais ne nous où par pas
    pour pourquoi quand que quel quelle qui sa se ses son sont sur un une vous
    al como con cuál cuando cuándo del dónde ella el él en era eso esta este fue ha hay las lo los más muy no
    para pero por porque qué quién se su sus una y ya
    alla anche che chi come da degli dei della delle di dove e è gli ha i il io lei lo ma nel nella non
    perché più quale quando questo si sono sua suo tra un uno
    ao as com dos ela ele em foi isso mas mais não na nas nos o onde os ou pela pelo quem são seu sua um uma
    aan dat de deze dit een en het hij ik maar met niet ook op te van voor waar waarom wat wie zijn zij
    och att det som på är av för med den till inte han hon var vad vem jag ett og ikke hvem hvad
        """
    )
) - {"no", "as", "a", "i", "me", "he", "she", "in", "on", "to", "do", "so", "an", "was", "die", "son", "sin"}
_ENGLISH = frozenset(
    _WORD.findall(
        """
    the of and to in is was are were he she it his her him they them their you your that this these those with
    for as on at by from be been not but or an a i me my we our who what when where why how which did do does
    had has have will would can could should if then there about tell describe explain
        """
    )
)


# scripts whose letters look otherwise, or stand otherwise, by language: kana tell Japanese from Chinese
_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u30fa]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("ko", re.compile(r"[\uac00-\ud7a3]")),
    ("he", re.compile(r"[\u05d0-\u05ea]")),
    ("ar", re.compile(r"[\u0621-\u064a]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
)
_SHARE = 0.1  # of a text's letters


def script(text: str) -> str:
    """The language that a text's letters are those of, for choosing a font and a voice; empty for Latin ones,
    which many languages share.
    """
    letters = sum(map(str.isalpha, text))
    for language, known in _SCRIPTS:
        if len(known.findall(text)) > _SHARE * letters:
            return language
    return ""


def spoken_language(text: str) -> str:
    """The language that a text is to be read aloud in; empty for Latin letters that are not English words."""
    return script(text) or ("" if foreign(text) else "en")


def foreign(text: str) -> bool:
    """True where the text is rather in another language than in English; False where that cannot be told."""
    if len(text) > _SAMPLE:
        start = (len(text) - _SAMPLE) // 2
        text = text[start : start + _SAMPLE]
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return False
    # Latin letters, those with accents among them, end at U+024F
    if sum(letter <= "\u024f" for letter in letters) < _LATIN * len(letters):
        return True
    words = _WORD.findall(text.lower())
    english = sum(word in _ENGLISH for word in words)
    return sum(word in _FOREIGN for word in words) > english


def partly_foreign(text: str) -> bool:
    """True where a tenth of the text or more is rather in another language than in English, wherever that
    stands.
    """
    count = max(1, min(_STRETCHES, len(text) // _STRETCH))
    starts = (at * len(text) // count for at in range(count))
    return sum(foreign(text[start : start + _STRETCH]) for start in starts) >= _PART * count
