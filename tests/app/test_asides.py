"""Short answers beside the book's text: what the model is given and may say ends where the person is."""

from __future__ import annotations

import pytest

from core.documents.document import Document
from core.errors import UserError
from core.model.store.catalogue import title_of
from tests.support.fake_runtime import wait_until
from tests.support.said import text_in
from tests.support.stories import in_chapters, on_shelf, region, stand

PORTRAY = 'data-act="portray"'

FIRST = (
    "Mr. Ansell came to Saltby in March. “Good day,” said Mr. Ansell, who was an engineer of the harbour.\n\n"
    "Hannah Rudd laughed. “It is late,” said Hannah, and lit the larboard lamp of the old ferry.\n\n"
)
SECOND = "“I am Zyxomma,” said Zyxomma Quint. Mr. Ansell was the thief who took the silver key.\n\n"
TRUE = "Mr. Ansell was an engineer of the harbour."
LATER = "He is the thief who took the silver key from Zyxomma Quint."


@pytest.fixture
def story() -> Document:
    return in_chapters((FIRST, SECOND))


@pytest.fixture
def desk(make_desk, engine, story):
    engine.model_name = "a model that follows wishes"
    return on_shelf(make_desk(engine), story)


def act(desk, name: str, **sent: str) -> None:
    desk.actions.dispatch({"act": name, **sent})
    wait_until(lambda: not desk.asides.running)


def choose(desk, story) -> None:
    stand(desk, story, "Hannah Rudd")
    act(desk, "names")
    act(desk, "name", id="Mr. Ansell")


def explain(desk, story, words: str, kind: str) -> None:
    paragraph = story.text.rindex("\n\n", 0, story.text.index(words)) + 2
    act(desk, "explain", id=kind, offset=str(paragraph), text=words)


def test_who_somebody_is_so_far_is_asked_from_what_was_read_and_kept_with_its_place(
    desk, story, make_desk, engine
):
    engine.answer = f"{TRUE} {LATER}"
    choose(desk, story)
    assert PORTRAY in region(desk, "names")
    act(desk, "portray", id="Mr. Ansell")
    (asked,) = engine.asked
    assert asked.low_priority and asked.book is None
    wait_until(lambda: asked.conversation_id in engine.forgotten)  # once the answer is shown
    assert "engineer" in asked.question and "Zyxomma" not in asked.question and "thief" not in asked.question
    html = region(desk, "names")
    assert TRUE in html and "thief" not in html and PORTRAY not in html
    (told,) = desk.library.portraits(story.sha256)
    assert title_of(told["model"]) in text_in(html, 'class="portrait"')
    assert told["end"] == desk.state.names.end and told["name"] == "Mr. Ansell"
    ((_text, start, end),) = told["sentences"]
    assert "engineer" in story.text[start:end]
    again = make_desk(engine)
    again.resume()
    act(again, "names")
    act(again, "name", id="Mr. Ansell")
    assert TRUE in region(again, "names") and len(engine.asked) == 1


def test_what_was_told_further_on_is_not_shown_before(desk, story, engine):
    """Kept by position: what is known at the end must not be read at the beginning."""
    act(desk, "names-up-to", value="all")
    act(desk, "name", id="Mr. Ansell")
    engine.answer = "Mr. Ansell was the thief who took the silver key."
    act(desk, "portray", id="Mr. Ansell")
    assert "thief" in region(desk, "names")
    act(desk, "limit", value="1")
    assert "thief" not in region(desk, "names") and PORTRAY in region(desk, "names")
    act(desk, "limit", value="2")
    assert "thief" in region(desk, "names")


def test_what_the_book_does_not_bear_out_is_neither_shown_nor_kept(desk, story, engine):
    engine.answer = "He is the brother of Captain Nemo and sails a submarine under the ice of Norway."
    choose(desk, story)
    act(desk, "portray", id="Mr. Ansell")
    html = region(desk, "names")
    assert "Nemo" not in html and text_in(html, 'class="aside-answer"')
    assert desk.state.aside.state == "finished" and desk.state.aside.sentences == ()
    assert desk.library.portraits(story.sha256) == []


