"""The engine of rank 0, which has the other ranks do what it is asked, and theirs, which do it.

A question, its prompt and its settings go to the others before it is answered; when to stop and where an
answer ends is said while it is. All else each rank works out by itself, and alike.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from core.backend.ranks import ProcessRanks
from core.decoding.branching import AnswerBranch
from core.decoding.context import Context
from core.decoding.decoder import Ends, Round, never
from core.engine import Done, Engine
from core.errors import RankLost, UserError
from core.events import DecodingStarted, Prefill, Preparing
from core.request import Params


@dataclass(frozen=True, slots=True)
class EngineCall:
    """Something that the engine of rank 0 was asked. `held`: the contexts that have a cache, by number; the
    others' go.
    """

    verb: str
    given: tuple[Any, ...]
    context: int
    capacity: int
    beside: bool
    book_tokens: int
    held: frozenset[int]


class LeadEngine(Engine):
    """An engine whose model other ranks compute with it."""

    def __init__(self, *given: Any, ranks: ProcessRanks, **more: Any) -> None:
        super().__init__(*given, **more)
        self._ranks = ranks
        self._numbers = itertools.count()
        self._contexts: WeakKeyDictionary[Context, int] = WeakKeyDictionary()

    def complete(self, context: Context) -> None:
        """See Engine."""
        if context.cache is None:
            self._tell("complete", context)
            with self._in_step():
                super().complete(context)

    def generate(
        self,
        context: Context,
        ids: Sequence[int],
        params: Params,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        ends: Ends = never,
    ) -> Iterator[Preparing | Prefill | DecodingStarted | Round | Done]:
        """See Engine. A caller who stops iterating has the ranks go on to where they can be stopped."""
        self._tell("generate", context, list(ids), params)
        left = False
        events = super().generate(
            context,
            ids,
            params,
            should_stop=lambda: self._ranks.said(left or should_stop()),
            ends=self._heard(ends),
        )
        with self._in_step():
            try:
                # `yield from` would close it
                for event in events:  # noqa: UP028
                    yield event
            except GeneratorExit:
                left = True
                deque(events, maxlen=0)
                raise

    def log_probabilities(
        self, context: Context, ids: Sequence[int], said: Sequence[int], *, kept: int = 0
    ) -> list[float]:
        """See Engine."""
        self._tell("log_probabilities", context, list(ids), list(said), kept)
        with self._in_step():
            return super().log_probabilities(context, ids, said, kept=kept)

    def several(
        self,
        context: Context,
        ids: Sequence[int],
        branches: Sequence[AnswerBranch],
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[float] | None:
        """See Engine."""
        self._tell("several", context, list(ids), [one.params for one in branches])
        heard = [replace(one, ends=self._heard(one.ends)) for one in branches]
        with self._in_step():
            seconds = super().several(
                context, ids, heard, should_stop=lambda: self._ranks.said(should_stop())
            )
        for one, other in zip(branches, heard, strict=True):
            one.log_probability, one.reason = other.log_probability, other.reason
        return seconds

    def _heard(self, ends: Ends) -> Ends:
        return lambda token: self._ranks.said(ends(token))

    def _tell(self, verb: str, context: Context, *given: Any) -> None:
        if context not in self._contexts:
            self._contexts[context] = next(self._numbers)
        call = EngineCall(
            verb,
            given,
            context=self._contexts[context],
            capacity=context.capacity,
            beside=context.beside,
            book_tokens=context.book_tokens,
            held=frozenset(number for one, number in self._contexts.items() if one.cache is not None),
        )
        self._ranks.shared(lambda: call)

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """What fails here alone leaves the other ranks waiting for what does not come. Raises RankLost."""
        try:
            yield
        except (UserError, RankLost):
            raise
        except Exception as error:
            if self._backend.out_of_memory(error):
                raise
            raise RankLost("this rank is out of step") from error


def follow(engine: Engine, ranks: ProcessRanks) -> None:
    """Does what rank 0 is asked, with an engine of another rank. Raises RankLost when that is gone."""
    contexts: dict[int, Context] = {}
    while True:
        call: EngineCall = ranks.shared()
        for number in contexts.keys() - call.held:
            contexts.pop(number).close()
        context = contexts.setdefault(call.context, Context(None, call.capacity, beside=call.beside))
        context.book_tokens = call.book_tokens
        try:
            _DONE[call.verb](engine, ranks, context, *call.given)
        except UserError:
            continue  # rank 0 says it
        except RuntimeError as error:
            if not engine.model.backend.out_of_memory(error):
                raise


def _complete(engine: Engine, ranks: ProcessRanks, context: Context) -> None:
    engine.complete(context)


def _generate(
    engine: Engine, ranks: ProcessRanks, context: Context, ids: Sequence[int], params: Params
) -> None:
    deque(engine.generate(context, ids, params, should_stop=ranks.said, ends=lambda token: ranks.said()), 0)


def _log_probabilities(
    engine: Engine, ranks: ProcessRanks, context: Context, ids: Sequence[int], said: Sequence[int], kept: int
) -> None:
    engine.log_probabilities(context, ids, said, kept=kept)


def _several(
    engine: Engine, ranks: ProcessRanks, context: Context, ids: Sequence[int], params: Sequence[Params]
) -> None:
    branches = [AnswerBranch(one, lambda token: ranks.said()) for one in params]
    engine.several(context, ids, branches, should_stop=ranks.said)


_DONE: dict[str, Callable[..., None]] = {
    "complete": _complete,
    "generate": _generate,
    "log_probabilities": _log_probabilities,
    "several": _several,
}
