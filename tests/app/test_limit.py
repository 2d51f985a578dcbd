"""A limit, "up to chapter N", on the desk and on the page; and the two ways to an answer."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace

import pytest

from app.render.origin import WITHHELD, incomplete
from app.store.history import History
from app.web.page import Page
from app.web.regions import stage_html, suggestions_html
from core.documents.document import Document, Section
from core.errors import UserError
from tests.support.desks import card as known
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.said import figures, text_in
from tests.support.stories import in_chapters, on_shelf, region

MARKER = "Zyxomma"
EARLY = "The ferryman Oddo hid the silver key under the third plank of the jetty at dusk. " * 3
LATE = f"The ferryman Oddo gave {MARKER} the silver key of the jetty, and she rowed away for ever. " * 3


@pytest.fixture
def story() -> Document:
    return in_chapters((f"{body}\n\n" for body in (EARLY, EARLY, LATE, LATE)), author="")


@pytest.fixture
def desk(make_desk, engine, story):
    return on_shelf(make_desk(engine), story)


def act(desk, **sent: str) -> None:
    desk.actions.dispatch(sent)


def said(desk, question: str, answer: str) -> None:
    desk.engine.answer = answer
    desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)


def around(page: Page) -> str:
    """All of the page, the book itself too."""
    return "".join("".join(map(str, html)) for html in page.render().values())


def test_the_limit_goes_with_every_question_and_is_kept_with_its_conversation(desk, story):
    act(desk, act="limit", value="2")
    said(desk, "Who?", "Oddo.")
    assert desk.engine.asked[-1].spoiler_limit == 2 and desk.engine.asked[-1].book == story
    first = desk.state.conversation_id
    desk.books.begin_conversation()
    assert desk.state.spoiler_limit == 2, (
        "whoever has read so far has read no further in another conversation"
    )
    act(desk, act="limit", value="0")
    said(desk, "And then?", "She rowed.")
    assert desk.engine.asked[-1].spoiler_limit is None
    desk.books.open_conversation(first)
    assert desk.state.spoiler_limit == 2
    desk.books.select(story.sha256)
    assert desk.state.spoiler_limit is None, "the newest conversation is open again"


def test_a_limit_that_is_set_before_the_first_question_is_there_when_the_book_opens_again(
    desk, make_desk, engine, story
):
    """Whoever read along and asked nothing yet found the whole book open after a restart, with its end."""
    act(desk, act="limit", value="2")
    again = make_desk(engine)
    again.resume()
    assert again.state.book_id == story.sha256 and again.state.spoiler_limit == 2
    assert MARKER not in around(Page(again))
    again.books.put_away()
    again.search.look_for(MARKER)
    wait_until(lambda: not again.state.text_search.running)
    found = again.search.results(MARKER, again.state.text_search)
    assert found.texts == () and found.withheld, "nor is it found from elsewhere"
    again.books.select(story.sha256)
    act(again, act="limit", value="0")
    again.books.select(story.sha256)
    assert again.state.spoiler_limit is None, "lifted is lifted"


def test_neither_the_search_nor_the_list_of_chapters_tells_of_what_lies_behind(make_desk, engine):
    """The search said that a word does not stand in the book; the contents named every later chapter."""
    listed = (
        "Contents\n\nChapter 1 . . 1\nChapter 2 . . 5\nChapter 3 Zyxomma comes . . 9\nChapter 4 . . 12\n\n"
    )
    desk = on_shelf(make_desk(engine), in_chapters([EARLY, EARLY, LATE, LATE], front=listed))
    act(desk, act="limit", value="2")
    act(desk, act="find", text="Zyxomma")
    found = region(desk, "found")
    assert "0 places" in found and "limit" in text_in(found, 'class="quiet"')
    act(desk, act="find", text=" ")
    act(desk, act="cite", offset="0", length="0")
    assert "Chapter 2 . . 5" in region(desk, "reader") and MARKER not in around(Page(desk))
    desk.search.look_for("Zyxomma")
    wait_until(lambda: not desk.state.text_search.running)
    assert desk.search.results("Zyxomma", desk.state.text_search).texts == ()
    act(desk, act="limit", value="0")
    assert MARKER in region(desk, "reader")


def test_chapters_of_the_same_name_stand_under_their_parts_in_the_menus(make_desk, engine):
    """Two of a novel's three books have a "Chapter 1": a limit was chosen by guessing."""
    story = in_chapters([EARLY] * 4)
    first, second, third, fourth = story.sections
    sections = (
        replace(first, end=first.end - 9),
        Section("Book the Second", first.end - 9, first.end, kind="part"),
        replace(second, title="Chapter 1"),
        Section("Book the Third", third.start, third.start + 5, kind="part"),
        replace(third, title="Chapter 1", start=third.start + 5),
        fourth,
    )
    desk = on_shelf(make_desk(engine), replace(story, sections=sections))
    for menu in (region(desk, "ways"), region(desk, "choices")):
        assert re.findall(r'<optgroup label="(.*?)">|value="([1-4])"', menu)[:6] == [
            ("", "1"),
            ("Book the Second", ""),
            ("", "2"),
            ("Book the Third", ""),
            ("", "3"),
            ("", "4"),
        ]


