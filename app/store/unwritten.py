"""An answer that the disk had no room for: what is to be written, and how it is told until then."""

from __future__ import annotations

from collections.abc import Sequence
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
        versions: Sequence[tuple[int, str]] = stored.versions
        if self.keeps_version:
            newest = max((number for number, _text in versions), default=0)
            versions = (*versions, (newest + 1, stored.text))
        extra = stored.extra if self.extra is None else self.extra
        return replace(
            stored, text=self.text, state=self.state, extra=extra, versions=tuple(versions), unstored=why
        )
