"""A conversation goes out and comes in again; a file made to do harm brings nothing but text."""

from __future__ import annotations

import json
import re

import pytest
from lxml import html
from markdown_it import MarkdownIt

from app.desk.exports import ConversationImport
from app.desk.import_queue import uploaded
from app.render import conversation_json
from app.render.markdown import Citation
from app.store.turns import displayed_text, fork_title
from app.web.answers import cited_answer
from app.web.citations import Citations, CitedAnswer
from core.errors import UserError
from core.request import MOST_INSTRUCTIONS
from core.text.words import Message, in_language, joined_sentences, localized, size
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.said import figures, values, worded_by

DROP = object()


@pytest.fixture
def talk(desk):
    """A desk with a conversation of two exchanges."""
    for question in ("Who?", "Is it <b>dark</b>?"):
        desk.questions.ask(question)
        wait_until(lambda: not desk.state.busy)
    return desk


def upload(desk, tmp_path, content: str | bytes) -> str:
    path = tmp_path / "uploads" / "x" / "talk.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def bring(desk, tmp_path, text: str | bytes) -> None:
    desk.actions.dispatch({"act": "bring-in", "path": upload(desk, tmp_path, text), "name": "talk.json"})


def refused(desk) -> str:
    """What is said of the one file that was not brought in: which, and why."""
    (said,) = desk.state.failures
    assert len(said.split("talk.json")) == 2
    return said


def test_what_goes_out_comes_in_again_beside_the_first(talk, tmp_path):
    name, text = talk.exports.conversation("json")
    assert name == "The Lamp.json"
    first, book_id = talk.state.conversation_id, talk.state.book_id
    talk.books.begin_conversation()
    bring(talk, tmp_path, text)
    assert talk.state.conversation_id == first and len(talk.history.conversations(book_id)) == 1
    talk.history.add(first, "user", "Why?", state="finished", extra={})
    bring(talk, tmp_path, text)
    assert talk.state.conversation_id != first and len(talk.history.conversations(talk.state.book_id)) == 2
    told = [(turn.role, turn.text, turn.state) for turn in talk.books.turns]
    assert told == [(turn.role, turn.text, turn.state) for turn in talk.history.turns(first)[:-1]]
    assert talk.books.turns[1].extra["sources"] == ["Whole book"] and "ids" not in talk.books.turns[1].extra
    assert list((tmp_path / "uploads").rglob("*.json")) == []
    talk.questions.ask("And then?")
    wait_until(lambda: not talk.state.busy)
    said = talk.engine.asked[-1].history
    assert [one.question for one in said] == ["Who?", "Is it <b>dark</b>?"] and said[0].ids == ()


def test_a_conversation_that_is_there_is_known_from_a_file_in_another_language(talk, tmp_path):
    """Beside the answers the file spoke German, what is stored English: a copy was made, once."""
    answer, said = talk.books.turns[-1], Message("Summarise this book")
    args = (talk.state.conversation_id, answer.number, answer.text)
    talk.history.update(*args, state="finished", extra={**answer.extra, "sources": [said]})
    with in_language("de"):
        text = talk.exports.conversation("json")[1]
        assert json.loads(text)["turns"][3]["extra"]["sources"] == [localized(said)] != [said]
    first = talk.state.conversation_id
    bring(talk, tmp_path, text)
    assert talk.state.conversation_id == first
    assert len(talk.history.conversations(talk.state.book_id)) == 1


NOTES = (
    Message("{title} was read.", {"title": "Emma"}),
    Message("{count} question", many="{count} questions", count=2, values={"count": 2}),
    joined_sentences(Message("Summarise this book"), "Whose?"),
)


def with_said(desk, text: str, **extra) -> None:
    """The last answer, failed, in these words and with these lines beside it."""
    turn = desk.books.turns[-1]
    args = (desk.state.conversation_id, turn.number, text)
    desk.history.update(*args, state="failed", extra={**turn.extra, **extra})


