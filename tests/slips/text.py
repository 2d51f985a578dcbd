"""Slips in core/text: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SAID = ("tests/text/test_messages.py",)

SLIPS = (
    Slip(
        "core/text/stopping.py",
        "if length >= self._end",
        "if length > self._end",
        ("tests/text/test_stopping.py",),
    ),
    Slip(
        "core/text/detokenizer.py",
        "if text.endswith(_BROKEN) and",
        "if not text and",
        ("tests/text/test_detokenizer.py",),
    ),
    Slip("core/text/circling.py", "_MIN_CYCLES = 3", "_MIN_CYCLES = 2", ("tests/text/test_circling.py",)),
    Slip(
        "core/text/grounding.py",
        "if name.lower() not in known",
        "if name not in known",
        ("tests/text/test_grounding.py",),
    ),
    Slip(
        "core/text/ranking.py",
        "length / mean) for length in lengths",
        "1.0) for length in lengths",
        ("tests/text/test_ranking.py",),
    ),
    Slip("core/text/packing.py", 'values["values"] = packed(dict(message.values))', "pass", _SAID),
    Slip("core/text/packing.py", '"template": message.template}', '"template": str.__str__(message)}', _SAID),
    Slip("core/text/packing.py", 'values |= {"many": message.many, "count": message.count}', "pass", _SAID),
    Slip("core/text/packing.py", "if not (_is_plain(template) and _is_plain(many)):", "if False:", _SAID),
    Slip(
        "core/text/words.py",
        "return _made, (self.template, self.values,",
        "return _made, (self.template, None,",
        _SAID,
    ),
)
