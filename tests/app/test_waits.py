"""Whoever waits for the engine sees what it does and how long it takes, and can call it off."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.desk.answer_snapshot import Snapshot
from app.desk.assembly import SAVE_WAIT_S
from app.desk.retelling import retold
from app.desk.values import FolderMove, ImportedFile
from app.models.catalogue import chosen, remember_model
from app.models.local_files import FileInspection, FolderChoice, own_files
from app.models.progress import DownloadSpeed, StageEstimate, Transfer
from app.render.templating import render
from app.store.relocation import Relocation
from app.web.messages import moving_html
from app.web.models import fetching_html, looking_html, model_files_html
from app.web.page import Page
from app.web.regions import header_html, progress_html, stage_html
from app.web.stats_panel import panel_html
from core.config import Settings
from core.events import Loading, Prefill, Preparing, ReadingStep, Stats, SummaryDraft
from core.model.store.discovery import FoundModel, found_below
from core.model.store.embedded import NAME as EMBEDDED
from core.request import HistoryTurn, Request
from core.sandbox.process import CallCancelled
from tests.support.fake_runtime import wait_until


def header(desk) -> str:
    return Page(desk).render()["header"][0]


def test_loading_says_what_how_far_and_how_long(desk, engine):
    engine.loading = Loading("Looking at this machine", None, 12.4)
    engine.state = "loading"
    html = header(desk)
    assert str(engine.loading.stage) in html and "12\u00a0s" in html
    assert 'data-act="cancel-loading"' in html
    engine.loading = Loading("Loading the model", 0.25)
    html = header(desk)
    assert "25%" in html and "left" not in html, "a time that nobody knows is not made up"
    engine.state = "ready"
    assert "cancel-loading" not in header(desk)


def test_a_model_that_is_not_waited_for_gives_way_to_the_one_before(desk, engine, home):
    """Also at later starts: the model that took too long is not the chosen one any more."""
    desk.models.look_again()
    for before in (None, "Qwen3-4B-Instruct-2507"):
        remember_model(before)
        engine.load_s, engine.model_name = 5.0, "another"
        desk.model_choice.use(EMBEDDED)
        wait_until(lambda: engine.state == "loading")
        assert chosen() == EMBEDDED
        desk.actions.dispatch({"act": "cancel-loading"})
        assert (engine.state, engine.model_name, chosen()) == ("ready", "another", before)


def test_settings_that_are_not_waited_for_wait_again(desk, engine):
    engine.model_name = engine.before = "another"
    desk.preferences.choose("gamma", "8")
    engine.load_s = 5.0
    desk.engine_settings.apply()
    wait_until(lambda: engine.state == "loading")
    assert desk.engine_settings.unapplied == []
    desk.actions.dispatch({"act": "cancel-loading"})
    assert desk.engine_settings.unapplied == ["gamma"] and desk.preferences.settings.gamma == 8


@pytest.mark.parametrize("action", ["cancel-loading", "restart"])
def test_a_first_load_can_be_called_off_and_begun_again(desk, engine, action):
    engine.load_s = 0.3
    engine.start()
    desk.actions.dispatch({"act": "cancel-loading"})
    assert engine.state == "failed" and 'data-act="restart"' in header(desk)
    if action == "restart":
        desk.actions.dispatch({"act": "restart"})
        wait_until(lambda: engine.state == "ready")
    assert Settings() == desk.preferences.settings


FILE = ImportedFile(Path("x"), "x.pdf", "Reading scanned pages", 0.25, left_s=72.0)
MOVE = FolderMove(Relocation(Path("/old"), Path("/new"), 90, False), 30, 72.0)
PLAINLY = Stats(mode="triforce", new_tokens=9, tokens_per_s=3.0)
# What takes under a second is not here. Measured once on 2026-11-22 on two busy cores, with a conversation of
# 600 turns and 31 books of 35,524 words: opening a book of the shelf 0.15 s, the page .56, finding in a book
# .35, export .18 to .32, import .46, fork .18, deleting .02, purging .51, all of a book .34; looking through
# the whole shelf took 1.16 with 23 programs running, for 100 places.
# every wait of the page that lasts, as it is drawn in the middle of it: (what is said, its time, its way out)
WAITS = {
    "the machine is looked at, with its bus, and a plan made": (
        header_html("loading", model="", device="", loading=Loading("Looking at this machine", None, 72.0)),
        ("Looking at this machine", "72\u00a0s left", "cancel-loading"),
    ),
    "a model is loaded, and its kernels compiled": (
        header_html("loading", model="", device="", loading=Loading("Loading the model", 0.5, 72.0)),
        ("Loading the model", "72\u00a0s left", "cancel-loading"),
    ),
    "a question waits for a model": (
        progress_html(Snapshot("loading", loading=Loading("Loading the model", 0.5, 72.0))),
        ("Loading the model", "72\u00a0s left", "stop"),
    ),
    "a file is opened, its scanned pages are read, or OCR is installed": (
        stage_html(None, None, covered=False, opening=FILE, talking=False),
        ("Reading scanned pages", "72\u00a0s left", "cancel-opening"),
    ),
    "memory for a book is made ready": (
        progress_html(
            Snapshot(
                "preparing",
                reading=ReadingStep(1, 1, "One"),
                preparing=Preparing(12 * 10**9, 60 * 10**9, 72.0),
            )
        ),
        ("12.0\u00a0GB of 60.0\u00a0GB", "72\u00a0s left", "stop"),
    ),
    "a book is read": (
        progress_html(
            Snapshot("prefill", reading=ReadingStep(1, 1, "One"), prefill=Prefill(5, 9, 1.0, 72.0))
        ),
        ("Reading: One", "72\u00a0s left", "stop"),
    ),
    "a summary is told part by part": (
        progress_html(
            Snapshot(
                "prefill",
                reading=ReadingStep(2, 9, "Two", "part summary", left_s=72.0),
                prefill=Prefill(5, 9, 1.0, 3.0),
                whole_s=90.0,
            )
        ),
        ("Reading, 2 of 9", "80\u00a0s until all is told", "stop"),
    ),
    "passages are read and asked": (
        progress_html(
            Snapshot(
                "prefill",
                reading=ReadingStep(2, 8, "Two", "passage", left_s=72.0),
                prefill=Prefill(5, 9, 1.0, 3.0),
            )
        ),
        ("Reading passage 2 of 8", "about 80\u00a0s left", "stop"),
    ),
    "an answer is compared": (
        panel_html(PLAINLY, live=False, comparing=5, left_s=72.0),
        ("Plain decoding writes", "72\u00a0s left", "stop"),
    ),
    "a model is downloaded": (
        fetching_html(Transfer("Qwen", "Downloading", 0.5, bytes_per_s=9.0, left_s=72.0)),
        ("Downloading", "72\u00a0s left", "pause-model"),
    ),
    "what was downloaded is checked": (
        fetching_html(Transfer("Qwen", "Checking x.gguf", 0.5, bytes_per_s=9.0, left_s=72.0)),
        ("Checking x.gguf", "72\u00a0s left", "pause-model"),
    ),
    "a model is copied or moved": (
        fetching_html(Transfer("Qwen", "Copying", 0.5, "copying", bytes_per_s=9.0, left_s=72.0)),
        ("Copying", "72\u00a0s left", "stop-copying"),
    ),
    "a model file of one's own is looked at": (
        looking_html(FileInspection("/home/ann/my.gguf", 72.0)),
        ("Looking at /home/ann/my.gguf", "72\u00a0s at most", "stop-looking"),
    ),
    "models of other programs are looked for": (
        model_files_html(FolderChoice(searching_s=72.0)),
        ("Looking for models", "72\u00a0s at most", "stop-searching"),
    ),
    "the data folder is moved": (moving_html(MOVE), ("Moving your data", "72\u00a0s left", "decline-move")),
}


@pytest.mark.parametrize("wait", WAITS)
def test_every_wait_has_words_the_time_left_and_a_way_out(wait):
    html, (words, left, act) = WAITS[wait]
    assert words in html and left in html and f'data-act="{act}"' in html


def test_the_time_left_of_a_stage_is_that_stages_own():
    """A file's text is read at one pace, its scanned pages at another."""
    now = [0.0]
    stages = StageEstimate(lambda: now[0])
    assert stages.left_s("pages", 0.0) is None
    now[0] = 2.0
    assert stages.left_s("pages", 0.5) == pytest.approx(2.0)
    assert stages.left_s("scans", 0.0) is None
    now[0] = 12.0
    assert stages.left_s("scans", 0.1) == pytest.approx(90.0)
    assert stages.left_s("scans", None) is None