def test_what_is_told_beside_an_answer_is_brought_in_in_any_language(talk, tmp_path):
    """Written in English and brought in where the page is German, half of it stayed English."""
    refusal = Message("Summarise this book")
    pieces = [["It says: ", "draft"], ["", ""], [refusal, ""]]
    lines = {"sources": [NOTES[2], "Whole book"], "notes": [*NOTES], "error": refusal}
    with_said(talk, f"It says: {refusal}", level_pieces=pieces, **lines)
    talk.history.rename(talk.state.conversation_id, fork_title("Who?"))
    text = talk.exports.conversation("json")[1]
    talk.trash.throw_conversation(talk.state.conversation_id)
    bring(talk, tmp_path, text)
    told, name = talk.books.turns[-1], talk.history.title(talk.state.conversation_id)
    with in_language("de"):
        here, german = localized(refusal), [localized(one) for one in NOTES]
        assert here != refusal and displayed_text(told) == f"It says: {here}"
        assert [localized(one) for one in told.extra["notes"]] == german
        assert [localized(one) for one in told.extra["sources"]] == [german[2], "Whole book"]
        assert localized(told.extra["error"]) == here and localized(name) == localized(fork_title("Who?"))
    assert "draft" not in str(told.extra) and told.text == f"It says: {refusal}"


def nested(depth: int) -> dict:
    """A message of 2 ** depth characters."""
    given: dict = {"said": 1, "template": "aa"}
    for _level in range(depth):
        given = {"said": 1, "template": "{a}{a}", "values": {"a": given}}
    return given


@pytest.mark.parametrize(
    "given",
    [
        nested(40),
        {"said": 1, "template": "{a}" * 900, "values": {"a": {"x": "y" * 90_000}}},
        {"said": 1, "template": "{a.__class__}", "values": {"a": 1}},
        {"said": 1, "template": "{a:{a}}", "values": {"a": 99_999_999}},
        {"said": 1, "template": "{a:>999999999}", "values": {"a": 1}},
        {"said": 1, "template": "x" * 2001},
        {"said": 1, "template": "\ud800"},
        {"said": 1, "template": "{count:,}", "values": {"count": 10**300}},
        {"said": 1, "template": "One", "many": "{count}", "count": float("inf"), "values": {}},
        {"said": 1, "template": 5},
        {"said": 2, "template": "Another"},
        {"said": 1, "template": ""},
        [],
        "Another",
    ],
)
def test_a_message_that_does_harm_is_the_plain_text_beside_it(talk, tmp_path, given):
    with_said(talk, ANSWER, notes=[NOTES[0]])
    text = talk.exports.conversation("json")[1]
    talk.trash.throw_conversation(talk.state.conversation_id)
    bring(talk, tmp_path, altered(text, {"turns/3/said": {"notes": [given], "pieces": [given]}}))
    (note,) = talk.books.turns[-1].extra["notes"]
    assert type(note) is str and note == NOTES[0] and "level_pieces" not in talk.books.turns[-1].extra


@pytest.mark.parametrize("pieces", [["Another answer."], [5], {"a": 1}, ["x"] * 500, [None]])
def test_pieces_that_are_not_the_text_are_not_taken(talk, tmp_path, pieces):
    text = altered(talk.exports.conversation("json")[1], {"turns/3/said": {"pieces": pieces}})
    talk.trash.throw_conversation(talk.state.conversation_id)
    bring(talk, tmp_path, text)
    assert "level_pieces" not in talk.books.turns[-1].extra


def test_a_file_over_the_limit_is_called_too_large(talk, tmp_path, monkeypatch):
    """It was called no conversation, which it was."""
    text = talk.exports.conversation("json")[1]
    monkeypatch.setattr(conversation_json, "MOST_BYTES", 1000)
    bring(talk, tmp_path, text)
    (said,) = worded_by(conversation_json._too_large, refused(talk))
    assert figures(said) == [figures(size(len(text.encode())))[0], "1"]


def test_a_page_of_html_says_the_same_and_runs_nothing(talk):
    name, page = talk.exports.conversation("html")
    assert name == "The Lamp.html" and "Is it &lt;b&gt;dark&lt;/b&gt;?" in page and ANSWER[:40] in page
    assert (
        "<script" not in page and "default-src 'none'" in page and not re.search(r'(src|href)="(?!#)', page)
    )


