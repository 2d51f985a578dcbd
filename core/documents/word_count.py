"""How many words a text has, in every script: Chinese and Japanese are counted by characters."""

from __future__ import annotations

import re

# kana and ideographs, not their punctuation; Korean parts its words by spaces
_CHARACTER = re.compile(
    r"[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def count_words(text: str) -> int:
    """Words between spaces; each Chinese or Japanese character is one."""
    if text.isascii() or not _CHARACTER.search(text):
        return len(text.split())
    rest, characters = _CHARACTER.subn(" ", text)
    return characters + sum(any(map(str.isalnum, word)) for word in rest.split())