def test_a_download_that_came_to_its_end_does_not_hide_how_long_it_is_checked():
    """It began at nothing again, and what had been fetched before stood for its pace."""
    now = [0.0]
    pace = DownloadSpeed(1000, lambda: now[0])
    for now[0], fraction in ((0.0, 0.5), (10.0, 1.0), (10.1, 0.0)):
        told = pace.at(fraction)
    assert told == (None, None)
    now[0] = 12.1
    assert pace.at(0.25) == pytest.approx((125.0, 6.0))


def test_a_file_that_is_read_slowly_says_how_long(make_desk, engine, book, tmp_path, monkeypatch):
    go, told = threading.Event(), threading.Event()
    monkeypatch.setattr("app.models.progress._LEAST_PACE_S", 0.0)

    def read(path, *, progress, **_how):
        progress("Reading pages", 0.25)
        time.sleep(0.02)
        progress("Reading pages", 0.5)
        told.set()
        go.wait()
        return book

    desk = make_desk(engine, read=read)
    (tmp_path / "uploads" / "x.pdf").write_bytes(b"%PDF")
    desk.imports.upload(str(tmp_path / "uploads" / "x.pdf"), "x.pdf")
    assert told.wait(10)
    assert 0 < desk.state.opening.left_s < 1
    go.set()
    wait_until(lambda: desk.state.opening is None)


