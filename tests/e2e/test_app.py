"""The main job in a real browser, on a scripted engine: the page, its channel and its server are the real
ones.
"""

from __future__ import annotations

import re
import socket

import pytest

from app.models.catalogue import Models
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from tests.support.browsing import admission, engine
from tests.support.fake_runtime import ANSWER, SUMMARY, wait_until
from tests.support.hub import serving
from tests.support.page_looks import at_sizes
from tests.support.said import figures

LONG = "\n\n".join([SUMMARY] * 20)  # long enough to be stopped on a slow machine
WIDE, WINDOW = (1920, 1080), (1280, 800)
pytestmark = pytest.mark.e2e


def number(page, ident: str) -> float:
    return float(re.sub(r"[^\d.]", "", page.inner_text(f"#{ident}")) or 0)


def bar(page) -> float:
    return float(page.get_attribute("#prefill-box [role=progressbar]", "aria-valuenow") or 0)


def test_drop_prefill_stream_stop_follow_up(serve, open_page, drop, sample):
    """The main job, as one person would do it."""
    fake = engine(summary=LONG, prefill_steps=150)
    page = open_page(serve(fake))
    for size in at_sizes(page, (WIDE, WINDOW)):
        assert page.is_visible(".drop-hero") and not page.is_visible("#composer"), size
    drop(page, sample)
    page.wait_for_selector(".card h2")
    assert page.inner_text(".card h2") == "The Thursday Clock"
    page.wait_for_selector(".card-facts:has-text('tokens')")
    for size in at_sizes(page, (WIDE, WINDOW)):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"sideways at {size}"

    page.click("#summarize")
    page.wait_for_selector("#prefill-box [aria-valuenow]")
    first = bar(page)
    now = "Number(document.querySelector('#prefill-box [aria-valuenow]')?.ariaValueNow ?? 101)"
    page.wait_for_function(f"before => {now} > before", arg=first)
    assert len(figures(page.inner_text("#prefill-detail"))) >= 2

    page.wait_for_selector("#live-text p")
    early, early_text = page.inner_text("#stat-tbt-last"), page.inner_text("#live-text")
    page.wait_for_function("text => document.querySelector('#stat-tbt-last').innerText !== text", arg=early)
    assert number(page, "stat-acceptance-draft") > 0 and number(page, "stat-acceptance-retrieval") > 0
    page.wait_for_function(
        "text => document.querySelector('#live-text').innerText.length > text.length + 20", arg=early_text
    )
    page.wait_for_selector(".plot .line-tbt")

    page.click("#stop button")
    page.wait_for_selector("#turns .answer")
    stopped = page.inner_text("#turns .answer .text")
    assert early_text.split()[0] in stopped and page.is_visible("#turns .answer footer [data-reason=user]")

    page.fill("#question textarea", "What does Mr. Tull hide?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer >> nth=1")
    assert page.input_value("#question textarea") == ""
    assert fake.asked[1].question == "What does Mr. Tull hide?" and len(fake.asked[1].history) == 1
    assert fake.asked[1].history[0].answer.split()[:5] == stopped.split()[:5]


def test_follow_up_after_a_whole_summary_does_not_prefill_again(serve, open_page, drop, sample):
    fake = engine(pace=0.01)
    page = open_page(serve(fake))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    page.fill("#question textarea", "And then?")
    page.click("#send")
    page.wait_for_selector("#turns .answer >> nth=1")
    assert fake.prefilled_tokens[0] > 5000 and fake.prefilled_tokens[1] < 100
    page.wait_for_function("document.querySelector('#stat-prefill').innerText.includes('reused')")


def test_a_reloaded_page_finds_the_running_answer(serve, open_page, drop, sample):
    fake = engine(pace=0.05, prefill_steps=5, summary=LONG)
    page = open_page(serve(fake))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#live-text p")
    before = page.inner_text("#live-text")
    page.reload()
    page.wait_for_selector("#live-text p")
    assert page.inner_text("#live-text").startswith(before[:40]) and len(
        page.inner_text("#live-text")
    ) >= len(before)
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")


def test_escape_stops_and_regenerate_answers_again(serve, open_page, drop, sample):
    fake = engine(pace=0.08, prefill_steps=3, answer=LONG)
    page = open_page(serve(fake))
    drop(page, sample)
    page.fill("#question textarea", "Who is Dorcas Pell?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#live-text p")
    page.keyboard.press("Escape")
    page.wait_for_selector("#turns .answer footer")
    fake.pace, fake.answer = 0.005, ANSWER
    page.click("[data-act=regenerate]")
    page.wait_for_function(
        "document.querySelector('#turns .answer .text')?.innerText.includes('without a single correction')"
    )
    assert page.locator("#turns .answer").count() == 1 and len(fake.asked) == 2
    assert fake.asked[0].params["seed"] != fake.asked[1].params["seed"], (
        "regenerating must not repeat the same draw"
    )


