"""The ways that people go through the page, for tests/e2e/test_layout.py: at each stop the window goes
through the sizes. Each takes a function that begins, see `begins`, and tells what was wrong.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.desk.values import FolderMove, ImportedFile
from app.models.progress import Transfer
from app.store.relocation import Relocation
from core.hardware.gpus import imagined_hardware
from tests.support.browsing import select
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.page_looks import DRAWN, look

TOLD = (
    "Dorcas Pell is responsible for the twenty-three clocks of the railway. She is sent to Saltby, where the "
    "station clock loses seven minutes every Thursday.\n\n"
    "- Of her watch she says that it “was never wrong and was no great company”.\n"
    "- Mr. Tull wrote it down each time and told nobody.\n\n"
    "The clock was stopped on Thursdays by somebody who had the key, though the seal was never broken."
)


class LongBook(FakeRuntime):
    """Says of every book that it is read in 75 parts, and a lot besides."""

    def card(self, book, spoiler_limit=None, **scope):
        """See FakeRuntime."""
        notes = [f"Chapter {number} holds pictures whose text is not read. " * 2 for number in range(9)]
        parts = [f"Chapter {number}: The day of the long road" for number in range(1, 76)]
        said = {"fits": False, "share_of_context": 26.4, "parts": parts, "notes": notes}
        return {**super().card(book, spoiler_limit, **scope), **said}


def begins(serve, open_page):
    """A function that opens a page with a scripted engine, which reads and writes at once: (page, desk)."""

    def begin(engine=FakeRuntime, language: str = "", **script):
        fake = engine(**{"pace": 0.001, "prefill_steps": 2, "summary": TOLD, "answer": TOLD, **script})
        fake.context_tokens = 16_384
        url = serve(fake)
        if language:
            serve.desk.preferences.choose("language", language)
        return open_page(url), serve.desk

    return begin


def read(page, desk, at: int = 1) -> None:
    """A sample comes on the desk."""
    desk.imports.sample(desk.imports.samples[at].name)
    wait_until(lambda: desk.state.opening is None)
    page.wait_for_selector(".card div.fit")


def ask(page, desk, question: str) -> None:
    before = page.locator("#turns .answer footer").count()
    assert desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(f"#turns .answer footer >> nth={before}")


def folded_out(page, name: str):
    """The shelf or the panel, opened where there is no room for it beside the page, and folded away again."""
    column = {"shelf": "#left", "panel": "#right"}[name]

    def before() -> None:
        if not page.is_visible(column):
            page.click(f".tool-{name}")
            page.wait_for_selector(column, state="visible")

    def after() -> None:
        page.evaluate(f"delete document.body.dataset.{name}")

    return {"before": before, "after": after}


def before_the_first_book(begin, _folder) -> list[str]:
    page, desk = begin()
    wrong = look(page, "start")
    desk.models._look = lambda: imagined_hardware(ram_gib=16)
    desk.models.start()
    page.wait_for_selector(".model-offer")
    wrong += look(page, "offer")
    page.wait_for_selector(".models .model >> nth=1", state="attached")
    page.evaluate("for (const one of document.querySelectorAll('.models details')) one.open = true")
    wrong += look(page, "models", **folded_out(page, "shelf"))
    desk.models.show(
        Transfer("Qwen3-4B-Instruct-2507-Q4_K_M", "Downloading", 0.37, "running", "", 8.4e6, 187.0)
    )
    page.wait_for_selector(".fetching")
    wrong += look(page, "downloading")
    desk.models.show(
        replace(
            desk.models.fetching,
            state="failed",
            error="The disk is full: 2.5 GB are needed, 1.1 GB is free. Free some space, then go on.",
        )
    )
    page.wait_for_selector(".fetching[role=alert]")
    wrong += look(page, "download-failed")
    desk.models.show(None)
    desk.model_choice.look_into("")
    page.wait_for_selector(".model-files")
    wrong += look(page, "model-files")
    desk.model_choice.done_choosing()
    desk.models.decline()
    page.click("[data-paste]")
    wrong += look(page, "paste")
    page.keyboard.press("Escape")
    opening = ImportedFile(
        Path("x"), "The Thursday Clock.pdf", "Reading page 212 of 480", 0.44, 12.0, behind=2
    )
    desk.store.update(opening=opening)
    desk.store.tell()
    page.wait_for_selector(".opening")
    wrong += look(page, "opening")
    desk.store.update(
        opening=replace(opening, offer="480 of 480 pages of “scan.pdf” are pictures.", installs=True)
    )
    desk.store.tell()
    page.wait_for_selector("[data-act=install-ocr]")
    wrong += look(page, "ocr")
    desk.store.update(opening=replace(opening, locked=True))
    desk.store.tell()
    page.wait_for_selector(".locked")
    wrong += look(page, "password")
    return wrong


def book_and_conversation(begin, _folder) -> list[str]:
    page, desk = begin()
    read(page, desk, 0)
    read(page, desk)
    wrong = look(page, "card", seen=["#summarize"])
    wrong += look(page, "shelf", **folded_out(page, "shelf"))
    desk.engine.pace, desk.engine.prefill_steps = 0.5, 400
    desk.questions.summarize()
    page.wait_for_selector("#prefill-box [aria-valuenow]")
    wrong += look(page, "reading")
    desk.stop()
    wait_until(lambda: not desk.state.busy)
    desk.engine.pace, desk.engine.prefill_steps = 0.001, 2
    desk.books.begin_conversation()
    ask(page, desk, "Who is responsible for the clocks, and what of her watch?")
    wrong += look(page, "answer")
    wrong += look(page, "talks", **folded_out(page, "shelf"))
    page.click("#turns .evidence > summary")
    page.evaluate("document.getElementById('scroller').scrollTop = 1e6")
    wrong += look(page, "evidence")
    page.click(".levels-switch")
    wrong += look(page, "levels")
    page.click(".levels-switch")
    wrong += look(page, "panel", **folded_out(page, "panel"))
    desk.engine.pace, desk.engine.answer = 0.3, "\n\n".join([TOLD] * 40)
    desk.questions.ask("And who broke the seal?")
    page.wait_for_selector("#live-text p")
    wrong += look(page, "writing")
    desk.stop()
    wait_until(lambda: not desk.state.busy)
    return wrong


def what_is_asked_of_the_person(begin, folder) -> list[str]:
    page, desk = begin()
    read(page, desk)
    ask(page, desk, "Who is responsible for the clocks?")
    desk.engine.answer = TOLD.replace("each time", "every time")
    desk.questions.regenerate()
    wait_until(lambda: not desk.state.busy)
    page.click("#turns summary:has-text('1 other version')")
    wrong = look(page, "versions")
    page.click("[data-act=compare]")
    page.wait_for_selector("#stat-compared")
    page.click("#turns summary:has-text('Beside plain decoding')")
    wrong += look(page, "compared")
    page.click(".export summary")
    wrong += look(page, "export")
    page.click(".export summary")
    page.click(".own summary")
    page.fill("[data-act=instruct-book]", "Answer in German, briefly.")
    wrong += look(page, "instructions")
    page.keyboard.press("Tab")
    page.wait_for_selector(".own summary:has-text('Instructions: Answer in German')")
    page.click(".own summary")
    ask(page, desk, "And who winds them?")
    room = desk.engine.room(desk.engine.asked[-1])
    desk.engine.context_tokens = room["text"] + 2 * sum(room["turns"]) + room["answer"]
    page.fill("#question textarea", "What is the last thing that the clock says?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector(".crowded")
    wrong += look(page, "crowded")
    page.click("[data-act=start-fresh]")
    page.wait_for_selector("#turns .bubble:has-text('last thing')")
    wait_until(lambda: not desk.state.busy)
    desk.books.limit(3)
    desk.trash.throw_conversation(desk.state.conversation_id)
    page.wait_for_selector("[data-act=undo]")
    wrong += look(page, "removed")
    desk.store.say(
        "The disk is full: the answer is shown here, and stored as soon as there is room. Free some space."
    )
    for number in range(30):
        desk.store.fail(f"{number}-{'long' * 30}.pdf", "It is damaged: the end is missing. Copy it again.")
    page.wait_for_selector(".failures li:nth-child(30)", state="attached")
    wrong += look(page, "error")
    desk.store.update(notice=None, deleted=(), failures=())
    page.fill("[data-search]", "clock")
    page.wait_for_selector(".hits")
    wrong += look(page, "search", **folded_out(page, "shelf"))
    desk.store.update(moving=FolderMove(Relocation(folder / "old", folder / "new", 10**9, True)))
    desk.store.tell()
    page.wait_for_selector("[data-act=begin-move]")
    wrong += look(page, "move-asked")
    desk.store.update(moving=FolderMove(desk.state.moving.move, 10**8, 40.0))
    desk.store.tell()
    page.wait_for_selector(".moving [role=progressbar]")
    wrong += look(page, "moving")
    desk.store.update(moving=None)
    desk.store.tell()
    page.evaluate("document.body.dataset.lost = 'gone'")
    wrong += look(page, "gone")
    page.evaluate("document.body.dataset.lost = 'locked'")
    wrong += look(page, "locked-out")
    return wrong


def the_book_beside_the_conversation(begin, _folder) -> list[str]:
    page, desk = begin()
    read(page, desk)
    ask(page, desk, "What of her watch?")
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text p")
    beside = folded_out(page, "panel")
    wrong = look(page, "book", **beside)
    page.click("#turns .text a.cite")
    page.wait_for_selector("#passage")
    wrong += look(page, "place", **beside)
    page.fill("[data-find]", "clock")
    page.wait_for_selector(".found li")
    wrong += look(page, "found", **beside)
    page.press("[data-find]", "Escape")
    page.wait_for_selector(".found", state="detached")
    words = page.inner_text("#passage")  # in sight, unlike the chapter's first words
    select(page, words)
    page.click("[data-mark]")
    page.evaluate("getSelection().removeAllRanges()")
    select(page, words)
    wrong += look(page, "selected")
    page.evaluate("getSelection().removeAllRanges()")
    page.click(".marks summary")
    page.fill("[data-note]", "Who tells this, and when?")
    wrong += look(page, "notes", **beside)
    page.click(".marks summary")
    desk.questions.summarize_chapter(2)
    wait_until(lambda: not desk.state.busy)
    page.click(".tree > summary")
    page.check(".tree input >> nth=1")
    wrong += look(page, "chapters", **beside)
    page.click(".tree > summary")
    desk.reader.show(desk.books.current.chapters[1].start, 0)
    page.wait_for_selector(".told p")
    wrong += look(page, "told", **beside)
    return wrong


def a_long_book(begin, _folder) -> list[str]:
    """75 chips of parts and a list of notes pushed "Summarise" below the fold."""
    page, desk = begin(LongBook)
    read(page, desk)
    wrong = look(page, "long-book", seen=["#summarize"])
    for folded in ("75 parts", "more notes"):
        page.click(f"summary:has-text('{folded}')")
        page.evaluate("document.getElementById('scroller').scrollTop = 0")
        wrong += look(page, f"long-book-{folded.split()[-1]}", seen=["#summarize"])
    return wrong


def a_long_talk(begin, _folder) -> list[str]:
    """The main action stood above the first question, and went away with it."""
    page, desk = begin(answer="\n\n".join([TOLD] * 12))
    read(page, desk)
    ask(page, desk, "Who is responsible for the clocks, and what does she hide through all these years?")

    def to_its_end() -> None:
        page.evaluate("document.getElementById('scroller').scrollTop = 1e6")
        page.evaluate(DRAWN)

    return look(page, "talk-end", seen=["[data-act='summarize']"], before=to_its_end)


def in_german(begin, folder) -> list[str]:
    """Its labels are a third longer than English ones."""
    return _in(begin, "de")


def in_chinese(begin, folder) -> list[str]:
    """Its words break anywhere."""
    return _in(begin, "zh")


def _in(begin, code: str) -> list[str]:
    page, desk = begin(language=code, parts=3)
    desk.models.start()
    page.wait_for_selector(".models .model", state="attached")
    read(page, desk)
    wrong = look(page, f"card-{code}", seen=["#summarize"])
    desk.questions.summarize()
    wait_until(lambda: not desk.state.busy)
    page.wait_for_selector("[data-region=turns] .answer .tools")
    wrong += look(page, f"talk-{code}", **folded_out(page, "panel"))
    page.click("#tab-reader")
    page.wait_for_selector("#reader p[data-offset]")
    wrong += look(page, f"book-{code}", **folded_out(page, "panel"))
    desk.engine.reading = "retrieval"
    page.select_option("#ways select[data-act=reading-mode]", "retrieval")
    page.wait_for_selector("#meter .meter-words:not(:has(b))")
    return wrong + look(page, f"passages-{code}")


WAYS = (
    before_the_first_book,
    book_and_conversation,
    what_is_asked_of_the_person,
    the_book_beside_the_conversation,
    a_long_book,
    a_long_talk,
    in_german,
    in_chinese,
)
