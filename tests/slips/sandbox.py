"""Slips in core/sandbox: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SHOWN = ("tests/app/test_shown_words.py",)

SLIPS = (
    Slip("core/sandbox/child.py", "out.write(to_json_text(message)", "out.write(json.dumps(message)", _SHOWN),
)