def test_a_comparison_says_how_long_it_takes_if_it_gets_as_long(opened):
    desk, engine = opened(pace=0.02, prefill_steps=1)
    desk.questions.ask("First?")
    wait_until(lambda: not desk.state.busy)
    desk.actions.dispatch({"act": "compare"})
    wait_until(lambda: desk.state.comparing.left_s)
    assert "left" in Page(desk).render()["panel"][0]
    desk.stop()
    wait_until(lambda: not desk.state.busy)


def test_the_meter_counts_what_would_be_sent(desk, engine):
    """One door: all that a question brings with it, ticked chapters too, is what the meter asks about."""
    seen = []
    room = engine.room
    engine.room = lambda ask: seen.append(ask) or room(ask)
    desk.actions.dispatch({"act": "tick", "id": "2"})
    wait_until(lambda: desk.context_usage.room(None) and seen)
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    sent, counted = engine.asked[-1], seen[0]
    assert counted.selected_chapters == sent.selected_chapters == (2,)
    assert (counted.book, counted.spoiler_limit, counted.reading_mode, counted.forbid_truncation) == (
        sent.book,
        sent.spoiler_limit,
        sent.reading_mode,
        True,
    )


@pytest.fixture
def kept_looking(desk, monkeypatch):
    """A model file that takes for ever to be looked at; whether that was given up."""
    ended = threading.Event()

    def look(_path, *, should_stop):
        wait_until(should_stop)
        ended.set()
        raise CallCancelled("given up")

    monkeypatch.setattr("app.desk.models.entry_safely", look)
    desk.model_choice.file("/home/ann/my.gguf")
    return ended


def test_a_model_file_that_is_looked_at_can_be_given_up(desk, kept_looking):
    """The model in use stays, and nothing of the file is remembered."""
    assert "/home/ann/my.gguf" in Page(desk).render()["fetching"][0]
    desk.actions.dispatch({"act": "stop-looking"})
    assert kept_looking.wait(5) and desk.state.looking is None
    assert Page(desk).render()["fetching"][0] == "" and own_files() == []
    assert desk.engine.state == "ready"


