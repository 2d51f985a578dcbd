"""An answer that the disk had no room for: what is to be written, and how it is told until then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.store.turns import StoredTurn


@dataclass(frozen=True, slots=True)
class UnwrittenAnswer:
    """`extra`: None where that stays as it is; `keeps_version`: beside the answer that stands on disk."""

    text: str
    state: str
    extra: dict | None = None
    keeps_version: bool = False

    def behind(self, older: UnwrittenAnswer | None) -> UnwrittenAnswer:
        """This one, in place of an older one that could not be written either."""
        if older is None:
            return self
        extra = older.extra if self.extra is None else self.extra
        return replace(self, extra=extra, keeps_version=self.keeps_version or older.keeps_version)

    def over(self, stored: StoredTurn, why: str) -> StoredTurn:
        """What is told in place of the turn on disk; `why` it is not there yet."""
        versions, limits = stored.versions, stored.version_limits
        if self.keeps_version:
            newest = max((number for number, _text in versions), default=0)
            versions = (*versions, (newest + 1, stored.text))
            limits = (*limits, stored.extra.get("spoiler_limit"))
        extra = stored.extra if self.extra is None else self.extra
        told = replace(stored, text=self.text, state=self.state, extra=extra, unstored=why)
        return replace(told, versions=versions, version_limits=limits)
