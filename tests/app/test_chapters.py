"""Chapters are ticked, told each from its own text, kept, shown and exported; never behind the limit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.web.page import Page
from core.documents.document import Document, Section
from tests.support.desks import card
from tests.support.fake_runtime import wait_until
from tests.support.said import figures

MARKER = "Zyxomma"


@pytest.fixture
def story() -> Document:
    text, sections = "", []
    for number in range(1, 6):
        start = len(text)
        text += f"{MARKER}{number} rows over the harbour at dusk. " * 3 + "\n\n"
        sections.append(Section(f"Chapter {number}", start, len(text)))
    return Document("Ferry", "A. Writer", "txt", text, tuple(sections), sha256="c" * 64)


@pytest.fixture
def desk(make_desk, engine, story):
    made = make_desk(engine)
    made.shelf.put(story, again=False, cover=b"")
    wait_until(lambda: card(made))
    return made


def act(desk, **sent: str) -> None:
    desk.actions.dispatch(sent)
    wait_until(lambda: not desk.state.busy)


def region(desk, name: str) -> str:
    return "".join(Page(desk).render()[name])


def told(desk) -> list[int]:
    return sorted(desk.chapters.summaries(desk.books.current.up_to(desk.state.spoiler_limit)))


def test_the_tree_says_words_tokens_and_what_was_read(desk):
    html = region(desk, "tree")
    assert html.count("<li") == 5 and "21 words" in html and "27 tokens" in html
    assert html.count("<i>read</i>") == 1 and "summarised" not in html


def test_ticked_chapters_alone_are_read_for_summaries_and_questions(desk):
    for number in ("2", "5", "4", "4", "9", "x"):
        act(desk, act="tick", id=number)
    assert desk.state.selected_chapters == (2, 5), "what is no number ticks nothing"
    act(desk, act="untick")
    assert desk.state.selected_chapters == ()
    for number in ("5", "2"):
        act(desk, act="tick", id=number)
    assert desk.requests.make().selected_chapters == (2, 5) and desk.requests.make().chapters is None
    desk.questions.ask("Who rows?")
    wait_until(lambda: not desk.state.busy)
    assert desk.engine.asked[-1].selected_chapters == (2, 5)
    act(desk, act="summarize-selected")
    assert desk.engine.asked[-1].selected_chapters == (2, 5) and told(desk) == [2, 5]
    assert figures(desk.books.turns[-2].text) == ["2", "5"]
    act(desk, act="regenerate")
    assert desk.engine.asked[-1].selected_chapters == (2, 5)
    desk.books.select(desk.state.book_id)
    assert desk.state.selected_chapters == ()


def test_one_several_or_all_up_to_here_are_told_and_kept(desk, make_desk, engine, story):
    act(desk, act="tell", value="3")
    assert desk.engine.asked[-1].chapters == (3, 3) and desk.engine.asked[-1].summary_length == "chapters"
    act(desk, act="tell-up-to", value="2")
    assert desk.engine.asked[-1].chapters == (1, 2) and told(desk) == [1, 2, 3]
    again = make_desk(engine)
    again.books.select(story.sha256)
    again.reader.show(story.sections[2].start)
    assert f"Told of Chapter 3: {MARKER}3" in region(again, "told")
    assert region(again, "tree").count("summarised") == 3
    again.reader.show(story.sections[4].start)
    assert 'data-act="tell" data-value="5"' in region(again, "told")


def test_nothing_told_of_what_lies_behind_the_limit_is_shown_or_exported(desk):
    act(desk, act="tell-up-to", value="5")
    act(desk, act="limit", value="2")
    shown = "".join("".join(map(str, html)) for name, html in Page(desk).render().items() if name != "turns")
    exported = "".join(desk.exports.summaries(form)[1] for form in ("md", "html", "json"))
    for html in (shown, exported):
        assert f"{MARKER}1" in html and f"{MARKER}3" not in html
    assert told(desk) == [1, 2]
    act(desk, act="tell-up-to", value="4")
    assert desk.engine.asked[-1].chapters == (1, 2) and desk.engine.asked[-1].spoiler_limit == 2
    asked = len(desk.engine.asked)
    act(desk, act="tell", value="4")
    assert len(desk.engine.asked) == asked


def test_a_fork_and_an_answer_again_keep_to_the_limit_too(desk):
    act(desk, act="tell-up-to", value="5")
    act(desk, act="limit", value="2")
    act(desk, act="fork", value="2")
    assert desk.state.spoiler_limit == 2 and told(desk) == [1, 2]
    act(desk, act="limit", value="3")
    desk.questions.ask("Who rows?")
    wait_until(lambda: not desk.state.busy)
    act(desk, act="regenerate")
    last = desk.engine.asked[-1]
    assert last.spoiler_limit == 3 and all(f"{MARKER}4" not in one.answer for one in last.history)


def test_a_summary_stays_with_its_text_when_the_book_is_read_anew(desk, story):
    act(desk, act="tell-up-to", value="2")
    first = "Another beginning, of another length.\n\n"
    shift = len(first) - story.sections[0].end
    moved = [replace(one, start=one.start + shift, end=one.end + shift) for one in story.sections[1:]]
    sections = (Section("Chapter 1", 0, len(first)), *moved)
    anew = replace(story, text=first + story.text[story.sections[0].end :], sections=sections)
    assert list(desk.chapters.summaries(anew)) == [2]


def test_all_summaries_go_out_in_three_forms(desk):
    act(desk, act="tell-up-to", value="2")
    name, text = desk.exports.summaries("md")
    assert name == "Ferry, summaries.md"
    assert "\n---\n\n# Ferry\n\n## Chapter 1\n\nTold of Chapter 1" in text and "## Chapter 2" in text
    parsed = json.loads(desk.exports.summaries("json")[1])
    assert parsed["book"]["author"] == "A. Writer"
    assert [one["title"] for one in parsed["chapters"]] == ["Chapter 1", "Chapter 2"]
    html = desk.exports.summaries("html")[1]
    assert ">Chapter 1</h2>" in html and "<script" not in html


def test_an_answer_that_was_stopped_or_is_no_summary_keeps_nothing(desk):
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    act(desk, act="summarize")
    assert told(desk) == []


def test_kept_summaries_that_are_damaged_are_told_again(desk, tmp_path):
    act(desk, act="tell", value="1")
    (tmp_path / "books" / desk.state.book_id / "summaries.json").write_text("[1, ")
    assert told(desk) == []
    act(desk, act="tell", value="2")
    assert told(desk) == [2]
