"""What a reader takes along: cards for Anki, notes and quotations, an e-book of summaries."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import date
from html import unescape

import pytest
from ebooklib import ITEM_DOCUMENT, epub
from lxml import html
from markdown_it import MarkdownIt

from app.desk.reader import _of_whole_words
from app.render.conversation_json import _carried
from app.render.flash_cards import Card, as_tsv
from app.render.markdown import Citation
from app.web.answers import cited_answer
from app.web.citations import Citations
from core.documents import read_document
from core.errors import UserError
from core.evidence.support import REFUSALS
from core.text.words import Message, in_language, localized
from tests.support.desks import done

DAY = date(2026, 1, 2)
SAID = 'It says "The keeper lit the lamp." and no more.'


def cite(*answer):
    """The marks as the page has them."""
    return cited_answer(Citations(), *answer).citations


@pytest.fixture
def talk(opened, monkeypatch):
    """A desk where one question was answered by a quotation, on a day that does not change."""
    desk, _engine = opened(answer=SAID, pace=0.001)
    monkeypatch.setattr(desk.exports, "_today", lambda: DAY)
    desk.questions.ask("Who lit # it?\tSay.")
    done(desk)
    return desk


def brought_in(desk, tmp_path, text: str) -> None:
    path = tmp_path / "uploads" / "x" / "talk.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    desk.actions.dispatch({"act": "bring-in", "path": str(path), "name": "talk.json"})


def rows(text: str) -> list[list[str]]:
    """The cards as Anki's import reads them: lines that begin with # are its header."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.reader(io.StringIO("\n".join(lines)), delimiter="\t"))


def noted(desk, words: str, note: str = "") -> None:
    at = desk.books.current.text.index(words)
    desk.reader.mark(at, words)
    if note:
        desk.reader.note(at, note)


TAUGHT = "SmolLM2 135M Instruct, taught to read"
MODELS = f"answers by {TAUGHT}"
MADE = f"The Lamp · A. Keeper · {MODELS} · exported on 2026-01-02 from TriForce Chat"


def test_every_form_says_which_book_which_model_and_when(talk):
    """A file that is found years later."""
    assert talk.exports.conversation("md").content.endswith(f"*{MADE}*\n")
    assert f'<p class="sources">{MADE}</p>' in talk.exports.conversation("html").content
    assert f'"made": "{MADE}"' in talk.exports.conversation("json").content
    with in_language("de"):
        assert "exportiert am 2026-01-02" in talk.exports.conversation("md").content


def test_who_answered_goes_along_where_a_conversation_is_brought_in(talk, tmp_path):
    text = talk.exports.conversation("json").content
    talk.trash.throw_conversation(talk.state.conversation_id)
    brought_in(talk, tmp_path, text)
    assert MODELS in talk.exports.conversation("md").content


def test_bookmarks_and_notes_are_brought_in_with_the_conversation(talk, tmp_path):
    """The file held them, and they were lost without a word. What stands here already stays."""
    noted(talk, "The keeper lit the lamp.", "Who?")
    noted(talk, "Nobody came.")
    text, there = talk.exports.conversation("json").content, talk.reader.bookmarks
    for one in there:
        talk.reader.unmark(one.offset)
    noted(talk, "Nobody came.", "My own.")
    brought_in(talk, tmp_path, text)
    assert talk.reader.bookmarks == (there[0], replace(there[1], note="My own."))
    # a place is looked for by its words, and where they are not there is none
    moved = json.loads(text)
    moved["notes"][0] |= {"offset": 0, "words": "The keeper"}
    moved["notes"][1]["words"] = "A stranger came."
    for one in there:
        talk.reader.unmark(one.offset)
    brought_in(talk, tmp_path, json.dumps(moved))
    assert [(one.offset, one.note) for one in talk.reader.bookmarks] == [(there[0].offset, "Who?")]


@pytest.mark.parametrize("broken", [{"offset": -1}, {"offset": "3"}, {"length": True}, {"words": 5}])
def test_a_bookmark_that_is_none_is_refused_with_its_file(talk, tmp_path, broken):
    noted(talk, "Nobody came.")
    made = json.loads(talk.exports.conversation("json").content)
    made["notes"][0] |= broken
    before = talk.state.conversation_id
    brought_in(talk, tmp_path, json.dumps(made))
    assert len(talk.state.failures) == 1 and talk.state.conversation_id == before


