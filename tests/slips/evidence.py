"""Slips in core/evidence: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_CHOOSING = ("tests/evidence/test_choosing.py", "tests/evidence/test_tellable.py")
_NEAR = ("tests/evidence/test_nearness.py",)
_STATED = ("tests/evidence/test_stated.py",)

SLIPS = (
    Slip(
        "core/evidence/choosing.py", "if before >= len(blocks) * _BLOCK_WORDS:", "if not blocks:", _CHOOSING
    ),
    Slip("core/evidence/choosing.py", "+ _ADDRESSES * bool", "- _ADDRESSES * bool", _CHOOSING),
    Slip("core/evidence/choosing.py", "+ _QUOTES * any", "- _QUOTES * any", _CHOOSING),
    Slip("core/evidence/choosing.py", "not main.isdisjoint(one)", "False", _CHOOSING),
    Slip("core/evidence/nearness.py", "if held[number] < least", "if held[number] < 0.5", _NEAR),
    Slip("core/evidence/nearness.py", "if not set(_DIGITS", "if False and not set(_DIGITS", _NEAR),
    Slip("core/evidence/nearness.py", "if number == 0 or any(", "if False and any(", _NEAR),
    Slip("core/evidence/nearness.py", "(denied(said) ^ denied(there))", "set()", _NEAR),
    Slip("core/evidence/nearness.py", "or self._adds(said, words, number)", "or False", _NEAR),
    Slip("core/evidence/nearness.py", "known |= {words[0]} &", "known |= set() &", _NEAR),
    Slip("core/evidence/clauses.py", "elif not subject_before or", "elif", _NEAR),
    Slip("core/evidence/nearness.py", "if _turned(said) != _turned(there):", "if False:", _NEAR),
    Slip("core/evidence/nearness.py", "if not same_ones(said, there) or", "if", _NEAR),
    Slip("core/evidence/nearness.py", "or not same_owners(said, there)", "", _NEAR),
    Slip("core/evidence/clauses.py", "told <= {", "True or {", _NEAR),
    Slip("core/evidence/nearness.py", "same_years(said, there) and", "", _NEAR),
    Slip("core/evidence/choosing.py", "return max(1, least, ", "return max(1, ", _CHOOSING),
    Slip("core/evidence/choosing.py", "or _YOU.match(sentence)", "", _CHOOSING),
    Slip("core/evidence/choosing.py", "salutation.end() if salutation and", "low if", _CHOOSING),
    Slip("core/evidence/nearness.py", "if subject:", "if False:", _NEAR),
    Slip(
        "core/evidence/nearness.py",
        "terms(unquoted(self._said(number))) if subject else there",
        "there",
        _NEAR,
    ),
    Slip("core/evidence/stated.py", "and nouns == found", "", _STATED),
    Slip("core/evidence/stated.py", "or DENIES.search(question)", "", _STATED),
    Slip("core/evidence/stated.py", "frozenset() if found & _GENERAL else found", "found", _STATED),
    Slip(
        "core/evidence/stated.py", "return bool(said) and said ==", "return bool(said) and said <=", _STATED
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "and not counts_other(said, asked, text)",
        "",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "or states(said, asked, text)",
        "",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "if unread := no_english(self._style, run.ask.book):",
        "if unread := ():",
        ("tests/conversation/test_languages.py",),
    ),
    Slip("core/evidence/naming.py", "and len(last) == 1", "", ("tests/conversation/test_partwise.py",)),
    Slip("core/evidence/clauses.py", 'if another["pronoun"]:', "if False:", _NEAR),
    Slip("core/evidence/clauses.py", "if _TO.search(there) and not _TO.search(said):", "if False:", _NEAR),
    Slip("core/evidence/nearness.py", "not same_number(said, there) or", "False or", _NEAR),
    Slip("core/evidence/nearness.py", "else max(above, lengths[at - 1])", "else above", _NEAR),
    Slip(
        "core/evidence/names.py",
        "+ 0.7 * (acts and not IS_WHERE.match(read.text, end))",
        "+ 0.7 * acts",
        ("tests/evidence/test_occurrences.py",),
    ),
    Slip(
        "core/evidence/same_names.py",
        "not short.titles or bool(short.titles & long.titles)",
        "True",
        ("tests/evidence/test_same_names.py",),
    ),
)
