"""Which action of the page goes to which service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.desk.actions import SIZE_DIGITS, Action, action, choice_field, flag, number_field, text_field
from app.desk.asides import Asides
from app.desk.book_folders import BookFolders
from app.desk.books import OpenBooks
from app.desk.chapters import Chapters
from app.desk.choices import Choices
from app.desk.comparison import Comparison
from app.desk.conversations import Conversations
from app.desk.data_folder import DataFolder
from app.desk.disk_usage import DiskUsage
from app.desk.engine_settings import EngineSettings
from app.desk.exports import ConversationImport
from app.desk.import_queue import ImportQueue
from app.desk.models import ModelChoice
from app.desk.names import BookNames
from app.desk.questions import Questions
from app.desk.reader import Reader
from app.desk.search import ShelfSearch
from app.desk.series import BookSeries
from app.desk.several_books import SeveralBooks
from app.desk.shelf import Shelf
from app.desk.store import Store
from app.desk.trash import Trash
from app.models.catalogue import Models
from app.store.preferences import Preferences

NAME_CHARS, VALUE_CHARS, PATH_CHARS = 200, 2000, 4000


def of_books(
    books: OpenBooks,
    reader: Reader,
    imports: ImportQueue,
    *,
    shelf: Shelf,
    search: ShelfSearch,
    trash: Trash,
    chapters: Chapters,
    questions: Questions,
    folders: BookFolders,
    names: BookNames,
    series: BookSeries,
    asides: Asides,
) -> dict[str, Action]:
    """What is done with books, the open one and those on the shelf."""
    name = text_field("name", NAME_CHARS, default="book")
    return {
        "upload": action(
            imports.upload,
            path=text_field("path"),
            name=name,
            title=text_field("title"),
            several=text_field("several"),
        ),
        "refused": action(
            imports.refuse, name=text_field("name", NAME_CHARS), limit_mb=number_field("limit")
        ),
        "sample": action(imports.sample, goes_on=True, name=text_field("name")),
        "cancel-opening": action(imports.cancel),
        "open-found": action(folders.open, goes_on=True, path=text_field("id", PATH_CHARS)),
        "put-away": action(folders.put_away, path=text_field("file", PATH_CHARS)),
        "offer-again": action(folders.offer_again),
        "add-folder": action(folders.add, folder=text_field("text", PATH_CHARS)),
        "watch-folder": action(folders.tick, folder=text_field("value", PATH_CHARS)),
        "read-pictures": action(imports.read_pictures),
        "install-ocr": action(imports.install_ocr),
        "read-otherwise": action(shelf.read_otherwise),
        "name-title": action(shelf.name, title=text_field("text", NAME_CHARS)),
        "name-author": action(shelf.name, author=text_field("text", NAME_CHARS)),
        "book": action(books.select, goes_on=True, book_id=text_field("id")),
        "search": action(search.look_for, words=text_field("text")),
        "said": action(
            books.open_conversation,
            goes_on=True,
            conversation_id=text_field("id"),
            book_id=text_field("book"),
        ),
        "place": action(
            books.open_place,
            goes_on=True,
            book_id=text_field("book"),
            offset=number_field("offset"),
            length=number_field("length"),
        ),
        "forget": action(trash.throw_book, book_id=text_field("id")),
        "tick": action(chapters.tick, number=number_field("id")),
        "untick": action(chapters.untick),
        "tell": action(questions.summarize_chapter, number=number_field("value")),
        "summarize-selected": action(questions.summarize_selected),
        "recap": action(questions.recap, what=text_field("id")),
        "tell-up-to": action(questions.summarize_up_to, number=number_field("value")),
        "cite": action(reader.look_up, offset=number_field("offset"), length=number_field("length")),
        "back": action(reader.back),
        "stay": action(reader.stay),
        "goto": action(reader.show, offset=number_field("value")),
        "turn": action(reader.turn, step=choice_field("value", back=-1, on=1)),
        "stand": action(reader.stand, offset=number_field("value")),
        "find": action(reader.look_for, words=text_field("text"), exact=flag("exact")),
        "unfold": action(reader.unfold, chapter=number_field("value")),
        "names": action(names.fold),
        "names-up-to": action(names.up_to, end=text_field("value")),
        "names-kind": action(names.show, kind=text_field("id")),
        "names-every": action(names.every),
        "name": action(names.choose, name=text_field("id", NAME_CHARS)),
        "unfold-name": action(names.unfold, chapter=number_field("value")),
        "follow": action(series.follow, other_id=text_field("value", NAME_CHARS)),
        "volume-back": action(partial(series.move, step=-1), book_id=text_field("id", NAME_CHARS)),
        "volume-on": action(partial(series.move, step=1), book_id=text_field("id", NAME_CHARS)),
        "leave-series": action(series.leave),
        "rejoin-series": action(series.rejoin),
        "name-series": action(series.rename, name=text_field("text", NAME_CHARS)),
        "portray": action(asides.portray, name=text_field("id", NAME_CHARS)),
        "explain": action(
            asides.explain, kind=text_field("id"), paragraph=number_field("offset"), words=text_field("text")
        ),
        "dismiss-aside": action(asides.dismiss),
        "mark": action(reader.mark, paragraph=number_field("offset"), words=text_field("text")),
        "note": action(reader.note, offset=number_field("offset"), note=text_field("text")),
        "unmark": action(reader.unmark, offset=number_field("offset")),
    }


def of_answers(
    questions: Questions,
    comparison: Comparison,
    stop: Callable[[], None],
    *,
    books: OpenBooks,
    reader: Reader,
    choices: Choices,
    preferences: Preferences,
    several: SeveralBooks,
) -> dict[str, Action]:
    """What is asked, and with which choices."""

    def drop_queued() -> None:
        if dropped := questions.drop():
            several.drop(dropped)

    return {
        "instruct": action(partial(preferences.choose, "instructions"), text=text_field("value")),
        "instruct-book": action(reader.instruct, text=text_field("value")),
        "compare": action(comparison.begin),
        "drop-oldest": action(questions.drop_oldest),
        "retell-oldest": action(questions.retell_oldest),
        "start-fresh": action(questions.start_fresh),
        "not-now": action(questions.cancel),
        "drop-queued": action(drop_queued),
        "summarize": action(questions.summarize),
        "suggest": action(questions.ask, question=text_field("text", NAME_CHARS)),
        "ask-too": action(several.tick, book_id=text_field("id")),
        "drop-books": action(several.drop),
        "put-away-books": action(several.put_away),
        "regenerate": action(questions.regenerate),
        "ask-again": action(questions.ask_again, number=number_field("value")),
        "ask-as": action(questions.ask_as, mode=text_field("value")),
        "stop": action(stop),
        "from": action(books.choose_chapters, first=number_field("value")),
        "to": action(books.choose_chapters, last=number_field("value")),
        "limit": action(books.limit, chapter=number_field("value")),
        "reading-mode": action(choices.reading, mode=text_field("value")),
        "length": action(choices.summary, value=text_field("value")),
    }


def of_conversations(
    talks: Conversations, books: OpenBooks, trash: Trash, conversation_import: ConversationImport
) -> dict[str, Action]:
    """What is done with conversations."""
    return {
        "talk": action(books.open_conversation, goes_on=True, conversation_id=text_field("id")),
        "new": action(books.begin_conversation, goes_on=True),
        "forget-talk": action(trash.throw_conversation, conversation_id=text_field("id")),
        "clear": action(trash.throw_open_conversation),
        "undo": action(trash.restore, names=text_field("id")),
        "rename-talk": action(talks.rename, conversation_id=text_field("id"), title=text_field("text")),
        "pin-talk": action(talks.pin, conversation_id=text_field("id")),
        "fork": action(talks.fork, number=number_field("value")),
        "ask-otherwise": action(talks.ask_otherwise, number=number_field("value")),
        "version": action(talks.use_version, number=number_field("id"), version=number_field("value")),
        "bring-in": action(
            conversation_import.bring_in, path=text_field("path"), name=text_field("name", NAME_CHARS)
        ),
    }


def of_models(models: Models, choice_of: ModelChoice) -> dict[str, Action]:
    """What is done with models."""
    # no "path": Gradio takes what has one for an upload, and refuses it
    file, name = text_field("file"), text_field("name", NAME_CHARS)
    return {
        "fetch-model": action(models.fetch, name=name),
        "pause-model": action(models.pause),
        "later-model": action(models.decline),
        "look-into": action(choice_of.look_into, folder=file),
        "look-elsewhere": action(choice_of.look_elsewhere),
        "search-below": action(choice_of.search_below, folder=file),
        "forget-folder": action(choice_of.forget_folder, folder=file),
        "dropped-model": action(choice_of.dropped, name=name, size=number_field("text", SIZE_DIGITS)),
        "place-for": action(choice_of.place_for, name=name),
        "move-here": action(choice_of.move_to, folder=file),
        "open-dialog": action(choice_of.open_dialog),
        "stop-copying": action(choice_of.copies.stop),
        "stop-looking": action(choice_of.stop_looking),
        "stop-searching": action(choice_of.stop_searching),
        "done-choosing": action(choice_of.done_choosing),
        "use-file": action(choice_of.file, path=file),
        "forget-file": action(choice_of.forget, path=file),
        "delete-model": action(choice_of.delete, name=name),
        "use-model": action(choice_of.use, name=text_field("name")),
    }


def of_the_app(
    store: Store,
    engine: EngineSettings,
    choices: Choices,
    preferences: Preferences,
    *,
    disk: DiskUsage,
    folder: DataFolder,
) -> dict[str, Action]:
    """What is done with settings, the engine and the data."""
    return {
        "dismiss": action(partial(store.update, notice=None), while_moving=True),
        "dismiss-arrivals": action(partial(store.update, arrivals=()), while_moving=True),
        "dismiss-deleted": action(partial(store.update, deleted=()), while_moving=True),
        "dismiss-failures": action(partial(store.update, failures=()), while_moving=True),
        "restart": action(engine.restart),
        "cancel-loading": action(engine.cancel_loading),
        "apply": action(engine.apply),
        "set": action(choices.set, key=text_field("id"), value=text_field("value", VALUE_CHARS)),
        "tick-folder": action(choices.tick_folder, folder=text_field("value", VALUE_CHARS)),
        "reset": action(choices.reset, key=text_field("id")),
        "look-kept": action(disk.look, while_moving=True),
        "empty-kept": action(disk.empty),
        "check-disk": action(disk.check),
        "move-data": action(folder.propose, folder=text_field("text", PATH_CHARS)),
        "begin-move": action(folder.begin),
        "decline-move": action(folder.decline, while_moving=True),
    }