def test_a_page_of_markdown_shows_what_was_typed_and_runs_nothing(talk):
    """ "<b>Who</b> is **Vey**?" became "Who is Vey?", and a link in a question led out of the file."""
    typed = "<b>Who</b> is **Vey** &amp; _he_? [x](javascript:a()) `code` ## head <!-- <script>b</script>"
    for question in (typed, f"- {typed}\n---\n# {typed}"):
        talk.engine.answer = "<b>He</b> is **bold**."
        talk.questions.ask(question)
        wait_until(lambda: not talk.state.busy)
    page = html.fromstring(MarkdownIt().render(talk.exports.conversation("md").content.split("---\n", 2)[2]))
    assert [one.text_content() for one in page.xpath("//h2")][2] == typed
    assert " ".join(page.text_content().split()).count(typed) == 4, "the second one twice"
    assert not page.xpath("//script | //b | //a | //code") and len(page.xpath("//strong")) == 2


def test_instructions_go_along_in_every_form(desk, tmp_path):
    desk.preferences.choose("instructions", "Answer in <b>German</b>.")
    desk.questions.ask("Who?")
    desk.preferences.reset("instructions")
    wait_until(lambda: not desk.state.busy)
    assert "*Instructions: Answer in \\<b\\>German\\</b\\>.*" in desk.exports.conversation("md")[1]
    assert "Instructions: Answer in &lt;b&gt;German&lt;/b&gt;." in desk.exports.conversation("html")[1]
    bring(desk, tmp_path, desk.exports.conversation("json")[1])
    desk.questions.ask("And then?")
    wait_until(lambda: not desk.state.busy)
    assert desk.engine.asked[-1].history[0].instructions == "Answer in <b>German</b>."
    long = altered(desk.exports.conversation("json")[1], {"turns/0/extra/instructions": "x" * 99_999})
    bring(desk, tmp_path, long)
    assert len(desk.books.turns[0].extra["instructions"]) == MOST_INSTRUCTIONS


def altered(text: str, change: dict) -> str:
    whole = json.loads(text)
    for where, value in change.items():
        at, *path = where.split("/")
        target = whole
        keys = [at, *path]
        for key in keys[:-1]:
            target = target[int(key) if key.isdigit() else key]
        if value is DROP:
            del target[keys[-1]]
        else:
            target[keys[-1]] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"book": []},
        {"book/sha256": DROP},
        {"book/sha256": 5},
        {"title": {"a": 1}},
        {"turns": {}},
        {"turns": []},
        {"turns/0/role": "system"},
        {"turns/0/role": "assistant"},
        {"turns/1/state": "writing"},
        {"turns/1/text": None},
        {"turns/1/extra": "x"},
        {"turns/1/extra/sources": [1]},
        {"turns/1/extra/until": "x"},
        {"spoiler_limit": "x"},
        {"spoiler_limit": []},
        {"turns/0/extra/chapters": [1, 2, 3]},
        {"turns/0/extra/chapters": "12"},
        {"turns/0/extra/instructions": 5},
        {"turns/0/extra/chapters": ["a", {}]},
        {"turns/0/extra/chapters": [1, float("inf")]},
        {"turns/1/extra/until": float("inf")},  # 1e999 reads as the same
        {"title": "half a character \ud800"},
        {"turns/0/text": "\ud800"},
        {"turns/0/extra/instructions": "\ud800"},
        {"turns/1/extra/sources": ["\ud800"]},
    ],
)
def test_a_file_of_another_form_is_refused_in_words_and_brings_nothing(talk, tmp_path, change):
    text = altered(talk.exports.conversation("json")[1], change)
    bring(talk, tmp_path, text)
    assert worded_by(conversation_json, refused(talk))
    assert len(talk.history.conversations(talk.state.book_id)) == 1
    assert list((tmp_path / "uploads").rglob("*.json")) == []


