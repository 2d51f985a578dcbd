"""What a person does at the desk, with a scripted engine."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from app.history import History
from app.page import Page
from app.views import offer_html
from core import events
from core.ask import Ask
from core.documents.document import READER_VERSION, Section
from core.errors import DocumentError, PasswordNeeded, ScannedPages, UserError
from tests.app.fake_runtime import ANSWER, SUMMARY, FakeRuntime, wait_until


def done(desk) -> None:
    wait_until(lambda: not desk.busy)


def put(tmp_path, name: str = "book.txt"):
    path = tmp_path / "uploads" / "abc" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("anything")
    return path


# --- the end


def test_what_was_read_is_stored_before_the_engine_ends(make_desk, engine):
    """A book of an hour's prefill must not be lost because the person quits while its last blocks are being
    written.
    """
    desk = make_desk(engine)
    engine.save_s = 0.2
    desk.close()
    assert engine.saved and engine.closed


def test_whoever_has_no_time_does_not_wait_for_it(make_desk, engine):
    desk = make_desk(engine)
    engine.save_s = 20.0
    threading.Timer(0.2, desk.hurry).start()
    started = time.monotonic()
    desk.close()
    assert time.monotonic() - started < 5 and engine.closed and not engine.saved


# --- books


def test_a_dropped_file_becomes_a_book_and_the_upload_is_deleted(make_desk, engine, book, tmp_path):
    """Uploads that stay behind would fill the disk with private books."""
    desk, path = make_desk(engine), put(tmp_path)
    desk.intake.upload(str(path), "book.txt")
    wait_until(lambda: desk.book_id)
    wait_until(lambda: desk.intake.opening is None)
    assert desk.book == book and not path.exists()
    wait_until(lambda: desk.card())
    assert desk.card()["tokens"] == round(book.words * 1.3)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "{tmp}/uploads/../secret.txt", "{tmp}/uploads/missing.txt", "{tmp}/uploads", ""]
)
def test_a_path_outside_the_uploads_is_refused(make_desk, engine, tmp_path, path):
    """The path comes from the browser: it must not open, or delete, any other file."""
    (tmp_path / "secret.txt").write_text("secret")
    read = []
    desk = make_desk(engine, read=lambda *args, **kwargs: read.append(args))
    with pytest.raises(UserError, match="did not arrive"):
        desk.intake.upload(path.format(tmp=tmp_path), "x.txt")
    assert desk.intake.opening is None and read == []
    assert (tmp_path / "secret.txt").exists()


def test_a_file_that_is_no_book_says_why_and_the_desk_stays_usable(make_desk, engine, tmp_path):
    def refuse(*_args, **_kwargs):
        raise DocumentError("This is a picture (PNG). Choose a PDF, EPUB or TXT.")

    desk, path = make_desk(engine, read=refuse), put(tmp_path)
    desk.intake.upload(str(path), "book.epub")
    wait_until(lambda: desk.notice)
    wait_until(lambda: desk.intake.opening is None)
    assert desk.notice.text.startswith("This is a picture") and not path.exists()


def test_a_readers_bug_does_not_take_the_desk_down(make_desk, engine, tmp_path):
    desk, path = make_desk(engine, read=lambda *_args, **_kwargs: 1 / 0), put(tmp_path)
    desk.intake.upload(str(path), "odd.pdf")
    wait_until(lambda: desk.notice)
    assert "odd.pdf" in desk.notice.text and "ZeroDivision" not in desk.notice.text


def test_a_protected_file_waits_for_its_password(make_desk, engine, book, tmp_path):
    def read(_path, *, password=None, **_kwargs):
        if password != "open":
            raise PasswordNeeded("The password does not open this file.")
        return book

    desk, path = make_desk(engine, read=read), put(tmp_path)
    desk.intake.upload(str(path), "locked.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.locked)
    assert desk.notice is None and path.exists(), (
        "asking for a password is not an error, and the file is still needed"
    )
    desk.intake.give_password("wrong")
    wait_until(lambda: desk.notice)
    wait_until(lambda: desk.intake.opening and desk.intake.opening.locked)
    desk.intake.give_password("open")
    wait_until(lambda: desk.book_id and desk.intake.opening is None)
    assert not path.exists()


def test_reading_a_file_can_be_cancelled(make_desk, engine, tmp_path):
    def read(_path, *, should_stop, progress, **_kwargs):
        progress("Page 1", 0.1)
        wait_until(should_stop)
        raise DocumentError("Stopped.")

    desk, path = make_desk(engine, read=read), put(tmp_path)
    desk.intake.upload(str(path), "long.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.fraction == 0.1)
    desk.intake.cancel()
    wait_until(lambda: desk.intake.opening is None)
    assert not path.exists() and desk.book is None


def test_a_book_is_shown_with_its_own_cover(make_desk, engine, book, tmp_path):
    """On the shelf and on its card; a file without one gets a drawn one."""
    desk, path = make_desk(engine, cover=b"a picture"), put(tmp_path)
    before = Page(desk).render()
    assert "/covers/" not in "".join(before["library"] + before["stage"])
    desk.intake.upload(str(path), "book.epub")
    wait_until(lambda: desk.book_id and desk.intake.opening is None)
    after = Page(desk).render()
    for region in ("library", "stage"):
        assert f'src="/covers/{book.sha256}"' in "".join(after[region])


def test_a_cover_that_takes_long_is_given_up_with_its_book(make_desk, engine, tmp_path):
    given_up = threading.Event()

    def cover(_path, *, should_stop, **_kwargs):
        wait_until(should_stop)
        given_up.set()
        return b""

    def read(_path, **_kwargs):
        raise DocumentError("This is no book.")

    desk, path = make_desk(engine, read=read, cover=cover), put(tmp_path)
    desk.intake.upload(str(path), "no-book.epub")
    wait_until(lambda: desk.notice)
    wait_until(given_up.is_set)


# --- scanned pages


def scan_reader(book, *, pictures: int = 0):
    """Reads a scan only by OCR; with `pictures`, a book of which so many pages are pictures."""

    def read(_path, *, ocr, progress, should_stop, **_kwargs):
        if not ocr and pictures:
            return replace(book, pictures=pictures, page_starts=(0,) * 10)
        if not ocr:
            raise ScannedPages("8 of 8 pages of old.pdf are pictures.")
        progress("Reading scanned pages", 0.5)
        return replace(book, text=book.text.replace("lamp", "lens"))

    return read


def test_a_scan_is_read_by_ocr_when_the_person_says_so(make_desk, engine, book, tmp_path):
    """The upload must wait for the answer, and be gone after it."""
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.intake.upload(str(path), "old.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.offer)
    assert (
        "8 of 8 pages" in desk.intake.opening.offer
        and path.exists()
        and desk.notice is None
        and desk.book is None
    )
    assert "Read them with OCR" in offer_html(desk.intake.opening)
    desk.intake.read_pictures()
    wait_until(lambda: desk.book_id and desk.intake.opening is None)
    assert "lens" in desk.book.text and not path.exists()


def test_ocr_of_some_pages_replaces_the_book_that_was_opened_without_them(make_desk, engine, book, tmp_path):
    """The engine and the card must not go on with the text that lacked the pictures."""
    desk, path = make_desk(engine, read=scan_reader(book, pictures=4)), put(tmp_path, "old.pdf")
    desk.intake.upload(str(path), "old.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.offer)
    assert "4 of 10 pages" in desk.intake.opening.offer and "lamp" in desk.book.text
    wait_until(desk.card)
    desk.intake.read_pictures()
    wait_until(lambda: desk.intake.opening is None)
    assert "lens" in desk.book.text and engine.forgotten_books == [book.sha256] and not path.exists()


def test_a_book_read_anew_by_better_rules_replaces_the_one_on_the_shelf(make_desk, engine, book, tmp_path):
    """The file is the same, its chapters are not: the engine must not answer from what the old rules made."""
    older = replace(book, sections=(Section("Section 1", 0, len(book.text)),), reader_version=0)
    read = iter(
        [older, replace(book, reader_version=READER_VERSION), replace(book, reader_version=READER_VERSION)]
    )
    desk = make_desk(engine, read=lambda *_args, **_kwargs: next(read))
    for forgotten in ([], [book.sha256], [book.sha256]):
        desk.intake.upload(str(put(tmp_path, "lamp.txt")), "lamp.txt")
        wait_until(lambda: desk.intake.opening is None)
        assert engine.forgotten_books == forgotten
    assert [section.title for section in desk.book.chapters] == ["One", "Two"]


def test_an_offer_declined_or_overtaken_leaves_no_file_behind(make_desk, engine, book, tmp_path):
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.intake.upload(str(path), "old.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.offer)
    other = put(tmp_path, "other.pdf")
    desk.intake.upload(str(other), "other.pdf")
    wait_until(
        lambda: desk.intake.opening and desk.intake.opening.offer and desk.intake.opening.name == "other.pdf"
    )
    assert not path.exists() and other.exists()
    desk.intake.cancel()
    assert desk.intake.opening is None and not other.exists()


def several(tmp_path, book, *, locked: str = ""):
    """Three files, and a reader that makes a book of each; the one named "bad" is none."""
    go = threading.Event()

    def read(path, *, password=None, **_kwargs):
        go.wait(10)
        if path.name == "bad.txt":
            raise DocumentError("This is no book.")
        if path.name == locked and password != "open":
            raise PasswordNeeded("The password does not open this file.")
        return replace(book, title=path.stem, sha256=path.stem[0] * 64)

    return go, read


def test_files_dropped_together_are_read_one_after_another(make_desk, engine, book, tmp_path):
    """All but the first were left lying without a word."""
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "bad", "c")]
    for path in paths:
        desk.intake.upload(str(path), path.name)
    assert desk.intake.opening.behind == 2
    assert "2 more files wait" in Page(desk).render()["stage"][0]
    go.set()
    wait_until(lambda: len(desk.library.entries()) == 2 and desk.intake.opening is None)
    assert desk.book.title == "c" and not any(path.exists() for path in paths)
    assert desk.notice.text == "bad.txt: This is no book."


def test_a_locked_file_lets_those_behind_it_wait_for_its_end(make_desk, engine, book, tmp_path):
    go, read = several(tmp_path, book, locked="a.txt")
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "c")]
    for path in paths:
        desk.intake.upload(str(path), path.name)
    go.set()
    wait_until(lambda: desk.intake.opening and desk.intake.opening.locked)
    desk.intake.give_password("open")
    wait_until(lambda: len(desk.library.entries()) == 2 and desk.intake.opening is None)
    assert not any(path.exists() for path in paths)


def test_cancel_gives_up_one_file_and_stop_all_of_them(make_desk, engine, book, tmp_path):
    go, read = several(tmp_path, book, locked="a.txt")
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "c")]
    for path in paths:
        desk.intake.upload(str(path), path.name)
    go.set()
    wait_until(lambda: desk.intake.opening and desk.intake.opening.locked)
    desk.intake.cancel()
    wait_until(lambda: [entry.title for entry in desk.library.entries()] == ["c"])
    wait_until(lambda: desk.intake.opening is None)
    go.clear()
    again = [put(tmp_path, f"{name}.txt") for name in ("d", "e", "f")]
    for path in again:
        desk.intake.upload(str(path), path.name)
    desk.intake.stop()
    go.set()
    wait_until(lambda: desk.intake.opening is None)
    assert not any(path.exists() for path in again) and len(desk.library.entries()) == 1


def test_a_book_read_while_an_answer_is_written_waits_on_the_shelf(make_desk, engine, book, tmp_path):
    """OCR of a whole book outlasts many answers; its end must not take the desk from under one."""
    go = threading.Event()

    def read(*_args, **_kwargs):
        go.wait(10)
        return replace(book, sha256="b" * 64, title="The Scan")

    desk, path = make_desk(engine, read=read), put(tmp_path, "old.pdf")
    desk.library.add(book)
    desk.select_book(book.sha256)
    desk.intake.upload(str(path), "old.pdf")
    engine.pace = 0.05
    desk.summarize(Ask())
    go.set()
    wait_until(lambda: desk.intake.opening is None)
    assert (
        desk.busy
        and desk.book_id == book.sha256
        and desk.notice.kind == "info"
        and "The Scan" in desk.notice.text
    )
    assert {entry.title for entry in desk.library.entries()} == {"The Lamp", "The Scan"}
    desk.stop()


def test_a_file_that_waited_too_long_asks_to_be_dropped_again(make_desk, engine, book, tmp_path):
    """Uploads are swept after a while: the choice must not end in a message about a path."""
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.intake.upload(str(path), "old.pdf")
    wait_until(lambda: desk.intake.opening and desk.intake.opening.offer)
    path.unlink()
    desk.intake.read_pictures()
    assert desk.intake.opening is None and "drop it again" in desk.notice.text


# --- answers


def test_summary_then_follow_up_with_the_first_turn_as_history(desk, engine):
    desk.summarize(Ask(params={"temperature": 0.0}))
    done(desk)
    assert desk.turns[-1].text == SUMMARY and desk.turns[-1].state == "finished"
    assert desk.ask("What does he hide?", Ask(chapters=(1, 2)))
    done(desk)
    assert [turn.text for turn in desk.turns[2:]] == ["What does he hide?", ANSWER]
    first, second = engine.asked
    assert first.question is None and first.params == {"temperature": 0.0} and first.history == ()
    assert second.chapters == (1, 2) and second.conversation_id == first.conversation_id
    (said,) = second.history
    assert (said.question, said.answer) == ("Summarize this book", SUMMARY)
    assert said.ids, "turns go back as token ids, never as text to encode again"
    assert engine.prefilled_tokens[1] < engine.prefilled_tokens[0]


def test_stop_keeps_what_was_written(opened):
    desk, engine = opened(pace=0.02, prefill_steps=1)
    desk.summarize(Ask())
    wait_until(lambda: desk.job.snapshot.pieces)
    desk.stop()
    done(desk)
    assert desk.turns[-1].state == "stopped" and 0 < len(desk.turns[-1].text) < len(SUMMARY)
    assert SUMMARY.startswith(desk.turns[-1].text)


def test_regenerate_replaces_the_last_answer_and_repeats_its_choices(desk, engine):
    desk.summarize(Ask(chapters=(2, 2), fit="sections"))
    done(desk)
    desk.regenerate(Ask(chapters=(1, 1), params={"seed": 7}))
    done(desk)
    again = engine.asked[-1]
    assert again.question is None and again.chapters == (2, 2) and again.fit == "sections"
    assert again.params == {"seed": 7} and again.history == ()
    assert [turn.role for turn in desk.turns] == ["user", "assistant"]
    assert desk.turns[0].text == "Summarize chapter 2"


def test_a_refused_regenerate_keeps_the_exchange(desk, engine):
    """The engine is down: the question and its answer were cut before that was noticed."""
    desk.summarize(Ask())
    done(desk)
    engine.state = "failed"
    desk.regenerate(Ask())
    assert [turn.text for turn in desk.turns] == ["Summarize this book", SUMMARY]
    assert "not running" in desk.notice.text


@pytest.mark.parametrize("how", ["fails", "is stopped", "is killed"])
def test_the_old_answer_stands_until_the_new_one_is_complete(opened, how, tmp_path):
    """Nobody who asks for another answer wants to lose the one there is."""
    desk, engine = opened(pace=0.001)
    desk.ask("Who?", Ask())
    done(desk)
    engine.fail, engine.pace = ("Out of memory." if how == "fails" else ""), 0.01
    desk.regenerate(Ask())
    if how != "fails":
        wait_until(lambda: desk.job.snapshot.pieces)
    if how == "is killed":  # another app on the same folder sees what a killed one left behind
        left = History(tmp_path / "chats.db")
        left.settle()
        assert [(turn.text, turn.state) for turn in left.turns(desk.conversation_id)][1] == (
            ANSWER,
            "finished",
        )
        left.close()
    if how != "fails":
        desk.stop()
    done(desk)
    assert [turn.text for turn in desk.turns] == ["Who?", ANSWER] and desk.turns[1].state == "finished"
    assert "earlier" in desk.notice.text and ("Out of memory." in desk.notice.text) == (how == "fails")
    engine.fail, engine.answer, engine.pace = "", "Quite another.", 0.001
    desk.regenerate(Ask())
    done(desk)
    assert [turn.text for turn in desk.turns] == ["Who?", "Quite another."] and desk.notice is None


def test_an_answer_that_never_began_is_replaced_as_the_next_one_grows(opened):
    """There is nothing to keep, and what is stopped in the middle is worth more than nothing."""
    desk, engine = opened(pace=0.001, fail="Out of memory.")
    desk.ask("Who?", Ask())
    done(desk)
    engine.fail, engine.pace = "", 0.01
    desk.regenerate(Ask())
    wait_until(lambda: desk.job.snapshot.pieces)
    desk.stop()
    done(desk)
    assert (
        desk.turns[-1].state == "stopped" and ANSWER.startswith(desk.turns[-1].text) and desk.turns[-1].text
    )


def test_one_answer_at_a_time(desk, engine):
    """Two questions at once would mix their tokens in one conversation."""
    results = []
    threads = [threading.Thread(target=lambda: results.append(desk.ask("Why?", Ask()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(desk)
    assert results.count(True) == len(engine.asked) == len(desk.turns) // 2


def test_a_question_asked_as_the_answer_ends_is_taken(make_desk, book):
    """Its last word is on the page a moment before its end is: the next question was swallowed in silence."""

    class SlowToEnd(FakeRuntime):
        def _rounds(self, *args):
            for event in super()._rounds(*args):
                if isinstance(event, events.Finished):
                    time.sleep(0.3)
                yield event

    engine = SlowToEnd(pace=0.001)
    engine.start()
    wait_until(lambda: engine.state == "ready")
    desk = make_desk(engine)
    desk.library.add(book)
    desk.select_book(book.sha256)
    desk.ask("Who?", Ask())
    wait_until(lambda: desk.job.snapshot.text == ANSWER)
    assert desk.busy and desk.ask("And then?", Ask())
    done(desk)
    assert [turn.text for turn in desk.turns] == ["Who?", ANSWER, "And then?", ANSWER]


def test_a_question_in_the_middle_of_an_answer_is_refused_in_words(opened):
    desk, engine = opened(pace=0.2, prefill_steps=1)
    desk.ask("Who?", Ask())
    assert not desk.ask("And then?", Ask()) and desk.busy
    assert "being written" in desk.notice.text
    desk.stop()


def test_a_failed_answer_is_told_kept_and_not_sent_to_the_engine_again(opened):
    desk, engine = opened(pace=0.001, fail="The engine ran out of memory and was restarted. Ask again.")
    desk.ask("Who?", Ask())
    done(desk)
    assert desk.turns[-1].state == "failed" and "out of memory" in desk.turns[-1].extra["error"]
    engine.fail = ""
    desk.ask("Who, again?", Ask())
    done(desk)
    assert engine.asked[-1].history == () and desk.turns[-1].text == ANSWER


def test_an_engine_that_breaks_off_leaves_no_endless_progress(make_desk, book):
    class Breaking(FakeRuntime):
        def _answer(self, *args):
            yield from ()
            raise RuntimeError("pipe closed")

    engine = Breaking()
    engine.state = "ready"
    desk = make_desk(engine)
    desk.library.add(book)
    desk.select_book(book.sha256)
    desk.ask("Who?", Ask())
    done(desk)
    assert desk.job.snapshot.phase == "failed" and "pipe closed" not in desk.job.snapshot.error


def test_reading_in_parts_keeps_each_parts_text_beside_the_answer(opened):
    desk, engine = opened(pace=0.001, parts=3, prefill_steps=2)
    desk.summarize(Ask(fit="sections"))
    done(desk)
    assert desk.turns[-1].text == SUMMARY
    assert desk.turns[-1].extra["parts"] == [
        ["Part 1", "What part 1 tells."],
        ["Part 2", "What part 2 tells."],
    ]


def test_cancel_while_the_engine_still_loads(make_desk, book):
    """The engine cannot be stopped before it has heard of the question; the page must not wait for it."""

    class Loading(FakeRuntime):
        def _answer(self, *_args):
            for step in range(10_000):
                yield events.Loading("Loading the weights", step / 10_000)
                self._stop.wait(0.001)
            raise AssertionError("never cancelled")

    engine = Loading()
    engine.state = "loading"
    desk = make_desk(engine)
    desk.library.add(book)
    desk.select_book(book.sha256)
    desk.ask("Who?", Ask())
    wait_until(lambda: desk.job.snapshot.phase == "loading")
    desk.stop()
    done(desk)
    assert desk.turns[-1].state == "stopped"


# --- forgetting


def test_books_and_conversations_cannot_change_under_a_running_answer(opened, book):
    desk, engine = opened(pace=0.02)
    desk.summarize(Ask())
    talk = desk.conversation_id
    desk.shelf.forget(book.sha256)
    desk.new_conversation()
    desk.select_book(book.sha256)
    assert desk.busy and desk.conversation_id == talk and desk.book == book
    assert desk.notice.kind == "info"