@pytest.mark.parametrize("value", ["x", "-1", "", "99999999999999"])
def test_what_is_no_chapter_sets_no_limit(desk, value: str):
    act(desk, act="limit", value=value)
    assert desk.state.spoiler_limit is None
    act(desk, act="limit", value="9")
    assert desk.state.spoiler_limit == 4


def test_what_was_answered_from_behind_the_limit_is_not_told_to_the_model(desk):
    said(desk, "How does it end?", f"{MARKER} rows away.")
    act(desk, act="limit", value="2")
    said(desk, "Who has the key?", "Oddo.")
    assert desk.engine.asked[-1].history == ()
    said(desk, "And where?", "Under the plank.")
    assert [one.answer for one in desk.engine.asked[-1].history] == ["Oddo."]
    act(desk, act="limit", value="1")
    said(desk, "Who?", "Oddo.")
    assert desk.engine.asked[-1].history == ()


def test_what_was_told_in_short_from_behind_the_limit_is_not_told_to_the_model(desk):
    """It stood in place of older questions, and no limit was looked at."""
    said(desk, "How does it end?", f"{MARKER} rows away.")
    said(desk, "And then?", "Nobody knows.")
    told = f"It was told that {MARKER} rows away."
    desk.history.note(desk.state.conversation_id, 3, since=3, told=told)
    said(desk, "Who?", "Oddo.")
    assert MARKER in desk.engine.asked[-1].history[0].answer, "else this test shows nothing"
    act(desk, act="limit", value="2")
    said(desk, "Who has the key?", "Oddo.")
    assert desk.engine.asked[-1].history == ()


def test_nothing_behind_the_limit_is_shown_beside_an_answer(desk):
    """Marks, their places, the evidence and excerpts: the nearest passage of all lies behind the limit."""
    act(desk, act="limit", value="2")
    said(desk, "Who gave the key?", "The ferryman Oddo gave the silver key of the jetty away for ever.")
    said(desk, "And the plank?", "Oddo the ferryman hid the silver key under the third plank of the jetty.")
    page = Page(desk)
    limited = around(page)
    assert MARKER not in limited and MARKER.lower() not in limited
    assert "Evidence: " in limited and "third plank" in limited
    of_all, so_far = (set(re.findall('data-text="(.*?)"', suggestions_html(None, one))) for one in (None, 2))
    assert "end?" in " ".join(of_all) and "end?" not in " ".join(so_far)
    assert so_far - of_all and all(question in limited for question in so_far)
    assert of_all - so_far and not any(question in limited for question in of_all - so_far)
    act(desk, act="limit", value="0")
    assert MARKER not in "".join(page.render()["turns"]), "what was answered then is shown as it was then"
    said(desk, "Who gave the key?", "The ferryman Oddo gave the silver key of the jetty away for ever.")
    assert MARKER in "".join(page.render()["turns"]), "else this test shows nothing"