def test_cancelling_the_prefill(serve, open_page, drop, sample):
    page = open_page(serve(engine(pace=0.1, prefill_steps=400)))
    drop(page, sample)
    page.click("#summarize")
    page.click("#prefill-box button")
    page.wait_for_selector("#turns .answer footer")
    assert page.is_visible("#summarize") and page.is_visible("#turns .answer footer [data-reason=user]")


def test_chapters_fit_and_settings_reach_the_engine(serve, open_page, drop, sample):
    fake = engine(pace=0.005)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.select_option("#from-chapter", label="3. Thursday")
    page.select_option("#summary-length", label="By chapters")
    page.select_option("select[data-act=reading-mode]", "chunked")
    page.wait_for_selector("select[data-act=reading-mode] option[value=chunked][selected]", state="attached")
    page.click(".topbar-tools [data-toggle=settings]")
    page.fill("#set-temperature", "0.9")
    page.press("#set-temperature", "Enter")
    page.wait_for_selector(".setting:has(#set-temperature) [data-act=reset]")
    page.keyboard.press("Escape")
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    asked = fake.asked[0]
    assert asked.chapters == (3, 8) and asked.reading_mode == "chunked" and asked.params["temperature"] == 0.9
    assert asked.summary_length == "chapters"
    assert {"max_new_tokens", "mode", "seed"} <= asked.params.keys() and "top_p" not in asked.params


def test_tokens_are_coloured_by_level_with_a_legend(serve, open_page, drop, sample):
    page = open_page(serve(engine(pace=0.005)))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    look = (
        "element => getComputedStyle(element).textDecorationStyle + getComputedStyle(element).backgroundColor"
    )
    plain = page.eval_on_selector("#turns .lv-draft", look)
    page.click(".levels-switch")
    assert page.is_visible(".legend")
    seen = {page.eval_on_selector(f"#turns .lv-{level}", look) for level in ("draft", "retrieval", "target")}
    assert len(seen) == 3 and plain not in seen
    styles = {
        page.eval_on_selector(
            f"#turns .lv-{level}", "element => getComputedStyle(element).textDecorationStyle"
        )
        for level in ("draft", "retrieval", "target")
    }
    assert len(styles) == 3, "colour must not be the only sign"


def test_book_text_and_model_output_stay_text(serve, open_page, drop, tmp_path):
    """A hostile book or a prompted model must not run code in the page."""
    attack = (
        '<img src=x onerror="document.title=1"><script>document.title=2</script> ${document.title=3} '
        "{{document}} `x`"
    )
    bad = tmp_path / "bad.txt"
    bad.write_text(f"Chapter 1\n\n{attack}\n\n" + "Some words to read. " * 200)
    page = open_page(serve(engine(pace=0.005, summary=f"It says {attack} twice: {attack}")))
    drop(page, bad)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text")
    shown = page.inner_text("#turns .answer .text")
    assert "onerror" in shown and "${document.title=3}" in shown
    assert page.title() == "TriForce Chat" and page.locator("#desk img, #desk script").count() == 0


def test_reader_pane_follows_the_chapter_choice(serve, open_page, drop, sample):
    page = open_page(serve(engine()))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#tab-reader")
    page.select_option(".reader-head select", label="The Deacon Is Wrong")
    page.wait_for_selector(".reader-text h3:has-text('The Deacon Is Wrong')")
    assert page.inner_text(".reader-text").count("The Deacon Is Wrong") == 1


def test_quotations_are_marked_and_open_the_book_at_the_passage(serve, open_page, drop, sample):
    """A quotation the reader can check is worth more than one to believe."""
    told = (
        "Her watch “was never wrong and was no great company”, she says, and “it ran backwards on Sundays”."
    )
    page = open_page(serve(engine(pace=0.005, summary=told)))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    assert page.locator("#turns .cite").count() == 2
    assert page.inner_text("#turns .cite-missing sup")
    quotation = page.locator("#turns .text a.cite")
    assert "ch. 1" in quotation.inner_text()
    assert "Twenty-Three Clocks" in quotation.get_attribute("title")
    page.click("#turns .text a.cite")
    page.wait_for_selector("#passage")
    assert page.inner_text("#passage") == "was never wrong and was no great company"
    page.wait_for_function("""() => { const mark = document.querySelector('#passage').getBoundingClientRect();
        return mark.top > 0 && mark.bottom < innerHeight; }""")


def test_the_title_says_how_far_a_reading_is_and_that_it_is_done(serve, open_page, drop, sample):
    """Whoever waits for a long book does so in another tab."""
    fake = engine(prefill_steps=400)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
    page.click("#summarize")
    page.wait_for_function("/^[1-9]\\d* % · TriForce Chat$/.test(document.title)")
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")
    page.wait_for_function("document.title === '✓ · TriForce Chat'")
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function("document.title === 'TriForce Chat'")


