"""What lies on the desk beside books and turns: values only. The desk changes them, the page shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Notice:
    """A message above the conversation. `kind`: info | error. `undo`: the books and conversations it can
    bring back, the one deleted last at the end."""

    text: str
    kind: str = "error"
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """A file that is being read. It waits for its password while `locked`, for a word about its scanned pages
    while `offer` is set.
    """

    path: Path
    name: str
    stage: str = ""
    fraction: float | None = None
    left_s: float | None = None  # until this stage is over
    locked: bool = False
    # what the person is told before choosing whether OCR reads the pictures
    offer: str = ""
    installs: bool = False  # OCR is not there yet
    # a sample is the app's own file; an upload is deleted once it is read
    keep: bool = False
    password: str | None = field(default=None, repr=False)
    ocr: bool = False
    title: str = ""  # that the person gave it
    behind: int = 0  # files that are read after this one

    @property
    def waiting(self) -> bool:
        """Whether it is the person's turn."""
        return self.locked or bool(self.offer)


@dataclass(frozen=True, slots=True)
class Passage:
    """The place the reader pane shows; `length` characters from `offset` are marked when positive."""

    offset: int = 0
    length: int = 0
