"""Which action of the page goes to which service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.desk.actions import SIZE_DIGITS, Action, action, choice, flag, number, text
from app.desk.books import Books
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
from app.desk.questions import Questions
from app.desk.reader import Reader
from app.desk.search import ShelfSearch
from app.desk.store import Store
from app.desk.trash import Trash
from app.models.catalogue import Models
from app.store.preferences import Preferences

NAME_CHARS, VALUE_CHARS, PATH_CHARS = 200, 2000, 4000


def of_books(
    books: Books,
    reader: Reader,
    imports: ImportQueue,
    *,
    search: ShelfSearch,
    trash: Trash,
    chapters: Chapters,
    questions: Questions,
) -> dict[str, Action]:
    """What is done with books, the open one and those on the shelf."""
    name = text("name", NAME_CHARS, default="book")
    return {
        "upload": action(imports.upload, path=text("path"), name=name, title=text("title")),
        "refused": action(imports.refuse, name=text("name", NAME_CHARS), limit_mb=number("limit")),
        "sample": action(imports.sample, name=text("name")),
        "cancel-opening": action(imports.cancel),
        "read-pictures": action(imports.read_pictures),
        "install-ocr": action(imports.install_ocr),
        "book": action(books.select, book_id=text("id")),
        "search": action(search.look_for, words=text("text")),
        "said": action(books.open_conversation, conversation_id=text("id"), book_id=text("book")),
        "place": action(
            books.open_place, book_id=text("book"), offset=number("offset"), length=number("length")
        ),
        "forget": action(trash.throw_book, book_id=text("id")),
        "tick": action(chapters.tick, number=number("id")),
        "untick": action(chapters.untick),
        "tell": action(questions.summarize_chapter, number=number("value")),
        "tell-ticked": action(questions.summarize_ticked),
        "tell-up-to": action(questions.summarize_up_to, number=number("value")),
        "cite": action(reader.show, offset=number("offset"), length=number("length")),
        "goto": action(reader.show, offset=number("value")),
        "turn": action(reader.turn, step=choice("value", back=-1, on=1)),
        "stand": action(reader.stand, offset=number("value")),
        "find": action(reader.look_for, words=text("text"), exact=flag("exact")),
        "unfold": action(reader.unfold, chapter=number("value")),
        "mark": action(reader.mark, paragraph=number("offset"), words=text("text")),
        "note": action(reader.note, offset=number("offset"), note=text("text")),
        "unmark": action(reader.unmark, offset=number("offset")),
    }


def of_answers(
    questions: Questions,
    comparison: Comparison,
    stop: Callable[[], None],
    *,
    books: Books,
    reader: Reader,
    choices: Choices,
    preferences: Preferences,
) -> dict[str, Action]:
    """What is asked, and with which choices."""
    return {
        "instruct": action(partial(preferences.choose, "instructions"), text=text("value")),
        "instruct-book": action(reader.instruct, text=text("value")),
        "compare": action(comparison.begin),
        "drop-oldest": action(questions.drop_oldest),
        "retell-oldest": action(questions.retell_oldest),
        "start-fresh": action(questions.start_fresh),
        "not-now": action(questions.cancel),
        "summarize": action(questions.summarize),
        "suggest": action(questions.ask, question=text("text", NAME_CHARS)),
        "regenerate": action(questions.regenerate),
        "stop": action(stop),
        "from": action(books.choose_chapters, first=number("value")),
        "to": action(books.choose_chapters, last=number("value")),
        "limit": action(books.limit, chapter=number("value")),
        "fit": action(partial(preferences.choose, "fit"), text=text("value")),
        "length": action(choices.summary, value=text("value")),
    }


def of_conversations(
    talks: Conversations, books: Books, trash: Trash, conversation_import: ConversationImport
) -> dict[str, Action]:
    """What is done with conversations."""
    return {
        "talk": action(books.open_conversation, conversation_id=text("id")),
        "new": action(books.begin_conversation),
        "forget-talk": action(trash.throw_conversation, conversation_id=text("id")),
        "clear": action(trash.throw_open_conversation),
        "undo": action(trash.restore, names=text("id")),
        "rename-talk": action(talks.rename, conversation_id=text("id"), title=text("text")),
        "pin-talk": action(talks.pin, conversation_id=text("id")),
        "fork": action(talks.fork, number=number("value")),
        "ask-otherwise": action(talks.ask_otherwise, number=number("value")),
        "version": action(talks.use_version, number=number("id"), version=number("value")),
        "bring-in": action(conversation_import.bring_in, path=text("path")),
    }


def of_models(models: Models, choice_of: ModelChoice) -> dict[str, Action]:
    """What is done with models."""
    # no "path": Gradio takes what has one for an upload, and refuses it
    file, name = text("file"), text("name", NAME_CHARS)
    return {
        "fetch-model": action(models.fetch, name=name),
        "pause-model": action(models.pause),
        "later-model": action(models.decline),
        "look-into": action(choice_of.look_into, folder=file),
        "look-elsewhere": action(choice_of.look_elsewhere),
        "search-below": action(choice_of.search_below, folder=file),
        "forget-folder": action(choice_of.forget_folder, folder=file),
        "dropped-model": action(choice_of.dropped, name=name, size=number("text", SIZE_DIGITS)),
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
        "use-model": action(choice_of.use, name=text("name")),
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
        "restart": action(engine.restart),
        "cancel-loading": action(engine.cancel_loading),
        "apply": action(engine.apply),
        "set": action(choices.set, key=text("id"), value=text("value", VALUE_CHARS)),
        "tick-folder": action(choices.tick_folder, folder=text("value", VALUE_CHARS)),
        "reset": action(preferences.reset, key=text("id")),
        "look-kept": action(disk.look, while_moving=True),
        "empty-kept": action(disk.empty),
        "move-data": action(folder.propose, folder=text("text", PATH_CHARS)),
        "begin-move": action(folder.begin),
        "decline-move": action(folder.decline, while_moving=True),
    }