def test_an_answer_made_anew_under_a_limit_is_looked_up_under_it(desk):
    said(desk, "Who gave the key?", "The ferryman Oddo gave the silver key of the jetty away for ever.")
    act(desk, act="limit", value="2")
    desk.questions.regenerate()
    wait_until(lambda: not desk.state.busy)
    assert desk.engine.asked[-1].spoiler_limit == 2
    assert MARKER not in "".join(Page(desk).render()["turns"])


def test_the_limit_is_chosen_and_told_above_the_conversation(desk):
    page = Page(desk)
    (ways,) = page.render()["ways"]
    assert figures(text_in(ways, 'value="3"')) == ["3"] and "<p>" not in ways
    act(desk, act="limit", value="3")
    (ways,) = page.render()["ways"]
    assert figures(ways.split("<p>")[1]) == ["3"]
    assert '<option value="3" selected>' in ways


def test_the_card_is_of_what_may_be_read(desk):
    wait_until(lambda: known(desk))
    whole = known(desk)["tokens"]
    act(desk, act="limit", value="2")
    wait_until(lambda: known(desk))
    assert known(desk)["tokens"] < whole
    assert "<b>2</b> chapters" in "".join(Page(desk).render()["stage"])


def test_conversations_of_an_earlier_version_have_no_limit(tmp_path):
    path = tmp_path / "chats.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE conversations (id TEXT PRIMARY KEY, book_id TEXT NOT NULL, title TEXT NOT NULL, "
            "created REAL NOT NULL, updated REAL NOT NULL)"
        )
        db.execute("INSERT INTO conversations VALUES ('old', 'book', 'Who?', 1.0, 2.0)")
    history = History(path)
    history.add("old", "user", "Who?")
    assert history.conversations("book")[0].spoiler_limit is None
    history.limit("old", 4)
    history.close()
    again = History(path)
    assert again.conversations("book")[0].spoiler_limit == 4
    again.close()


# ---- two ways --------------------------------------------------------------------------------------------


def card(book: Document, **changes) -> dict:
    slow = {"prefill_s_estimate": 18_000.0, "read_s_estimate": 18_000.0, "from_passages": True}
    return {**FakeRuntime().card(book), **slow, **changes}


def ways(html: str) -> list[str]:
    return [part.split("</button>")[0] for part in html.split('data-act="reading-mode"')[1:]]


def test_the_card_says_both_ways_with_their_times(story):
    html = stage_html(story, card(story), covered=False, opening=None, talking=False)
    passages, read = ways(html)
    assert 'data-value="retrieval"' in passages and "now" in passages and "6.0" in passages
    assert 'data-value="full"' in read and "5.0\u00a0h" in read and "paused" in read
    assert 'aria-pressed="true"' in passages and 'aria-pressed="false"' in read
    html = stage_html(story, card(story), covered=False, opening=None, talking=False, reading_mode="full")
    passages, read = ways(html)
    assert 'aria-pressed="false"' in passages and 'aria-pressed="true"' in read
    parts = card(story, fits=False, parts=["One", "Two"])
    passages, read = ways(stage_html(story, parts, covered=False, opening=None, talking=False))
    assert 'data-value="chunked"' in read and "part," in read and "paused" in read


def test_the_faster_way_is_offered_first(story):
    """ "From passages, 74 s" stood before "read it all, 3.6 s"."""
    short = card(story, prefill_s_estimate=3.6, passages_s_estimate=74.0, from_passages=True)
    read, passages = ways(stage_html(story, short, covered=False, opening=None, talking=False))
    assert 'data-value="full"' in read and "3.6" in read
    assert (
        'data-value="retrieval"' in passages and "now" not in passages and 'aria-pressed="true"' in passages
    )


def test_the_time_to_read_all_is_said_once(story):
    """ "About 5.0 s to read" stood beside "Read it all: about 0.0 s"."""
    short = card(story, prefill_s_estimate=0.004, read_s_estimate=0.004, passages_s_estimate=5.0)
    shown = stage_html(story, {**short, "from_passages": True}, covered=False, opening=None, talking=False)
    assert re.findall(r"([\d.]+)\xa0s", shown) == ["0.1", "5.0"]