def test_dark_light_and_system(serve, open_page, drop, sample):
    page = open_page(serve(engine()), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(16, 33, 42)", "the system's choice"
    page.click("[data-theme-choice=light]")
    assert page.evaluate(background) == "rgb(248, 243, 232)"
    page.click("[data-theme-choice=dark]")
    page.reload()
    page.wait_for_selector("body[data-connected] .brand")
    assert page.evaluate(background) == "rgb(16, 33, 42)", "the choice is kept"


def test_forgetting_a_book_and_coming_back(serve, open_page, drop, sample, home, monkeypatch):
    monkeypatch.setattr("app.desk.trash.UNDO_S", 1.0)
    page = open_page(serve(engine(pace=0.005)))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    page.reload()
    page.wait_for_selector("#turns .answer footer")
    page.on("dialog", lambda dialog: dialog.accept())
    page.hover(".book")
    page.click(".book [data-act=forget]")
    page.wait_for_selector(".drop-hero:visible")
    assert list((home / "tmp").rglob("*.epub")) == []
    wait_until(lambda: not list((home / "books").rglob("*.json")))  # until then it can be taken back


def test_quit_says_goodbye_and_ends_the_server(serve, open_page):
    """The page says so while what was read is still being stored, and when it is over."""
    fake = engine()
    fake.save_s = 1.0
    page = open_page(serve(fake))
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[data-theme-choice=dark]")
    page.click("[data-quit]")
    page.wait_for_selector("#now:has-text('is being stored')")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 33, 42)"
    serve.server.wait()
    serve.server.stop()
    assert fake.saved and fake.closed
    page.wait_for_selector("#now:has-text('has ended')")

    def refused() -> int:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", serve.address.port))

    wait_until(refused)


def test_a_model_is_downloaded_paused_and_switched_to(serve, open_page, home, monkeypatch):
    """On a PC with a CUDA GPU: the list, the bar, Pause, Go on, and the new model at work."""
    with serving() as (hub, url):
        monkeypatch.setenv("HF_ENDPOINT", url)
        hub.pace_s = 0.05
        models = Models(Settings(), look=lambda: imagined_hardware(gpu="RTX 3060", ram_gib=32))
        models.start()
        page = open_page(serve(engine(), models=models))
        page.wait_for_selector(".model-current:has-text('SmolLM2 135M Instruct')")
        row = ".model:has-text('Qwen2.5 3B Instruct')"
        page.click(".models summary:has-text('more')")
        assert "Qwen Research License" in page.inner_text(row)
        page.click(f"{row} [data-act=fetch-model]")
        page.wait_for_selector(".fetching:has-text('Downloading')")
        page.click(".fetching [data-act=pause-model]")
        page.wait_for_selector(".fetching:has-text('Paused')")
        hub.pace_s = 0.0
        page.click(".fetching [data-act=fetch-model]")
        page.wait_for_selector(".model-current:has-text('Qwen2.5 3B Instruct')")
        page.wait_for_selector(".fetching", state="detached")
        assert "Qwen2.5 3B Instruct" in page.inner_text(".engine")


def test_the_server_is_locked_to_this_browser(serve, open_page, browser):
    url = serve(engine())
    base = f"http://127.0.0.1:{serve.address.port}"
    stranger = browser.new_context()
    assert stranger.request.get(base).status == 401
    assert stranger.request.get(base + "/config").status == 401
    page = open_page(url)
    let_in = admission(page)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = page.request.post(
            base + "/gradio_api/upload",
            headers={**headers, **let_in},
            multipart={"files": {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}},
        )
        assert answer.status == 403
    assert page.request.get(base + "/config", headers={"Host": "evil.example", **let_in}).status == 421
    for name in ("a" * 64, "..%2f..%2fconversations.db"):
        assert page.request.get(f"{base}/covers/{name}", headers=let_in).status == 404
    assert stranger.request.get(f"{base}/covers/{'a' * 64}").status == 401
    for closed in ("/docs", "/redoc", "/openapi.json", "/gradio_api/mcp/", "/monitoring", "/gradio_api/runs"):
        assert page.request.get(base + closed, headers=let_in).status in (401, 403, 404, 405), closed
    named = page.request.get(base + "/gradio_api/info", headers=let_in).json()
    assert named["named_endpoints"] == {} and named["unnamed_endpoints"] == {}, (
        "no event may be called from outside the page"
    )
    stranger.close()


def test_an_answer_that_is_there_at_once_comes_into_sight(serve, open_page, drop, sample):
    """A summary in the book's own sentences is never seen being written: it is read from its beginning."""
    fake = engine(pace=1e-5, prefill_steps=1, summary=LONG)
    fake.context_tokens = 100_000  # so that nobody is asked what to leave out
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    for count in (1, 2):
        page.click("#summarize")
        page.wait_for_function(
            "(n) => document.querySelectorAll('#turns .answer footer').length === n", arg=count
        )
        page.wait_for_function(
            "() => { const top = (one) => one.getBoundingClientRect().top;"
            " const answer = [...document.querySelectorAll('#turns .answer .text')].at(-1);"
            " const below = top(answer) - top(document.getElementById('scroller'));"
            " return below > 90 && below < 160; }"
        )