@pytest.mark.parametrize("kind", ["meaning", "speaker", "translation"])
def test_selected_words_are_explained_from_the_text_up_to_their_paragraph(desk, story, engine, kind):
    engine.answer = "It is the lamp on the left of the ferry."
    explain(desk, story, "the larboard lamp", kind)
    question = engine.asked[-1].question
    assert "the larboard lamp" in question and "Zyxomma" not in question
    assert ("[[the larboard lamp]] of the old ferry" in question) == (kind != "translation")
    html = region(desk, "aside")
    assert "It is the lamp on the left of the ferry." in html and "the larboard lamp" in html
    assert desk.state.aside.kind == kind and f'data-offset="{story.text.index("the larboard")}"' in html
    act(desk, "dismiss-aside")
    assert region(desk, "aside") == ""
    wait_until(lambda: engine.asked[-1].conversation_id in engine.forgotten)


def test_an_explanation_names_nobody_whom_the_book_has_not_named_so_far(desk, story, engine):
    engine.answer = "It is a lamp. Zyxomma Quint will steal it. It hangs on the left."
    explain(desk, story, "the larboard lamp", "meaning")
    html = region(desk, "aside")
    assert "It is a lamp." in html and "It hangs on the left." in html and "Zyxomma" not in html


def test_a_translation_goes_into_the_language_of_the_page(desk, story, engine):
    from core.text.words import in_language

    with in_language("de"):
        explain(desk, story, "the larboard lamp", "translation")
    assert "into German" in engine.asked[-1].question


def test_a_model_that_only_reads_passages_is_not_asked_and_says_so(desk, story, engine):
    engine.model_name = "SmolLM2-135M-Instruct"
    choose(desk, story)
    assert PORTRAY not in region(desk, "names")
    for call in (
        lambda: act(desk, "portray", id="Mr. Ansell"),
        lambda: explain(desk, story, "Hannah", "meaning"),
    ):
        with pytest.raises(UserError, match="larger one"):
            call()
    assert engine.asked == []


def test_words_that_are_too_many_or_in_no_place_are_not_sent(desk, story, engine):
    act(desk, "explain", id="meaning", offset="0", text="words that stand nowhere in it")
    act(desk, "explain", id="nonsense", offset="0", text="Chapter 1")
    act(desk, "portray", id="Nobody")
    assert engine.asked == [] and desk.state.aside is None


def test_behind_a_new_limit_nothing_stays_beside_the_text(desk, story, engine):
    explain(desk, story, "the silver key", "meaning")
    assert desk.state.aside is not None
    act(desk, "limit", value="1")
    assert desk.state.aside is None and "silver" not in region(desk, "aside")


def test_an_answer_that_fails_says_why_and_one_that_is_stopped_ends(desk, story, engine):
    engine.fail = "Its wick is too short."
    explain(desk, story, "the larboard lamp", "meaning")
    assert "Its wick is too short." in region(desk, "aside")
    engine.fail, engine.pace = "", 0.2
    start = str(story.text.index("Hannah Rudd"))
    desk.actions.dispatch({"act": "explain", "id": "meaning", "offset": start, "text": "Hannah Rudd"})
    assert desk.asides.running
    act(desk, "dismiss-aside")
    wait_until(lambda: engine.state == "ready")
    assert desk.state.aside is None


def test_a_damaged_file_of_portraits_costs_what_was_told_and_no_more(desk, story):
    path = next(desk.library._root.glob("c*")) / "portraits.json"
    for damaged in (
        "{",
        '{"told": [1, {"name": 3}]}',
        '{"told": [{"name": "a", "end": 1, "model": "m", "sentences": [[1]]}]}',
    ):
        path.write_text(damaged, encoding="utf-8")
        assert desk.library.portraits(story.sha256) == []
