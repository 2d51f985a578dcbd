"""A guess at the language of a text, for files that do not name it: by script, else by the commonest small
words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_SAMPLE_CHARS = 60_000
_SCRIPTS = (
    ("ja", r"[\u3040-\u30ff]"),
    ("zh", r"[\u4e00-\u9fff]"),
    ("ko", r"[\uac00-\ud7af]"),
    ("ar", r"[\u0600-\u06ff]"),
    ("he", r"[\u0590-\u05ff]"),
    ("ru", r"[\u0400-\u04ff]"),
    ("el", r"[\u0370-\u03ff]"),
    ("hi", r"[\u0900-\u097f]"),
    ("th", r"[\u0e00-\u0e7f]"),
)
_SMALL_WORDS = {
    "en": "the and of to in was that his with for had not but from this which",
    "de": "der die und das nicht ist ein mit sich den auf sie von dem war",
    "fr": "le la les et des une dans est pas que qui pour avec sur vous",
    "es": "el los que las una por con para del como pero más sus muy era",
    "it": "il che di non gli una per con del sono della era più anche nel",
    "pt": "o que não uma os com para mais dos como mas foi ele são ao",
    "nl": "de het een van en niet dat zijn op te met voor was hij aan",
    "sv": "och att det som en på är för med inte han den till var jag",
    "pl": "i w nie na się że do to jest jak ale po co był jego",
}


def guess_language(texts: Iterable[str]) -> str:
    """A two-letter code, or "" when nothing fits."""
    sample = ""
    for text in texts:
        sample += text + " "
        if len(sample) > _SAMPLE_CHARS:
            break
    letters = sum(map(str.isalpha, sample)) or 1
    for code, pattern in _SCRIPTS:
        if len(re.findall(pattern, sample)) > (0.05 if code == "ja" else 0.3) * letters:
            return code
    counts = Counter(re.findall(r"[^\W\d_]+", sample.lower()))
    total = sum(counts.values()) or 1
    scores = {
        code: sum(counts[word] for word in words.split()) / total for code, words in _SMALL_WORDS.items()
    }
    best = max(scores, key=lambda code: scores[code])
    return best if scores[best] > 0.08 else ""
