"""Settings in a browser: every key, kept over a reload and a restart, locked where config.yaml speaks."""

from __future__ import annotations

import json
import time

import pytest

import core.config
from app.store.preferences import Preferences, fixed
from core.config import Settings, load_settings
from tests.support.fake_runtime import FakeRuntime, wait_until

pytestmark = pytest.mark.e2e
OPEN = ".topbar-tools [data-toggle=settings]"

# of a list its last choice; what stands in a field is typed once more. Another language draws the page anew:
# a script that runs meanwhile may never answer
CHANGE_ALL = """() => [...document.querySelectorAll(
  "[data-act=set]:not(:disabled):not([data-id=language])")].map((one) => {
  if (one.matches("select")) one.selectedIndex = one.options.length - 1;
  one.dispatchEvent(new Event("change", { bubbles: true }));
  return one.dataset.id;
})"""


def test_a_setting_is_kept_over_a_reload_and_reset_again(serve, open_page, drop, sample, home):
    """Settings and choices were forgotten at every reload."""
    page = open_page(serve(FakeRuntime(pace=0.005)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.select_option("#from-chapter", "3")
    page.select_option("#summary-length", "chapters")
    page.click(OPEN)
    page.fill("#set-max_new_tokens", "64")
    page.press("#set-max_new_tokens", "Tab")
    row = ".setting:has(#set-max_new_tokens)"
    page.wait_for_selector(f"{row} .setting-from:has-text('set here')")
    page.reload()
    page.wait_for_selector("body[data-connected] .card h2")
    assert page.input_value("#from-chapter") == "3" and page.input_value("#summary-length") == "chapters"
    page.click(OPEN)
    assert page.input_value("#set-max_new_tokens") == "64"
    stored = json.loads((home / "settings.json").read_text())
    assert stored == {"summary_length": "chapters", "max_new_tokens": 64}
    page.click(f"{row} [data-act=reset]")
    page.wait_for_selector(f"{row} .setting-from:has-text('default')")
    assert page.input_value("#set-max_new_tokens") == "512"


def test_a_refused_value_stands_at_its_field(serve, open_page):
    """The refusal stood behind the drawer, and stayed when a good value was taken."""
    page = open_page(serve(FakeRuntime(pace=0.005)))
    page.click(OPEN)
    for typed, refused in (("9", True), ("0,7", False)):
        page.fill("#set-temperature", typed)
        page.press("#set-temperature", "Tab")
        page.wait_for_selector("#refused-temperature", state="visible" if refused else "detached")
        assert not page.locator(".notice").count()
    page.wait_for_selector("#set-temperature[value='0.7']")


def test_what_is_asked_at_once_is_asked_with_what_was_chosen(serve, open_page, drop, sample, monkeypatch):
    """The requests overtook each other on a slow disk: a summary was told in another way than was chosen, and
    a question read behind the limit.
    """
    fake = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    desk = serve.desk
    for slow, name in ((desk.history, "limit"), (desk.preferences, "keep")):
        monkeypatch.setattr(slow, name, after_a_while(getattr(slow, name)))
    page.select_option("#summary-length", "own")
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    page.select_option("[data-act=limit]", "2")
    page.fill("#question textarea", "Who keeps the clocks?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    summary, question = fake.asked
    assert (
        summary.summaries == "own"
        and question.spoiler_limit == 2
        and question.question == "Who keeps the clocks?"
    )


def after_a_while(do):
    """The same, as on a slow disk."""

    def done(*given):
        time.sleep(0.3)
        do(*given)

    return done


def test_nothing_that_is_set_on_the_page_is_written_to_config_yaml(serve, open_page, home, monkeypatch):
    """It is the person's own file, with comments and line ends of their own."""
    config = home / "config.yaml"
    whole = core.config.DEFAULT_PATH.read_bytes().replace(b"#gamma: auto", b"gamma: 6")
    config.write_bytes(b"\xef\xbb\xbf" + whole.replace(b"\n", b"\r\n") + b"# mine")
    monkeypatch.setattr("core.config.DEFAULT_PATH", config)
    before = config.read_bytes(), config.stat().st_mtime_ns
    url = serve(FakeRuntime(), preferences=Preferences(load_settings(), fixed({})))
    page = open_page(url)
    page.click(OPEN)
    page.wait_for_selector("#set-gamma:disabled", state="attached")
    changed = page.evaluate(CHANGE_ALL)
    stored = home / "settings.json"
    wait_until(lambda: stored.exists() and len(json.loads(stored.read_text())) == len(changed))
    assert len(changed) > 40 and "gamma" not in changed
    page.dispatch_event(".setting:has(#set-top_p) [data-act=reset]", "click")
    wait_until(lambda: "top_p" not in json.loads(stored.read_text()))
    assert (config.read_bytes(), config.stat().st_mtime_ns) == before


def test_letting_assistants_in_says_what_leaves_the_computer_and_folders_are_ticked(
    serve, open_page, home, tmp_path, monkeypatch
):
    """None is ticked at first, and a tick is to be seen."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Documents").mkdir()
    documents = str(tmp_path / "Documents")
    page = open_page(serve(FakeRuntime()))
    page.click(OPEN)
    page.get_by_text("Other programs", exact=True).click()
    box = page.locator(f"input[data-act=tick-folder][value='{documents}']")
    assert not box.is_checked()
    page.select_option("#set-mcp", "true")
    page.wait_for_selector(".notice:has-text('cloud'):has-text('leave this computer')")
    box.check()
    page.wait_for_selector(".setting:has(#set-mcp_folders) .setting-from:has-text('set here')")
    assert box.is_checked()
    assert json.loads((home / "settings.json").read_text()) == {"mcp": True, "mcp_folders": [documents]}
    box.uncheck()
    page.wait_for_function("document.querySelector('#set-mcp_folders').value === '[]'")


def test_a_key_that_config_yaml_sets_is_locked_and_the_engine_restarts_on_a_word(serve, open_page, tmp_path):
    fake = FakeRuntime()
    url = serve(fake, preferences=Preferences(Settings(top_p=0.5), {"top_p": "config.yaml"}))
    page = open_page(url)
    page.click(OPEN)
    assert page.is_disabled("#set-top_p") and page.input_value("#set-top_p") == "0.5"
    page.wait_for_selector(".setting:has(#set-top_p) .setting-from:has-text('set in config.yaml')")
    page.click(".settings-group:has-text('Speculation') > summary")
    page.fill("#set-gamma", "8")
    page.press("#set-gamma", "Enter")
    page.wait_for_selector(".waiting:has-text('gamma')")
    page.click("[data-act=apply]")
    page.wait_for_selector(".waiting", state="detached")
    assert fake.renewed[-1].gamma == 8
    assert page.is_visible("#set-gamma"), "the group stays unfolded"
