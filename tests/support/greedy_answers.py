"""Greedy answers of an engine."""

from __future__ import annotations

from core.ask import Params
from core.engine import Done, Engine
from core.events import Prefill


def answer(machine: Engine, ids: list[int], params: Params) -> list[int]:
    """The answer's tokens, in a context of its own."""
    events = machine.generate(machine.new_context(machine.context_tokens), ids, params)
    return [token for event in events if not isinstance(event, (Prefill, Done)) for token in event.tokens]