@pytest.mark.parametrize("sure", [True, False])
def test_a_doubt_goes_along_and_a_proof_is_looked_up_anew(talk, tmp_path, sure: bool):
    """Brought in again, wrong answers that had borne the circle had a green mark."""
    talk.engine.answer = "The keeper lit the lamp."
    talk.questions.regenerate()
    done(talk)
    whole = json.loads(talk.exports.conversation("json").content)
    answer = whole["turns"][1]
    told = {"start": 0, "end": len(answer["text"]), "book_start": 0, "book_end": 20}
    stored = {**talk.books.turns[1].extra, "stands": [{**told, "quoted": False, "borne_out": sure}]}
    answer["extra"] = _carried("assistant", stored)
    path = tmp_path / "uploads" / "x" / "talk.json"
    path.parent.mkdir()
    path.write_text(json.dumps(whole), encoding="utf-8")
    talk.trash.throw_conversation(talk.state.conversation_id)
    talk.actions.dispatch({"act": "bring-in", "path": str(path), "name": "talk.json"})
    question, turn = talk.books.turns
    marks = [one.kind for one in cite(turn, question, talk.books.current) if one.kind]
    assert ("stands" in turn.extra) is not sure and (marks == ["nothing"]) is not sure


@pytest.mark.parametrize(
    ("state", "extra", "said"),
    [
        ("stopped", {"reason": "user"}, "stopped before its end"),
        ("finished", {"reason": "length"}, "length limit"),
        ("finished", {"reason": "looping"}, "repeat itself"),
        ("failed", {"error": "No memory. Wait a little."}, "broke off before its end."),
        ("writing", {}, "still being written"),
    ],
)
def test_an_answer_that_is_not_whole_says_so_in_every_form_and_is_no_card(talk, state, extra, said):
    turn = talk.books.turns[-1]
    talk.history.update(talk.state.conversation_id, turn.number, "The kee", state=state, extra=extra)
    assert said in talk.exports.conversation("md").content
    page = talk.exports.conversation("html").content
    assert said in page and "Wait a little" not in page
    with pytest.raises(UserError, match="no card yet"):
        talk.exports.conversation("tsv")


def test_questions_notes_and_highlights_are_cards_of_one_line_each(talk):
    noted(talk, "Nobody came.")
    noted(talk, "The keeper lit the lamp. The keeper lit the lamp.")
    noted(talk, "Front.", 'Who says <that>\n"so"?')
    name, text = talk.exports.conversation("tsv", cite)
    assert name == "The Lamp.tsv"
    assert text.splitlines()[:4] == [
        "#separator:tab",
        "#html:true",
        "#tags column:3",
        "#columns:Front\tBack\tTags",
    ]
    asked, front, highlight = rows(text)  # two words alone make no card of their own
    assert asked[0] == "Who lit &#35; it? Say." and "lamp.[1]&quot; and no more." in asked[1]
    assert "<small>[1] One" in asked[1] and MODELS in asked[1] and asked[2] == "The_Lamp"
    assert front[0] == "Who says &lt;that&gt;<br>&quot;so&quot;?" and front[1].startswith("Front.<br>")
    assert MODELS not in front[1], "a note is no model's"
    assert highlight[0] == "“The keeper lit the …”"
    assert [len(row) for row in rows(text)] == [3, 3, 3]


def test_a_card_has_apostrophes_and_quotations_as_they_are_read():
    """Anki showed "Quill&#x27;s", and "> " before what an answer quotes of the book."""
    said = "Fenwick's.\n\nOne:\n> He's the \"master\", #1 & no <other>."
    (row,) = rows(as_tsv(None, [Card("Who's it?", said, "One")]))
    front, back, _tag = row
    assert unescape(front) == "Who's it?"
    quoted = "<blockquote>He's the &quot;master&quot;, &#35;1 &amp; no &lt;other&gt;.</blockquote>"
    assert back.startswith(f"Fenwick's.<br><br>One:<br>{quoted}<br>") and "&&" not in back
    (row,) = rows(as_tsv(None, [Card("Who?", "One:\n> He.\n>\n> I.", "One")]))
    assert "<blockquote>He.</blockquote><blockquote>I.</blockquote>" in row[1], "two paragraphs"


