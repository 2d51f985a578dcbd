"""When the retrieval cache selects anew. Knows nothing of how it selects."""

from __future__ import annotations

from core.cache.base import KeyHook, TargetKVCache
from core.cache.retrieval import RetrievalKVCache
from core.events import Acceptance

_JUDGED = 4  # rounds before a low acceptance says something


class RetrievalRefresh:
    """Before the first round by what prefill's tap saw, if there was anything to prefill; then every `every`
    rounds with a draft, sooner when acceptance drops under `floor` or the exact tail is full. Rounds of plain
    decoding look at nothing that could grow old.

    The verification pass of the round in which a refresh is due is observed; the selection follows its
    commit. Both lie between draws.
    """

    def __init__(
        self, source: TargetKVCache, cache: RetrievalKVCache, *, every: int = 12, floor: float = 0.6
    ) -> None:
        self._source, self._cache, self._every, self._floor = source, cache, every, floor
        self._rounds = 0
        self._rate = 1.0

    @property
    def tap(self) -> KeyHook:
        """What the end of a prefill is to be shown to."""
        return self._cache.policy.tap

    def before_round(self) -> None:
        """Selects for the first time if it can, and has this round's verification observed if one is due."""
        if not self._cache.ready:
            self._cache.refresh()
        due = self._rounds >= self._every or (self._rounds >= _JUDGED and self._rate < self._floor)
        self._source.observer = self._cache.policy.observe if due or self._cache.needs_refresh else None
        self._source.observed_chunk = self._cache.policy.summed

    def after_round(self, acceptance: Acceptance) -> None:
        """Selects anew if the round was observed."""
        if acceptance.rate is not None:
            self._rounds += 1
            self._rate += 0.3 * (acceptance.rate - self._rate)
        if self._source.observer is not None and self._cache.refresh():
            self._source.observer = None
            self._rounds, self._rate = 0, 1.0