@pytest.mark.parametrize("text", ["", "[", "null", "[]", '"x"', "[" * 100_000, "\x00\xff"])
def test_what_is_no_json_is_refused_in_words(talk, tmp_path, text):
    bring(talk, tmp_path, text)
    assert worded_by(conversation_json, refused(talk))


def behind(text: str, mark: str, nth: int) -> int:
    """Where the text goes on behind the nth of these marks, counted from 0."""
    return [found.end() for found in re.finditer(mark, text)][nth]


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda text: text[: behind(text, '"role": "user",\n', 1)].encode(), ["Who?"]),
        (lambda text: text[: behind(text, '"text": "', 3)].encode(), ["Who?"]),
        (
            lambda text: text.replace('"role": "user",\n', '"role": "user";\n', 1).encode(),
            ["Is it <b>dark</b>?"],
        ),
        (lambda text: text.replace('"state"', '"stbte"', 1).encode(), ["Is it <b>dark</b>?"]),
        (lambda text: text.replace('"made"', '"mad"x').encode(), ["Who?", "Is it <b>dark</b>?"]),
        (
            lambda text: text.encode().replace(b'"text": "Who?', b'"text": "Who\xff', 1),
            ["Who\ufffd", "Is it <b>dark</b>?"],
        ),
    ],
    ids=["cut in a question", "cut in an answer", "a sign", "a name", "another line", "no letter"],
)
def test_of_a_damaged_file_what_can_be_read_is_brought_in(talk, tmp_path, damage, kept):
    """It was no conversation, and nothing of it was brought in."""
    text = talk.exports.conversation("json")[1]
    talk.trash.throw_conversation(talk.state.conversation_id)
    bring(talk, tmp_path, damage(text))
    assert talk.state.failures == () and worded_by(ConversationImport._say, talk.state.notice.text)
    assert values(talk.state.notice.text)["count"] == len(kept)
    assert [turn.text for turn in talk.books.turns if turn.role == "user"] == kept


def test_a_file_damaged_anywhere_is_called_damaged_or_read(talk, tmp_path):
    whole = talk.exports.conversation("json")[1].encode()
    path = tmp_path / "talk.json"
    for at in range(2, len(whole), 7):
        for content in (whole[:at], whole[:at] + b"\x01" + whole[at + 1 :]):
            path.write_bytes(content)
            try:
                made = conversation_json.brought(path)
                assert made.damaged and len(made.turns) in (2, 4)
            except UserError as error:
                assert worded_by(conversation_json.brought, *error.args), (at, error)
                assert "damaged" in error.args[0].template or at < 12


@pytest.mark.parametrize("form", ["of today", "without it", "damaged"])
def test_a_limit_is_brought_in_with_its_conversation(talk, tmp_path, form):
    """Whoever carried a half-read book's conversation along was told its end by the next question."""
    talk.actions.dispatch({"act": "limit", "value": "1"})
    talk.questions.ask("What now?")
    wait_until(lambda: not talk.state.busy)
    text = talk.exports.conversation("json")[1]
    others = {"without it": altered(text, {"spoiler_limit": DROP}), "damaged": text.replace('"made"', "x")}
    talk.trash.throw_conversation(talk.state.conversation_id)
    talk.actions.dispatch({"act": "limit", "value": "0"})
    bring(talk, tmp_path, others.get(form, text))
    talk.books.select(talk.state.book_id)
    assert talk.books.turns and talk.state.spoiler_limit == 1


def test_what_the_engine_would_believe_is_not_taken(talk, tmp_path):
    harm = {
        "turns/1/extra/ids": [1, 2, 3],
        "turns/1/extra/level_pieces": [["<img src=x onerror=alert(1)>", "draft"]],
        "turns/1/extra/stands": [{"start": -1, "end": 10**9, "book_start": 0, "book_end": 1}],
        "turns/1/extra/stats": {"new_tokens": "many"},
        "turns/0/extra/fit": "nonsense",
        "turns/0/extra/surprise": 1,
        "turns/0/text": "x" * (conversation_json.MOST_CHARS + 5),
    }
    bring(talk, tmp_path, altered(talk.exports.conversation("json")[1], harm))
    question, answer = talk.books.turns[:2]
    assert set(answer.extra) <= {"sources", "notes", "reason", "spoiler_limit", "error", "model"}
    assert question.extra["reading_mode"] == "auto" and "surprise" not in question.extra
    assert len(question.text) == conversation_json.MOST_CHARS