@pytest.mark.parametrize("form", ["md", "html", "tsv"])
def test_what_the_book_may_not_say_is_marked_in_every_form(talk, form):
    """A sentence with the circle behind it on the page went out as if the book said it."""

    def unsure(turn, question, book):
        end = turn.text.find(".") + 1
        return (Citation(end, end, None, kind="nothing"),) if end else ()

    talk.engine.answer = "It was a whale. And no more."
    talk.questions.ask("What was it?")
    done(talk)
    text = talk.exports.conversation(form, unsure).content
    assert "It was a whale. ○" in text and text.count("○ ") >= 2
    assert "○" not in talk.exports.conversation(form).content


def test_a_long_question_is_a_short_heading_in_markdown(talk):
    """5,000 words stood there as one heading."""
    talk.questions.ask("Lamp and keeper. " * 60)
    done(talk)
    text = talk.exports.conversation("md", cite).content
    headings = re.findall("^## .+$", text, re.MULTILINE)
    assert max(map(len, headings)) < 220 and text.count("Lamp and keeper.") >= 60


def test_notes_and_what_answers_quote_go_out_by_themselves(talk):
    noted(talk, "Nobody came.", "At last.")
    text = talk.exports.notes("md", cite).content
    noted_at, quoted_at = [match.end() for match in re.finditer("^## .+\n\n", text, re.MULTILINE)][-2:]
    assert text[noted_at:].startswith("> Nobody came.\n\n(Two)\n\nAt last.")
    assert text[quoted_at:].startswith("> The keeper lit the lamp.\n\n(One)\n\nWho lit \\# it?")
    page = talk.exports.notes("html", cite).content
    assert '<blockquote dir="auto">Nobody came.</blockquote>' in page and "<script" not in page
    (card,) = rows(talk.exports.notes("tsv", cite).content)
    assert card[0] == "At last." and card[1].startswith("Nobody came.")


@pytest.mark.parametrize("of", ["conversation", "notes"])
def test_a_note_makes_no_heading_no_html_and_no_code_of_the_file(talk, of):
    """ "# My note" stood above all that followed it, in Obsidian's outline, too; ``` swallowed the rest."""
    note = "# My *note* <b>x</b>\n## And\nmore\n---\nless\n=\n[[Lamps]] #tag - yes\n```\n<!-- so"
    noted(talk, "Nobody came.", note)
    out = getattr(talk.exports, of)("md", cite).content
    page = html.fromstring(MarkdownIt().render(out.split("---\n", 2)[2]))
    headings = [one.text_content() for one in page.xpath("//h1 | //h2 | //h3")]
    assert headings[0] == "The Lamp" and not any("My" in one or "And" in one for one in headings)
    assert len(headings) == out.count("\n## ") + 1
    assert not page.xpath("//b | //code | //pre | //comment()") and "note" in [
        one.text for one in page.xpath("//em")
    ]
    assert "[[Lamps]] #tag - yes" in out and page.text_content().rstrip().endswith(MADE)


def test_what_an_answer_has_cut_is_cut_in_the_notes(talk):
    """The page had "…" there; in the file the sentence ended in its middle."""
    words = "The keeper lit the lamp."
    for shown in (f"… {words}", f"{words[:-6]} …"):
        quoted = Citation(1, 1 + len(shown), talk.books.current.text.index(words), len(words) - 6, "One")
        turn = talk.books.turns[-1]
        talk.history.update(talk.state.conversation_id, turn.number, f"“{shown}”", state="finished")
        out = talk.exports.notes("md", lambda turn, *_rest, one=quoted: (one,) if turn.number == 2 else ())
        (line,) = re.findall("^> (.+)$", out.content, re.MULTILINE)
        assert (line[0] == "…", line[-1] == "…") == (shown[0] == "…", shown[-1] == "…")


def test_a_bookmark_over_half_a_word_has_all_of_it(talk):
    """ "keeper lit the l" stood in every file; Chinese has no space where a word ends."""
    noted(talk, "eeper lit the l", "Who?")
    assert "> keeper lit the lamp\n" in talk.exports.notes("md", cite).content
    assert _of_whole_words("他点亮了灯。", 1, 3) == (1, 3)


