"""All that lies on the desk, as one value. Only app.desk.store.Store replaces it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.desk.answer_snapshot import Snapshot
from app.desk.values import (
    AnswerPlace,
    Arrival,
    Aside,
    BookAnswer,
    BookSearch,
    ComparisonRun,
    ContextOverflow,
    Deletion,
    DiskShortage,
    FolderBooks,
    FolderMove,
    ImportedFile,
    NamesPanel,
    Notice,
    ReadingsUsage,
    RefusedSetting,
    ShownPassage,
    TextSearch,
)
from app.models.local_files import FileInspection, FolderChoice
from app.store.notebook import Notebook
from core.request import Request


@dataclass(frozen=True, slots=True)
class AppState:
    """What a person has before them at one moment. Books, turns and settings are kept elsewhere (app.store);
    here stands which of them are open.
    """

    # the open book, and how much of it may be read: see core.request.Request
    book_id: str = ""
    spoiler_limit: int | None = None
    passage: ShownPassage = ShownPassage()
    notebook: Notebook = Notebook()
    book_search: BookSearch = BookSearch()
    names: NamesPanel = NamesPanel()
    aside: Aside | None = None
    # what a summary is to be about: the first and the last chapter, 0: that of the book; or these alone
    chapters: tuple[int, int] = (0, 0)
    selected_chapters: tuple[int, ...] = ()
    # the open conversation; the answer that is made or was made last, and where; the question that waits for
    # its end
    conversation_id: str = ""
    answer: Snapshot | None = None
    answer_place: AnswerPlace | None = None
    answers: int = 0  # that were begun: tells one from the next
    queued: Request | None = None
    overflow: ContextOverflow | None = None
    comparing: ComparisonRun | None = None
    # the books that are asked too, as (the book beside which, its id), and what they answered
    asked_too: tuple[tuple[str, str], ...] = ()
    book_answers: tuple[BookAnswer, ...] = ()
    # files, folders and models
    opening: ImportedFile | None = None
    folder_books: FolderBooks = FolderBooks()
    shelf_search: str = ""  # what is looked for on the whole shelf
    text_search: TextSearch = TextSearch()  # and in the texts of its books
    kept: ReadingsUsage | None = None
    shortage: DiskShortage | None = None
    moving: FolderMove | None = None
    choosing: FolderChoice | None = None  # what a model file is chosen from
    looking: FileInspection | None = None  # the model file that is looked at
    notice: Notice | None = None
    deleted: tuple[Deletion, ...] = ()  # what can be brought back, the last one at the end
    arrivals: tuple[Arrival, ...] = ()  # files that were read: said until closed, or `gone_on`
    failures: tuple[str, ...] = ()  # why files were not opened: likewise
    refused_setting: RefusedSetting | None = None
    # whether the end of the last tab may end the app; whether that tab went before anybody was asked
    closable: bool = False
    was_left: bool = False

    @property
    def working(self) -> bool:
        """Whether an answer is being made or compared."""
        return self.comparing is not None or self.answer is not None and self.answer.running

    @property
    def busy(self) -> bool:
        """Whether an answer is being made or compared, or a question waits for that."""
        return self.working or self.queued is not None

    @property
    def shown_answer(self) -> Snapshot | None:
        """The answer, where it belongs to the open conversation."""
        return None if self.answer_elsewhere else self.answer

    @property
    def shown_book_answers(self) -> tuple[BookAnswer, ...]:
        """What the other books answered to a question of the open conversation."""
        return tuple(one for one in self.book_answers if one.asked_in == self.conversation_id)

    @property
    def answer_elsewhere(self) -> AnswerPlace | None:
        """Where the answer is made or was made, if that is not the open conversation."""
        place = self.answer_place if self.answer else None
        return place if place and place.conversation_id != self.conversation_id else None

    @property
    def is_answered_here(self) -> bool:
        """Whether the open conversation gets an answer now, or one is compared."""
        return self.is_answered(self.conversation_id)

    def is_answered(self, name: str) -> bool:
        """Whether the book or the conversation of this id gets an answer now; any, while one is compared."""
        place = self.answer_place
        return self.working and (
            self.comparing is not None or place is None or name in (place.book_id, place.conversation_id)
        )

    def answer_beside(self, conversation_id: str) -> Snapshot | None:
        """What is left of the answer when this conversation is opened: one that is made, and one that was
        made elsewhere and has not been seen.
        """
        place = self.answer_place
        seen = place is None or place.conversation_id in (self.conversation_id, conversation_id)
        return None if self.answer and not self.answer.running and seen else self.answer

    @property
    def is_moving(self) -> bool:
        """Whether the data folder is on its way to another place."""
        return self.moving is not None and self.moving.done is not None

    def gone_on(self) -> AppState:
        """What was said of files is seen once the person goes on to something else, unless more are read."""
        return self if self.opening else replace(self, arrivals=(), failures=())

    def arrivals_but(self, book_id: str) -> tuple[Arrival, ...]:
        """What is said of files that were read, this book's left out."""
        return tuple(one for one in self.arrivals if one.book_id != book_id)

    @property
    def shown_overflow(self) -> ContextOverflow | None:
        """The question that waits for a choice in the open conversation."""
        waiting, here = self.overflow, (self.book_id, self.conversation_id)
        return waiting if waiting and (waiting.ask.book_id, waiting.ask.conversation_id) == here else None