def test_a_conversation_about_another_book_says_which(talk, tmp_path):
    text = altered(talk.exports.conversation("json")[1], {"book/sha256": "f" * 64, "book/title": "The Sea"})
    bring(talk, tmp_path, text)
    assert "The Sea" in refused(talk)
    assert len(talk.history.conversations(talk.state.book_id)) == 1


def test_one_of_a_newer_version_says_so(talk, tmp_path):
    bring(talk, tmp_path, altered(talk.exports.conversation("json")[1], {"version": 2}))
    assert worded_by(conversation_json, refused(talk))


@pytest.mark.parametrize("path", ["/etc/hostname", "{tmp}/uploads/../secret.json"])
def test_a_path_outside_the_uploads_is_neither_read_nor_deleted(talk, tmp_path, path):
    (tmp_path / "secret.json").write_text("secret")
    talk.actions.dispatch({"act": "bring-in", "path": path.format(tmp=tmp_path), "name": "talk.json"})
    assert worded_by(uploaded, refused(talk))
    assert (tmp_path / "secret.json").exists()


def _told(desk, text: str) -> None:
    """The last answer, in other words."""
    turn = desk.books.turns[-1]
    extra = {**turn.extra, "level_pieces": [[text, ""]]}
    desk.history.update(desk.state.conversation_id, turn.number, text, state="finished", extra=extra)


def test_quotations_are_block_quotes_in_html_also_below_a_line_that_names_their_place(talk):
    _told(talk, "At night.\n\nOne:\n> The keeper lit the lamp. <b>\n\n- a list\n- of two")
    page = talk.exports.conversation("html")[1]
    assert re.search(r"<blockquote[^>]*>\s*The keeper lit the lamp\. &lt;b&gt;\s*</blockquote>", page)
    assert "&gt; The keeper" not in page and page.count("<li>") == 2


def test_markdown_and_html_have_the_marks_as_footnotes_with_chapter_and_page(talk, book):
    """They were nowhere: what an answer stands on was lost with the page."""
    said = 'It says "The keeper lit the lamp." and no more. Nobody came.'
    _told(talk, said)
    quoted, end = said.index(" and"), len(said)
    marks = (
        Citation(8, quoted, 7, 25, "One, p. 3"),
        Citation(end, end, 900, 9, "Two, p. 9", "agrees", "p. 9"),
    )
    nothing = Citation(end, end, 7, 9, "Nearest", "nothing")
    cite = lambda turn, question, _book: (*marks, nothing) if turn.number == 4 else ()  # noqa: E731
    text = talk.exports.conversation("md", cite)[1]
    assert 'lamp."[^1] and no more. Nobody came.[^2]' in text
    assert "[^1]: One, p. 3\n[^2]: Two, p. 9" in text and "Nearest" not in text
    page = talk.exports.conversation("html", cite)[1]
    assert '<sup><a href="#place-1">1</a></sup> and no more' in page
    assert 'Nobody came.<sup><a href="#place-2">2</a></sup>' in page
    assert '<li id="place-1" value="1">One, p. 3</li>' in page and 'value="2">Two, p. 9</li>' in page
    assert "Nearest" not in page and not re.search("\ufdd0", page)


def test_the_marks_of_an_export_are_those_of_the_page(talk, book):
    turns = talk.books.turns
    assert cited_answer(Citations(), turns[0], None, book) == CitedAnswer()
    _told(talk, "The keeper lit the lamp.")
    question, answer = talk.books.turns[-2:]
    (mark,) = cited_answer(Citations(), answer, question, book).citations
    assert mark.where == "One" and mark.kind
    text = talk.exports.conversation("md", lambda *one: cited_answer(Citations(), *one).citations)[1]
    assert "The keeper lit the lamp.[^1]" in text and "\n[^1]: One\n" in text