@pytest.mark.parametrize("form", ["md", "html", "tsv"])
def test_what_qualifies_an_answer_goes_out_with_it(talk, form):
    """ "The end of what may be read, not of the book" stood on the page alone; the file had an end."""
    at, note = talk.books.turns[-1].number, Message("Not read: {places}.", {"places": "Two"})
    talk.history.update(talk.state.conversation_id, at, SAID, state="finished", extra={"notes": [note]})
    assert localized(note) in talk.exports.conversation(form, cite).content
    with in_language("de"):
        assert localized(note) in talk.exports.conversation(form, cite).content


def test_a_card_under_a_limit_says_so_in_front(talk):
    """Two cards had the same front, "How does it end?", and another end behind it."""
    asked = "What comes last?"
    for value in ("", "1"):
        limit(talk, value)
        talk.questions.ask(asked)
        done(talk)
    limit(talk, "")
    _first, whole, limited = [front for front, *_rest in rows(talk.exports.conversation("tsv", cite).content)]
    assert whole == asked and limited.startswith(asked) and "1" in limited


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_was_not_answered_is_no_card(talk, refusal):
    """ "No answer was found. Nearest passages: …" was to be learned by heart."""
    talk.engine.answer = f"{refusal} Nearest passages:\n\nOne:\n> The keeper lit the lamp."
    with in_language("de"):
        talk.questions.ask("Who paid?")
        done(talk)
        assert [front for front, _back, _tag in rows(talk.exports.conversation("tsv").content)] == [
            "Who lit &#35; it? Say."
        ]


def test_a_quotation_goes_out_once_also_where_it_was_cut_otherwise(talk):
    """The same sentence stood there with and without its full stop."""
    text = talk.books.current.text
    at = text.index("The keeper lit the lamp.")
    cuts = [(at, 23), (at, 24), (at + 4, 6), (text.index("Nobody came."), 12)]
    marks = [Citation(0, 1, start, length, "One", "quoted") for start, length in cuts]
    out = talk.exports.notes("md", lambda turn, *_rest: marks if turn.role == "assistant" else ()).content
    assert re.findall("^> (.+)$", out, re.MULTILINE) == ["The keeper lit the lamp.", "Nobody came."]


def test_no_kind_of_line_end_begins_another_card(talk):
    """A note that was pasted may hold what Anki takes for the end of a line."""
    noted(talk, "Nobody came.", "At last.\rAnd\r\nthen.\u2028So.")
    (card,) = rows(talk.exports.notes("tsv", cite).content)
    assert card[0] == "At last.<br>And<br>then.<br>So."


@pytest.mark.parametrize("form", ["md", "tsv"])
def test_nothing_behind_the_limit_goes_out_with_the_notes(talk, form):
    """Neither a bookmark there nor what was quoted when all of the book could be read."""
    noted(talk, "Nobody came.", "At last.")
    assert "Nobody" in talk.exports.notes(form, cite).content
    limit(talk, "1")
    with pytest.raises(UserError, match="All bookmarks in this book lie behind"):
        talk.exports.notes(form, cite)


def limit(desk, value: str) -> None:
    desk.actions.dispatch({"act": "limit", "value": value})


def test_what_the_limit_hides_is_not_said_to_be_missing(talk):
    """Under a limit "There is no card yet" stood above answers that had been folded away."""
    limit(talk, "1")
    with pytest.raises(UserError, match="lies behind your spoiler limit"):
        talk.exports.conversation("tsv", cite)
    with pytest.raises(UserError, match="no bookmark yet"):
        talk.exports.notes("md", cite)
    with pytest.raises(UserError, match="no summary in this conversation"):
        talk.exports.conversation("epub", cite)
    limit(talk, "")
    assert rows(talk.exports.conversation("tsv", cite).content)


def test_bookmarks_that_make_no_card_are_no_empty_file(talk):
    """Two marked words without a note ask nothing; one behind the limit would."""
    noted(talk, "Nobody came.")
    with pytest.raises(UserError, match="no card yet"):
        talk.exports.notes("tsv", cite)
    noted(talk, "The keeper")
    talk.reader.note(talk.books.current.text.index("Nobody came."), "At last.")
    limit(talk, "1")
    with pytest.raises(UserError, match="lies behind your spoiler limit"):
        talk.exports.notes("tsv", cite)


