"""What the disk had no room for: what is to be written, and how it is told until then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from app.store.turns import Conversation, StoredTurn, question_title


@dataclass(slots=True)
class UnwrittenTurns:
    """Questions with the places of their answers, and the conversations that they begin, by id. `turns`: what
    a conversation has behind those on disk, in order.
    """

    talks: dict[str, Conversation] = field(default_factory=dict)
    turns: dict[str, list[StoredTurn]] = field(default_factory=dict)

    def copy(self) -> UnwrittenTurns:
        """As it is now, whatever is added later."""
        return UnwrittenTurns(dict(self.talks), {name: list(held) for name, held in self.turns.items()})

    def of(self, conversation_id: str) -> list[StoredTurn]:
        """Those of one conversation."""
        return self.turns.get(conversation_id, [])

    def add(self, conversation_id: str, turn: StoredTurn) -> None:
        """One more. The first question names its conversation."""
        self.turns.setdefault(conversation_id, []).append(turn)
        if turn.number == 1:
            talk = self.talks[conversation_id]
            self.talks[conversation_id] = replace(talk, title=question_title(turn.text))

    def note(self, conversation_id: str, number: int, extra: dict) -> bool:
        """Changes these of a turn's `extra`; False where it is on disk."""
        held = self.of(conversation_id)
        for place, turn in enumerate(held):
            if turn.number == number:
                held[place] = replace(turn, extra={**turn.extra, **extra})
                return True
        return False

    def about(self, book_id: str) -> list[Conversation]:
        """The book's conversations that are not on disk, newest first."""
        return [talk for talk in reversed(self.talks.values()) if talk.book_id == book_id]

    def forget(self, conversation_id: str) -> None:
        """Nothing of it is to be written."""
        self.talks.pop(conversation_id, None)
        self.turns.pop(conversation_id, None)

    def all(self) -> Iterator[tuple[str, StoredTurn]]:
        """Every turn with the conversation it belongs to."""
        return ((name, turn) for name, held in self.turns.items() for turn in held)


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
