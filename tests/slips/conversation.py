"""Slips in core/conversation: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_TALK = (
    "tests/conversation/test_kept.py",
    "tests/conversation/test_books.py",
    "tests/conversation/test_contexts.py",
    "tests/conversation/test_session.py",
)

SLIPS = (
    Slip(
        "core/conversation/time_estimates.py",
        "_WRITTEN_HALF_ROUNDS = 4096, 130",
        "_WRITTEN_HALF_ROUNDS = 4096, 20",
        _TALK,
    ),
    Slip("core/conversation/partwise.py", "pace.done(own)", "pass", ("tests/conversation/test_telling.py",)),
    Slip(
        "core/conversation/summary_layout.py",
        "if kept:",
        "if not kept:",
        ("tests/conversation/test_partwise.py", "tests/conversation/test_telling.py"),
    ),
    Slip(
        "core/conversation/partwise.py",
        "slot.own if anew else",
        "slot.own if True else",
        ("tests/conversation/test_telling.py",),
    ),
    Slip(
        "core/conversation/turns.py",
        "prompt.head_tokens - len(memo) if keep",
        "prompt.head_tokens if keep",
        _TALK,
    ),
    Slip("core/conversation/books.py", "with making:", "if making:", _TALK),
    Slip(
        "core/conversation/retrieval_result.py",
        "behind_heading(book, place))]) > 1",
        "behind_heading(book, place))]) > 0",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip(
        "core/conversation/verifier.py",
        "self._refusals = 1 - sum(",
        "self._refusals = sum(",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "if ask.spoiler_limit is not None or",
        "if False and",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "search.why = english_only(self._style, ask.question, ask.book) or asks_back",
        "pass",
        ("tests/conversation/test_languages.py",),
    ),
    Slip(
        "core/conversation/chunked_answering.py",
        "yield doubted(whole, run, self._style, self._books)",
        "yield whole",
        ("tests/conversation/test_unjudged.py",),
    ),
    Slip(
        "core/conversation/unjudged.py", "not style.verifier or", "", ("tests/conversation/test_unjudged.py",)
    ),
    Slip(
        "core/conversation/chunked_answering.py",
        "answer = reworded_refusal(answer, self._style.refusal, _(UNSAID_HERE))",
        "pass",
        ("tests/conversation/test_refusals.py",),
    ),
    Slip(
        "core/conversation/retrieval_answering.py",
        "question_tokens=asked",
        "question_tokens=0",
        ("tests/conversation/test_verifier.py",),
    ),
    Slip("core/conversation/asking.py", "attempts[turn] += 1", "attempts[turn] += 0", _TALK),
    Slip(
        "core/conversation/books.py",
        "self._values.popitem(last=False)",
        "self._values.popitem(last=True)",
        _TALK,
    ),
    Slip(
        "core/conversation/books.py",
        "(book.sha256, len(book.text), part.start, part.end),\n            lambda: array",
        "(book.sha256, len(book.text), part.start),\n            lambda: array",
        _TALK,
    ),
    Slip(
        "core/conversation/books.py",
        "(book.sha256, len(book.text), part.start, part.end),\n            lambda: array",
        "(book.sha256, part.start, part.end),\n            lambda: array",
        _TALK,
    ),
    Slip(
        "core/conversation/answering.py",
        "            rounds.clear()\n",
        "",
        ("tests/conversation/test_wiring.py",),
    ),
    Slip(
        "core/conversation/hearing.py",
        "None if in_first_person(decoded.text) else ",
        "",
        ("tests/conversation/test_partwise.py",),
    ),
    Slip(
        "core/conversation/partwise.py",
        "and not said_before(known[own], summary.told)",
        "",
        ("tests/conversation/test_partwise.py",),
    ),
    Slip(
        "core/conversation/hearing.py",
        "_replace(pieces=_as_it_stands(decoded, line.text).pieces)",
        "_replace(pieces=())",
        ("tests/app/test_told_levels.py",),
    ),
)