@pytest.fixture
def told(opened):
    """A desk whose book was told chapter by chapter."""
    desk, _engine = opened(pace=0.0)
    desk.preferences.choose("summary_length", "chapters")
    desk.questions.summarize()
    done(desk)
    return desk


@pytest.mark.parametrize("of", ["summaries", "conversation"])
def test_every_mark_of_the_e_book_leads_to_the_words_it_stands_on_and_back(told, of, tmp_path):
    """Read again by a reader of the format: no link leads nowhere."""
    name, content = getattr(told.exports, of)("epub", cite)
    (tmp_path / "told.epub").write_bytes(content)
    made = epub.read_epub(tmp_path / "told.epub")
    documents = made.get_items_of_type(ITEM_DOCUMENT)
    pages = {one.file_name: html.fromstring(one.get_content()) for one in documents}
    assert name == "The Lamp, summaries.epub" and made.title == "The Lamp, summaries"
    links = [(file, link) for file, page in pages.items() for link in page.xpath("//a/@href")]
    marks = [link for file, link in links if file.startswith("summary-")]
    assert marks and all(link.startswith("places.xhtml#place-") for link in marks)
    for file, link in links:
        target, _sharp, anchor = link.partition("#")
        assert pages[target or file].xpath(f"//*[@id='{anchor}']") if anchor else target in pages, link
    place = pages["places.xhtml"].xpath("//*[@id='place-1']")[0]
    assert place.xpath(".//strong")[0].text_content() in told.books.current.text
    assert "One" in pages["places.xhtml"].xpath("//h3")[0].text_content()
    assert made.get_metadata("DC", "source")[0][0] == "The Lamp · A. Keeper"
    assert MODELS in made.get_metadata("DC", "description")[0][0]


def test_the_contents_of_the_e_book_tell_its_summaries_apart(told):
    """Four were called "Summarise this book", and what a book is about, told as a summary, was left out."""
    told.preferences.choose("summaries", "own")
    for _twice in range(2):
        told.questions.summarize()
        done(told)
    of_the_whole = ["What is it about?", "How does The Lamp end?"]
    for question in (*of_the_whole, "Who lit it?"):
        told.questions.ask(question)
        done(told)
    made = epub.read_epub(io.BytesIO(told.exports.conversation("epub", cite).content))
    named = [one.title for one in made.toc if isinstance(one, epub.Link)]
    assert len(set(named)) == len(named) == 6 and named[-2:] == of_the_whole


def test_the_e_book_opens_here_as_a_book(told, tmp_path):
    path = tmp_path / "told.epub"
    path.write_bytes(told.exports.summaries("epub", cite).content)
    read = read_document(path)
    assert read.title == "The Lamp, summaries" and "Told of One" in read.text
    assert [one.title for one in read.chapters][1:3] == ["One", "Two"]


def test_an_e_book_ends_at_the_limit(told):
    told.actions.dispatch({"act": "limit", "value": "1"})
    content = told.exports.summaries("epub", cite).content
    made = epub.read_epub(io.BytesIO(content))
    text = "".join(one.get_content().decode() for one in made.get_items_of_type(ITEM_DOCUMENT))
    assert "Told of One" in text and "Nobody" not in text


def test_summaries_that_the_limit_hides_are_not_said_to_be_missing(told):
    limit(told, "1")
    with pytest.raises(UserError, match="told with more of the book"):
        told.exports.conversation("epub", cite)


def test_without_a_summary_there_is_no_e_book(talk):
    with pytest.raises(UserError, match="no summary in this conversation"):
        talk.exports.conversation("epub")


def test_a_summary_of_an_earlier_version_goes_out_without_a_model(told):
    told.library.write_origins(told.state.book_id, {})
    assert TAUGHT not in told.exports.summaries("md").content


@pytest.mark.parametrize("damaged", ["[", "[]", '{"x": {"model": 1, "stands": []}}', '{"x": {"model": ""}}'])
def test_damaged_origins_cost_no_summary(told, tmp_path, damaged):
    (tmp_path / "books" / told.state.book_id / "summary_origins.json").write_text(damaged)
    assert "Told of One" in told.exports.summaries("md").content
