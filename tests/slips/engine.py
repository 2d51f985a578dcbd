"""Slips in the engine, its configuration and its pipe: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SAID = ("tests/text/test_messages.py",)

SLIPS = (
    Slip("core/engine.py", "if self.plan.straight and", "if False and", ("tests/test_engine.py",)),
    Slip("core/engine.py", "context.cache.remember()", "pass", ("tests/test_reopen.py",)),
    Slip(
        "core/wire.py",
        "return to_json_text(message, ensure_ascii",
        'return __import__("json").dumps(message, ensure_ascii',
        _SAID,
    ),
)
