"""All that lies on the desk, as one value. Only app.desk.store.Store replaces it."""

from __future__ import annotations

from dataclasses import dataclass

from app.desk.answer_job import Snapshot
from app.desk.values import (
    BookSearch,
    ComparisonRun,
    ContextOverflow,
    FolderMove,
    ImportedFile,
    Notice,
    ReadingsUsage,
    ShownPassage,
)
from app.models.local_files import FileInspection, FolderChoice
from app.store.notebook import Notebook


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
    # what a summary is to be about: the first and the last chapter, 0: that of the book; or these alone
    chapters: tuple[int, int] = (0, 0)
    selected_chapters: tuple[int, ...] = ()
    # the open conversation, and the answer that is made or was made last in it
    conversation_id: str = ""
    answer: Snapshot | None = None
    answers: int = 0  # that were begun: tells one from the next
    overflow: ContextOverflow | None = None
    comparing: ComparisonRun | None = None
    # files, folders and models
    opening: ImportedFile | None = None
    shelf_search: str = ""  # what is looked for on the whole shelf
    kept: ReadingsUsage | None = None
    moving: FolderMove | None = None
    choosing: FolderChoice | None = None  # what a model file is chosen from
    looking: FileInspection | None = None  # the model file that is looked at
    notice: Notice | None = None
    # whether the end of the last tab may end the app; whether that tab went before anybody was asked
    closable: bool = False
    was_left: bool = False

    @property
    def busy(self) -> bool:
        """Whether an answer is being made or compared."""
        return self.comparing is not None or self.answer is not None and self.answer.running

    @property
    def is_moving(self) -> bool:
        """Whether the data folder is on its way to another place."""
        return self.moving is not None and self.moving.done is not None

    @property
    def undo_offer(self) -> Notice | None:
        """The message that is shown, where it can undo a deletion: it stays, whatever is opened meanwhile."""
        return self.notice if self.notice and self.notice.undo else None

    @property
    def shown_overflow(self) -> ContextOverflow | None:
        """The question that waits for a choice in the open conversation."""
        waiting, here = self.overflow, (self.book_id, self.conversation_id)
        return waiting if waiting and (waiting.ask.book_id, waiting.ask.conversation_id) == here else None
