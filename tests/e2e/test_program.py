"""A program and not a console, in a browser: the last tab, the notification, the log, the data folder."""

from __future__ import annotations

import os

import pytest

import app.server.main
from app.server.last_tab import LastTab
from core import paths
from core.cache.disk import SnapshotFolder
from installer.login import LoginEntry
from tests.support.fake_runtime import SUMMARY, FakeRuntime, wait_until

pytestmark = pytest.mark.e2e
OPEN = ".topbar-tools [data-toggle=settings]"
# a system's notifications, a clock and a tab's visibility as the test wants them
STAGED = """
window.told = [];
window.Notification = class {
  constructor(title, more) { window.told.push([title, more.body, more.tag]); }
  close() {}
  static permission = "default";
  static requestPermission() { Notification.permission = "granted"; return Promise.resolve("granted"); } };
window.skipped = 0;
const now = Date.now.bind(Date);
Date.now = () => now() + window.skipped;
window.away = false;
Object.defineProperty(document, "hidden", { get: () => window.away });
window.look = (away) => { window.away = away; document.dispatchEvent(new Event("visibilitychange")); };
"""


def shot(page, name: str) -> None:
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")


def press(page, selector: str) -> None:
    """A click that takes a person's time, on what is drawn anew again and again."""
    page.wait_for_selector(selector)
    middle = """(selector) => {
      const box = document.querySelector(selector).getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    }"""
    page.mouse.move(*page.evaluate(middle, selector))
    page.mouse.down()
    page.wait_for_timeout(150)
    page.mouse.up()


def test_a_reading_is_cancelled_by_a_button_that_is_drawn_anew_meanwhile(serve, open_page, drop, sample):
    """The press fell on one button, the release on its successor, and nothing happened."""
    page = open_page(serve(FakeRuntime(pace=0.05, prefill_steps=4000)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    press(page, ".progress [data-act=stop]")
    page.wait_for_selector("#prefill-box", state="detached")


def test_closing_the_last_tab_asks_once_and_is_remembered(serve, open_page, home):
    url = serve(FakeRuntime())
    serve.server.end_with_last_tab()
    page = open_page(url)
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.click("#topbar h1")  # a browser asks only where somebody did something
    page.close(run_before_unload=True)
    page.wait_for_selector("#leaving-question[open]")
    shot(page, "leaving")
    assert asked == ["beforeunload"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#leaving-question') !== null"), (
        "the keyboard stays in it"
    )
    page.click("#leaving-question [data-value=keep]")
    page.wait_for_selector("#leaving-question", state="detached")
    assert '"keep"' in (home / "settings.json").read_text()
    with page.expect_event("close"):
        page.close(run_before_unload=True)
    assert asked == ["beforeunload"] and not serve.server._asked.is_set()


def test_a_reload_and_a_second_tab_are_not_asked(serve, open_page):
    url = serve(FakeRuntime())
    serve.server.end_with_last_tab()
    page = open_page(url)
    asked: list[str] = []
    page.context.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.click("#topbar h1")
    page.keyboard.press("F5")
    page.wait_for_selector("body[data-connected] .engine-ready")
    page.evaluate("location.reload()")
    page.wait_for_selector("body[data-connected] .engine-ready")
    tab = page.context.new_page()
    tab.goto(page.url)
    tab.wait_for_selector("body[data-tabs] .engine-ready")
    tab.click("#topbar h1")
    with tab.expect_event("close"):
        tab.close(run_before_unload=True)
    assert asked == []


def test_who_left_without_an_answer_is_asked_at_the_next_visit(serve, open_page, browser, monkeypatch):
    soon = {"gone": None, "grace_s": 0.3, "again_s": 0.3}
    monkeypatch.setattr(LastTab.__init__, "__kwdefaults__", soon)
    url = serve(FakeRuntime())
    serve.server.end_with_last_tab()
    page = open_page(url)
    state = page.context.storage_state()
    address = page.url
    page.close()
    wait_until(lambda: serve.desk.state.was_left)
    context = browser.new_context(storage_state=state)
    again = context.new_page()
    again.goto(address)
    again.wait_for_selector("#leaving-question[open]")
    again.click("#leaving-question [data-value=quit]")
    again.wait_for_selector("#leaving-question", state="detached")
    assert serve.desk.preferences.settings.when_closed == "quit"
    context.close()


@pytest.mark.parametrize("watched", [False, True])
def test_one_notification_when_a_long_reading_is_done_unseen(serve, open_page, drop, sample, watched):
    fake = FakeRuntime(pace=0.05, prefill_steps=400, summary="\n\n".join([SUMMARY] * 40))
    page = open_page(serve(fake))
    page.context.add_init_script(STAGED)
    page.reload()
    page.wait_for_selector("body[data-connected] .engine-ready")
    tab = page.context.new_page()
    tab.goto(page.url)
    tab.wait_for_selector("body[data-tabs] .engine-ready")
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    press(page, ".progress .tell-me")
    page.wait_for_selector("body:not([data-may-tell])")
    tab.evaluate("Notification.permission = 'granted'")
    for one in (page, tab):
        one.evaluate(f"look({'false' if watched and one is tab else 'true'})")
    fake.pace = 0.01
    page.wait_for_selector("#live-text p")
    for one in (page, tab):
        one.evaluate("window.skipped = 30000")
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")
    if not watched:
        wait_until(lambda: page.evaluate("told") + tab.evaluate("told"))
    page.wait_for_timeout(300)  # for one too many
    told = page.evaluate("told") + tab.evaluate("told")
    assert len(told) == (0 if watched else 1), "one for all tabs, none while one of them is looked at"
    assert "✓" in page.title()
    if told:
        assert told[0][0] == "TriForce Chat" and "Done" in told[0][1]


def test_a_short_answer_is_not_notified(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.005)))
    page.context.add_init_script(STAGED + "Notification.permission = 'granted';")
    page.reload()
    page.wait_for_selector("body[data-connected] .engine-ready")
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.evaluate("look(true)")
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    assert page.evaluate("told") == []


