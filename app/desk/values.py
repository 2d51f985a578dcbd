"""What lies on the desk beside books and turns, one value each: services make them, the page shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.store.folder_scan import FoundFile
from app.store.relocation import Relocation
from app.store.turns import StoredTurn, wording
from core.conversation.asides import AsideSentence
from core.documents.finding import Places
from core.evidence.occurrences import Occurrence
from core.request import Request


@dataclass(frozen=True, slots=True)
class Remedy:
    """A button of a message that does what helps: the action `act`, with `id` and `book`, or what it `opens`,
    the drawer of that name.
    """

    words: str
    act: str = ""
    id: str = ""
    book: str = ""
    opens: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message above the conversation. `kind`: info | error."""

    text: str
    kind: str = "error"
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Deletion:
    """A book or a conversation that can be brought back, and what says that it is deleted."""

    id: str
    words: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A book whose file was read, and what says so."""

    book_id: str
    words: str


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A value that a key cannot have, and why: said at its field until there is a good one."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file that is being read. It waits for its password while `locked`, for a word about its scanned pages
    while `offer` is set.
    """

    path: Path
    name: str
    stage: str = ""
    fraction: float | None = None
    left_s: float | None = None  # until this stage is over
    locked: bool = False
    refusal: str = ""  # why the last password did not open it
    # what the person is told before choosing whether OCR reads the pictures
    offer: str = ""
    installs: bool = False  # OCR is not there yet
    # a sample is the app's own file; an upload is deleted once it is read
    keep: bool = False
    password: str | None = field(default=None, repr=False)
    ocr: bool = False
    several: bool = False  # it came together with others
    title: str = ""  # that the person gave it
    behind: int = 0  # files that are read after this one

    @property
    def waiting(self) -> bool:
        """Whether it is the person's turn."""
        return self.locked or bool(self.offer)


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """The place the reader pane shows; `length` characters from `offset` are marked when positive."""

    offset: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class BookSearch:
    """What was looked for in the open book. `unfolded`: where the chapter begins of which all places are
    shown.
    """

    wanted: str = ""
    exact: bool = False
    found: Places = Places()
    unfolded: int = -1


@dataclass(frozen=True, slots=True)
class EarlierMention:
    """Whom or what an earlier volume names, as the open book does: as what, how often, the sentence that
    introduces it, and where that and the first mention are, (offset, length). `spoiler_limit`: the chapter up
    to which the volume counts.
    """

    book_id: str
    title: str
    name: str
    times: int
    sentence: str
    span: tuple[int, int]
    place: str
    first: tuple[int, int]
    first_place: str
    spoiler_limit: int | None = None


@dataclass(frozen=True, slots=True)
class NamesPanel:
    """Who and what occurs in the open book before `end`. `found`: None while the text is looked through;
    `kind`: what is listed, `every`: those that are named once, too; `chosen`: by name, whose mentions are
    shown; `unfolded`: where the chapter begins of which all are. `known_before`: the names that earlier
    volumes have, None while these are looked through; `earlier`: where they have the chosen one.
    """

    open: bool = False
    end: int = 0
    found: tuple[Occurrence, ...] | None = ()
    kind: str = "person"
    every: bool = False
    chosen: str = ""
    unfolded: int = -1
    known_before: frozenset[str] | None = frozenset()
    earlier: tuple[EarlierMention, ...] = ()


@dataclass(frozen=True, slots=True)
class Aside:
    """A short answer beside the book's text, about `words` that stand at the (start, end) `at`. `kind`: one
    of core.conversation.asides.KINDS_OF_ASIDE; nothing behind `end` was given to the model or may be told;
    `state`: writing | finished | failed.
    """

    number: int
    kind: str
    words: str
    at: tuple[int, int]
    end: int
    sentences: tuple[AsideSentence, ...] = ()
    state: str = "writing"
    error: str = ""


@dataclass(frozen=True, slots=True)
class BookPlaces:
    """Where in the text of a book words stand: (start, end) of each place."""

    book_id: str
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TextSearch:
    """What is looked for in the texts of all books: of `total` so many are `done`, and `found` are those that
    hold it.
    """

    wanted: str = ""
    done: int = 0
    total: int = 0
    found: tuple[BookPlaces, ...] = ()

    @property
    def running(self) -> bool:
        """Whether more may be found."""
        return self.done < self.total


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Where an answer is made: the conversation, its book ("" without one), and what was asked."""

    book_id: str
    conversation_id: str
    wording: str


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """A question that waits: the context cannot hold it with all that was said. `oldest` of `count` questions
    would have to be left out. `room`: core.conversation.turns.Turns.room.
    """

    ask: Request
    oldest: int
    count: int
    room: dict[str, Any]
    retells: bool  # whether there is room for a summary in their place
    instead_of: StoredTurn | None = None

    @property
    def wording(self) -> str:
        """What was asked."""
        return wording(self.ask)


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """A plain run beside an answer: its tokens so far, and until it is as long as the answer."""

    tokens: int = 0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadingsUsage:
    """Of books that were read: bytes in all, the most there may be, and (title, bytes) of those on the
    shelf.
    """

    bytes: int
    quota_bytes: int
    books: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DiskShortage:
    """A disk with next to no room, and what could be deleted: bytes of what was read of books, and of models
    as (name, bytes). `folder`: where the data lies.
    """

    folder: Path
    free_bytes: int
    readings_bytes: int
    models: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BookAnswer:
    """What another book than the open one answers to the same question. `state`: waiting | writing | finished
    | failed; `pieces`: (text, level) of the answer, or why there is none; `places`: (offset, length, where)
    that it leads to; `unsure`: it may not be right, as far as the book shows; `asked_in`: the conversation
    beside whose question it stands.
    """

    book_id: str
    title: str
    conversation_id: str
    question: str
    state: str = "waiting"
    pieces: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[int, int, str], ...] = ()
    unsure: bool = False
    asked_in: str = ""


@dataclass(frozen=True, slots=True)
class FolderBooks:
    """What is new in the person's folders of books. `put_away`: files that are there and no longer offered;
    `unreachable`: (folder, why); `cut`: there is more than is looked through.
    """

    files: tuple[FoundFile, ...] = ()
    put_away: int = 0
    unreachable: tuple[tuple[str, str], ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class FolderMove:
    """A move of the data folder that waits for a yes (`done` None), or is under way."""

    move: Relocation
    done: int | None = None  # bytes
    left_s: float | None = None