def test_the_file_that_was_chosen_last_is_the_one_that_is_looked_at(desk, kept_looking, monkeypatch):
    """The end of the look before must not take the words away."""
    desk.actions.dispatch({"act": "use-file", "file": "/home/ann/other.gguf"})
    assert kept_looking.wait(5)
    assert desk.state.looking.file == "/home/ann/other.gguf"
    desk.model_choice.stop_looking()


def test_a_search_for_models_can_be_ended_and_shows_what_it_found(desk, monkeypatch):
    found = FoundModel(Path("/models/one.gguf"), "one", "Jan", 5)

    def search(_named, *, should_stop):
        wait_until(should_stop)
        return [found]

    monkeypatch.setattr("app.desk.models.found_elsewhere", search)
    desk.actions.dispatch({"act": "look-elsewhere"})
    assert 'role="status"' in Page(desk).render()["model-files"][0]
    desk.actions.dispatch({"act": "stop-searching"})
    wait_until(lambda: desk.state.choosing.found == (found,))


def test_a_walk_through_folders_ends_when_it_is_told_to(tmp_path):
    """A disk of a million folders has no other end than its fifteen seconds."""
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    assert [one.name for one in found_below([tmp_path])] == ["one"]
    looked: list[int] = []

    def enough() -> bool:
        looked.append(1)
        return len(looked) > 2

    for number in range(50):
        (tmp_path / f"folder-{number}").mkdir()
    assert found_below([tmp_path / f"folder-{one}" for one in range(50)], should_stop=enough) == []
    assert len(looked) < 60


def test_what_was_said_is_retold_with_its_time(opened):
    """The bar stood at the end, with no time left, while the summary was written."""
    desk, engine = opened(pace=0.01, prefill_steps=2)
    asked, kept = Request("And then?", book=desk.books.current), []
    told = retold(engine, asked, (HistoryTurn("Who?", "The keeper."),), keep=kept.append)
    stages = [one for one in told if isinstance(one, Loading)]
    read = max(at for at, one in enumerate(stages) if one.fraction == 1.0)
    writing = stages[read + 1 :]
    assert len(writing) > 3 and writing[0].left_s is None, "one round says nothing of the next"
    assert all(one.left_s > 0 for one in writing[1:])
    assert [one.fraction for one in writing] == sorted(one.fraction for one in writing)
    assert kept == [engine.answer]


def test_quitting_waits_for_what_is_stored_until_the_person_has_waited_enough(desk, engine):
    """Its page says how long that takes at most, and has a button for it."""
    assert f'data-s="{SAVE_WAIT_S:.0f}"' in render("goodbye.html") and 'id="end-now"' in render(
        "goodbye.html"
    )
    engine.save_s = 3600.0
    ending = threading.Thread(target=desk.close, daemon=True)
    ending.start()
    time.sleep(0.3)
    assert ending.is_alive()
    desk.hurry()
    ending.join()
    assert engine.closed and not engine.saved


def test_a_telling_says_no_figures_of_a_part_before_its_time_is_known():
    """ "1,002 of 1,002 tokens" stood there, of one part of six; the words went to and fro with each try."""
    telling = Snapshot(
        "prefill",
        reading=ReadingStep(1, 6, "One", "telling"),
        prefill=Prefill(1002, 1002, 1.0),
        standing=SummaryDraft((), (), ()),
    )
    html = progress_html(telling)
    assert "1,002" not in html and html == progress_html(replace(telling, phase="streaming"))


def test_an_answer_from_one_part_does_not_say_that_all_are_read():
    """ "Reading, 1 of 49" stood above an answer for which one was read."""
    read = Snapshot("prefill", reading=ReadingStep(1, 49, "One"), prefill=Prefill(5, 9, 1.0, 72.0))
    assert "49" not in progress_html(read)