def test_the_log_is_shown(serve, open_page):
    (paths.subdir("logs") / "engine.log").write_text("a line <b>of</b> the engine\n")
    page = open_page(serve(FakeRuntime()))
    page.click(OPEN)
    with page.context.expect_page() as opened:
        page.click("a[href='/log']")
    log = opened.value
    log.wait_for_selector("pre:has-text('a line <b>of</b> the engine')")
    shot(log, "log")
    assert str(paths.subdir("logs")) in log.inner_text("body")


def test_what_is_kept_is_shown_and_emptied(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.005)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    place = SnapshotFolder(paths.subdir("snapshots")).of("m", serve.desk.state.book_id)
    place.mkdir(parents=True)
    (place / "a.kv").write_bytes(bytes(3_000_000))
    page.on("dialog", lambda dialog: dialog.accept())
    page.click(OPEN)
    page.wait_for_selector(".kept li:has-text('3 MB')")
    shot(page, "kept")
    page.click("[data-act=empty-kept]")
    page.wait_for_selector(".kept", state="detached")
    assert not place.exists()


def test_the_data_folder_is_moved_on_a_yes(serve, open_page, drop, sample, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "default_dir", lambda: tmp_path / "system")
    monkeypatch.delenv("TRIFORCE_HOME")
    page = open_page(serve(FakeRuntime(pace=0.005, summary=SUMMARY)))
    moved: list[bool] = []
    serve.desk.data_folder.when_moved(lambda: moved.append(True))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.on("dialog", lambda dialog: dialog.accept(str(tmp_path / "drive")))
    page.click(OPEN)
    page.click("[data-act=move-data]")
    page.wait_for_selector(".moving:has-text('Move your data?')")
    page.keyboard.press("Escape")
    shot(page, "move")
    page.click("[data-act=begin-move]")
    wait_until(lambda: moved)
    assert paths.data_dir() == tmp_path / "drive"
    assert len(list((tmp_path / "drive" / "books").iterdir())) == 1


def test_a_folder_that_others_can_read_is_said_before_anything_is_moved(
    serve, open_page, monkeypatch, tmp_path
):
    monkeypatch.setattr(paths, "default_dir", lambda: tmp_path / "system")
    monkeypatch.delenv("TRIFORCE_HOME")
    monkeypatch.setattr("app.store.relocation._open_to_others", lambda _folder: True)
    page = open_page(serve(FakeRuntime()))
    page.on("dialog", lambda dialog: dialog.accept(str(tmp_path / "drive")))
    page.click(OPEN)
    page.click("[data-act=move-data]")
    page.wait_for_selector(".moving:has-text('Other users of this computer')")
    page.keyboard.press("Escape")
    page.click("[data-act=decline-move]")
    page.wait_for_selector(".moving", state="detached")
    assert paths.data_dir() == tmp_path / "system" and not any((tmp_path / "drive").glob("*"))


def test_starting_at_login_is_offered_off_and_taken_back(serve, open_page, monkeypatch, tmp_path):
    """By the entry itself, in a folder of the test's own."""
    entry = LoginEntry(tmp_path, platform="linux", environ={"XDG_CONFIG_HOME": str(tmp_path)})
    monkeypatch.setattr(app.server.main, "LoginEntry", lambda _root: entry)
    page = open_page(serve(FakeRuntime()))
    app.server.main._follow_login(serve.desk.preferences)
    page.click(OPEN)
    page.evaluate("document.querySelector('#set-start_at_login').closest('details').open = true")
    row = ".setting:has(#set-start_at_login)"
    assert "default" in page.inner_text(f"{row} .setting-from") and not entry.is_on()
    page.select_option("#set-start_at_login", "true")
    page.wait_for_selector(f"{row} .setting-from:has-text('set here')")
    assert "Exec=" in entry.path.read_text(encoding="utf-8")
    page.click(f"{row} [data-act=reset]")
    page.wait_for_selector(f"{row} .setting-from:has-text('default')")
    assert not entry.is_on()
