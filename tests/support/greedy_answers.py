"""Greedy answers of an engine."""

from __future__ import annotations

from core.decoding.decoder import Round
from core.engine import Engine
from core.request import Params


def answer(machine: Engine, ids: list[int], params: Params) -> list[int]:
    """The answer's tokens, in a context of its own."""
    events = machine.generate(machine.new_context(machine.context_tokens), ids, params)
    return [token for event in events if isinstance(event, Round) for token in event.tokens]