def test_a_text_that_is_read_in_no_time_offers_no_choice(story):
    quick = card(story, prefill_s_estimate=3.0, from_passages=False)
    assert ways(stage_html(story, quick, covered=False, opening=None, talking=False)) == []
    assert ways(stage_html(story, None, covered=False, opening=None, talking=False)) == []


def test_the_choice_goes_with_the_next_question(desk):
    act(desk, act="reading-mode", value="retrieval")
    with pytest.raises(UserError):
        act(desk, act="reading-mode", value="nonsense")
    act(desk, act="suggest", text="Who?")
    wait_until(lambda: not desk.state.busy)
    assert desk.requests.make().reading_mode == "retrieval"


def test_chapters_end_at_the_limit(desk):
    """Whoever had chosen "to the end" before means the end that there is now."""
    act(desk, act="limit", value="2")
    for chosen, meant in (((2, 3), (2, 2)), ((1, 0), (1, 2))):
        desk.books.choose_chapters(*chosen)
        assert desk.requests.make().chapters == meant


FOLDED = "Told with more of the book than the spoiler limit allows"


def answer_html(desk, at: int = 1) -> str:
    """The answer as the page shows it: its text stands behind the fold where there is one."""
    return str(Page(desk).render()["turns"][at])


def test_an_answer_that_knew_more_than_the_limit_allows_is_folded_until_it_is_lifted(desk):
    """It stayed to be read, with its places, by somebody who wants to know nothing of the end."""
    said(desk, "Who has the key?", f"{MARKER} has it.")
    assert FOLDED not in answer_html(desk)
    act(desk, act="limit", value="2")
    folded = answer_html(desk)
    head, _, fold = folded.partition('<details class="behind">')
    fold, _, tail = fold.partition("</details><footer>")
    assert MARKER not in head + tail and MARKER in fold and FOLDED in fold
    assert "regenerate" in tail and "data-copy" in fold and "data-copy" not in tail
    said(desk, "Who hid it?", "Oddo.")
    assert FOLDED not in answer_html(desk, 3)
    act(desk, act="limit", value="0")
    assert FOLDED not in answer_html(desk) and MARKER in answer_html(desk)


def test_a_version_that_knew_more_than_the_limit_allows_is_folded_too(desk):
    said(desk, "Who has the key?", f"{MARKER} has it.")
    act(desk, act="limit", value="2")
    desk.engine.answer = "Oddo has it."
    act(desk, act="regenerate")
    wait_until(lambda: not desk.state.busy)
    shown = answer_html(desk)
    assert shown.count(FOLDED) == 1 and MARKER not in shown.partition(FOLDED)[0]
    act(desk, act="limit", value="0")
    assert FOLDED not in answer_html(desk)


def test_what_was_told_of_chapters_before_the_limit_is_not_folded(desk):
    """A summary of the first chapter tells nothing of the third."""
    act(desk, act="to", value="1")
    act(desk, act="summarize")
    wait_until(lambda: not desk.state.busy)
    asked = desk.books.turns[0].extra
    assert asked["chapters"] and asked["spoiler_limit"] is None
    act(desk, act="limit", value="2")
    assert FOLDED not in answer_html(desk)


@pytest.mark.parametrize("form", ("md", "html"))
def test_what_is_folded_is_left_out_of_exported_pages_which_say_so(desk, form):
    said(desk, "Who has the key?", f"{MARKER} has it.")
    said(desk, "Who hid it?", f"Oddo, who gave it to {MARKER}.")
    act(desk, act="limit", value="2")
    said(desk, "And where?", "Under the third plank of the jetty.")
    page = desk.exports.conversation(form).content
    left_out = incomplete(replace(desk.books.turns[1], state=WITHHELD))
    assert MARKER not in page and "third plank" in page and page.count(left_out) == 2
    act(desk, act="limit", value="0")
    assert MARKER in desk.exports.conversation(form).content


def test_what_is_folded_makes_no_card_and_goes_whole_to_another_computer(desk):
    said(desk, "Who has the key?", f"{MARKER} has it.")
    act(desk, act="limit", value="2")
    with pytest.raises(UserError):
        desk.exports.conversation("tsv")
    assert MARKER in desk.exports.conversation("json").content
