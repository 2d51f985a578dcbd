"""A tokenizer of a few words, and a text in it."""

from __future__ import annotations

from core.documents.document import Document, Section
from core.events import Finished
from core.text.tokenizer import Frame

TEXT = "The keeper rowed out at dusk, and nobody on the quay saw him come back before the tide turned. " * 2


BOOK = Document("B", "", "txt", TEXT, (Section("One", 0, len(TEXT)),), sha256="b")


class TinyTokenizer:
    """One token per printable character, within the tiny models' vocabulary. Frames are control tokens."""

    def encode(self, text: str) -> list[int]:
        return [94 if char == "\n" else ord(char) - 32 for char in text]

    def count(self, text: str) -> int:
        return len(text)

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(32 + token) for token in ids if token < 95)

    def frame(self, system: str) -> Frame:
        return Frame((95, *self.encode(system)), (96,), (95, 96))


def fed(done: Finished) -> int:
    """Tokens of the prompt that no cache held."""
    return done.stats.prompt_tokens - done.stats.reused_tokens
