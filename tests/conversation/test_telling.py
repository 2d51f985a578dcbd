"""What a summary says stands in the book: planted inventions go, every sentence keeps its place, at every
length and through every level.
"""

from __future__ import annotations

import dataclasses
import re
from itertools import count

import pytest

from core.conversation import summarization, summary_layout
from core.conversation.characters import naming_its_title
from core.conversation.part_summaries import PartSummaryStore, SummaryLine
from core.conversation.reading import ReadingPart, by_chapter
from core.conversation.summary_layout import HeadedLines, by_writer, composed
from core.conversation.supported_sentences import TellableSpan, fewer, own_lines, whole_sentences
from core.conversation.time_estimates import Pace, TimeEstimate
from core.documents.document import Document, Section
from core.events import Delta, Prefill, ReadingStep, Stats
from core.evidence.support import Evidence
from core.request import Request
from core.text.levelled import LevelledText
from tests.support.fakes import FAKE_PLAN, CharTokenizer
from tests.support.said import worded_by
from tests.support.talks import ask, encoded, finished, make, turns
from tests.support.told_books import NAMES, inventing, long_book, stands_in, style, telling, true_of


@pytest.mark.parametrize("length", ["paragraph", "page", "chapters"])
@pytest.mark.parametrize("way", ["told", "supported", "own"])
def test_every_sentence_stands_in_the_book(way: str, length: str):
    """An invented name, a broken end: whatever a model writes, at every length and level."""
    session, engine = make(inventing, style=style(way))
    book = long_book()
    done = finished(ask(session, book, None, summary_length=length))
    assert "Gatsby" not in done.text and "Boston" not in done.text and "And so he" not in done.text
    assert "wedding" not in done.text
    stands_in(book, done)
    assert bool(engine.prompts) == (way != "own")
    if way == "own":
        assert worded_by(summarization.Summaries.in_own_words, *done.notes)


@pytest.mark.parametrize("way", ["supported", "own"])
def test_a_summary_follows_the_book(way: str):
    session, _ = make(inventing, style=style(way))
    book = long_book(8)
    done = finished(ask(session, book, None))
    chapters = [[one.start <= stand.book_start < one.end for one in book.chapters] for stand in done.stands]
    numbers = [inside.index(True) for inside in chapters]
    assert numbers == sorted(numbers) and len(set(numbers)) >= 6


@pytest.mark.parametrize(
    ("title", "named"),
    [
        ("7. Zelda Merrin", True),
        ("Chapter VII: Zelda", True),
        ("Mrs. Zelda Merrin", True),
        ("The Zelda", False),  # a ship, maybe
        ("Barrels", False),
        ("Zelda's Barrels, and What Became of Them", False),
    ],
)
def test_whom_a_chapters_title_names_its_summary_names(title: str, named: bool):
    """Of "Thomasina Merrin" a recap told as if her father alone had kept the light for nineteen years."""
    child = ["Adam Merrin kept the light.", "He had one child, Zelda, born there.", "Zelda lit the barrels."]
    text = f"{title}\n\n{' '.join(child)}"
    book = Document("B", "", "txt", text, (Section(title, 0, len(text)),), sha256="B")
    part, at = ReadingPart(title, 0, len(text), 99), text.index(child[0])
    lines = [SummaryLine(child[0], at, at + len(child[0]), own=True)]
    told = [line.text for line in naming_its_title(book, [part], lines)]
    assert told == child[: 1 + named]


def test_a_recap_of_a_chapter_names_whom_its_title_names():
    book = long_book(1, 40)
    text = f"Zelda\n\n{book.text}Zelda slept.\n\n{book.text.replace('winter 1', 'winter 2')}"
    book = Document("B", "", "txt", text, (Section("Zelda", 0, len(text)),), sha256="B")
    session, _ = make(inventing, style=style("own"))
    assert "Zelda slept." in finished(ask(session, book, None, summary_length="paragraph")).text


def test_of_several_peoples_letters_each_stands_under_its_own_title():
    """Lucien's "I" and Clara's stood in one paragraph, as if one person had signed and packed."""
    book = long_book(2)
    own = list(own_lines(book, [(0, len(book.text))], 120))
    assert [one.heading for one in by_writer(book, own)] == [""]
    titles = ["Tenth Letter: M. Verbeke to Clara Hollis", "Eleventh Letter: Clara Hollis to M. Verbeke"]
    sections = [dataclasses.replace(one, title=to) for one, to in zip(book.sections, titles, strict=True)]
    book = dataclasses.replace(book, sections=tuple(sections))
    assert [one.heading for one in by_writer(book, own)] == titles
    session, _ = make(inventing, style=style("own"))
    assert finished(ask(session, book, None, summary_length="paragraph")).text.startswith(f"## {titles[0]}")


def test_who_is_i_in_one_journal_of_a_book_told_by_another_stands_under_its_title():
    """ "I taught his son" stood among sentences about the town, as if the book's teller had."""
    book = long_book(4)
    titles = [
        "Chapter One: The Fog",
        "Chapter Two: Ines Moreau's Journal",
        "Chapter Three: Ice",
        "Chapter Four: Sun",
    ]
    sections = tuple(
        dataclasses.replace(one, title=to) for one, to in zip(book.sections, titles, strict=True)
    )
    book = dataclasses.replace(book, sections=sections)
    own = [SummaryLine("Mara slept.", one.start, one.end, own=True) for one in sections]
    assert [one.heading for one in by_writer(book, own)] == [""], "nobody is I"
    own[1] = own[1]._replace(text="I taught his son.")
    found = by_writer(book, own)
    assert [len(one.lines) for one in found] == [1, 1, 2]
    assert found[0].heading == "" and found[1].heading == titles[1]
    assert all(name in found[2].heading for name in ("Ice", "Sun"))


def test_lengths_differ_as_asked():
    session, _ = make(inventing, style=style("own"))
    book = long_book(12, 20)
    words = {
        length: len(finished(ask(session, book, None, summary_length=length)).text.split())
        for length in ("paragraph", "page", "chapters")
    }
    assert 90 <= words["paragraph"] <= 150 < 380 <= words["page"] <= 520 < words["chapters"]


def test_by_chapters_every_chapter_has_its_own_heading():
    """Short chapters share a part where the whole is told, and must not share a heading here."""
    small = dataclasses.replace(style("supported"), part_tokens=4000)
    session, _ = make(inventing, style=small)
    book = long_book(5, 4)
    done = finished(ask(session, book, None, summary_length="chapters"))
    headings = re.findall(r"^## (.*)$", done.text, re.MULTILINE)
    assert headings == [f"Chapter {number}" for number in range(1, 6)]
    for number, told in enumerate(re.split(r"^## .*$", done.text, flags=re.MULTILINE)[1:]):
        assert NAMES[number % 4] in told


def test_a_chapter_in_pieces_is_told_once():
    session, _ = make(inventing, style=style("supported"))
    book = long_book(2, 30)
    events = ask(session, book, None, summary_length="chapters")
    parts = [one for one in events if isinstance(one, ReadingStep) and one.purpose == "telling"]
    assert parts[0].total > 2
    assert finished(events).text.count("## ") == 2


def test_the_books_own_sentences_stand_in_quotation_marks_among_others():
    session, _ = make(
        telling(lambda prompt, params: true_of(prompt).replace("Oddo", "Gatsby")), style=style("supported")
    )
    done = finished(ask(session, long_book(), None))
    quoted = [done.text[one.start : one.end] for one in done.stands if one.quoted]
    assert 0 < len(quoted) < len(done.stands) and all(one[0] + one[-1] == "“”" for one in quoted)
    assert worded_by(summary_layout.quoted, *done.notes)


@pytest.mark.parametrize(("kind", "length"), [("told", "page"), ("told", "chapters")])
def test_time_left_falls_from_part_to_part(kind: str, length: str):
    """The telling of the whole counts, level by level."""
    session, _ = make(inventing, style=dataclasses.replace(style(kind), join_tokens=900))
    measure(session)
    events = ask(session, long_book(), None, summary_length=length)
    read = [one for one in events if isinstance(one, ReadingStep) and one.attempt == 1]
    left = [one.left_s for one in read]
    assert len(left) > 3
    assert None not in left[:-1]  # the last may show what is there
    left = [one for one in left if one is not None]
    assert left == sorted(left, reverse=True)
    assert left[0] > 0
    if kind == "told" and length == "page":
        assert [one.purpose for one in read][-1] == "whole summary"
        assert left[-1] > 0


def measure(session) -> None:
    """As if the session had read and written before."""
    session._expectation.watch(Prefill(1000, 1000, 10.0))
    session._expectation.answered(Stats(rounds=20, tbt_mean_ms=20.0))


def telling_left(events: list) -> list[float | None]:
    """What each part of a summary promised when it began."""
    return [one.left_s for one in events if isinstance(one, ReadingStep) and one.purpose == "telling"]


def test_a_telling_promises_no_time_before_a_fifth_of_it_is_told():
    """The first sentence was told in a tenth of the time of the next ones, or in three times that."""
    session, _ = make(inventing, style=style("supported"))
    session._summaries._part_by_part._clock = count(0.0, 1.0).__next__
    left = telling_left(ask(session, long_book(), None))
    silent = [one is None for one in left]
    assert silent == sorted(silent, reverse=True), "what is promised stays"
    assert silent[0] and 0.15 * len(left) < sum(silent) < 0.35 * len(left)
    assert left[-1] == 0.0


def test_what_a_telling_promises_goes_by_its_own_pace():
    """What the plan expects was off by four beside other work."""
    promised = []
    for step_s in (1.0, 1000.0):
        session, _ = make(inventing, style=style("supported"))
        session._summaries._part_by_part._clock = count(0.0, step_s).__next__
        promised.append([one for one in telling_left(ask(session, long_book(), None)) if one is not None])
    quick, slow = promised
    assert len(quick) > 3 and slow == pytest.approx([1000 * one for one in quick])


def test_pieces_of_work_count_by_what_is_expected_of_them():
    """By hand: 3 s of 10 in 6 s leave 14 s, and 10 of 10 nothing. A tenth says nothing yet."""
    times = iter([0.0, 2.0, 6.0, 15.0])
    pace = Pace({"a": 1.0, "b": 2.0, "c": 7.0}, times.__next__)
    pace.done("a")
    assert pace.left_s is None
    pace.done("b")
    assert pace.left_s == pytest.approx(14)
    pace.done("c")
    assert pace.left_s == 0
    assert Pace({}, count().__next__).left_s == 0, "there is nothing to do"


def test_what_is_left_is_told_by_the_pace_of_the_last_pieces():
    """A machine whose load grew: in three of six tellings what was left took twice what was promised."""
    now, pieces = [0.0], range(40)
    pace = Pace(dict.fromkeys(pieces, 1.0), lambda: now[0])
    for piece in pieces[:20]:
        now[0] += 3.0
        pace.done(piece)
    assert pace.left_s == pytest.approx(20 * 3.0)
    for piece in pieces[20:28]:  # two parts of four sentences each
        now[0] += 6.0
        pace.done(piece)
    assert pace.left_s == pytest.approx(12 * 6.0, rel=0.1)
    for piece in pieces[28:36]:  # and back
        now[0] += 3.0
        pace.done(piece)
    assert pace.left_s == pytest.approx(4 * 3.0, rel=0.2)
    now[0] += 9.0  # one sentence that takes three times as long
    pace.done(36)
    assert pace.left_s == pytest.approx(3 * 3.0, rel=0.6)


def test_parts_that_take_twice_as_long_are_soon_expected_to():
    """The parts of a book that is told by a larger model: read, and told in some two hundred tokens."""
    expectation, manner = TimeEstimate(FAKE_PLAN), style("told")
    unread = [ReadingPart(f"Part {number}", 0, 100, 4000) for number in range(10)]
    promised = []
    for slower in [*[1.0] * 10, 2.0, 2.0]:
        expectation.watch(Prefill(4000, 4000, 100.0 * slower))
        expectation.answered(Stats(rounds=200, tbt_mean_ms=300.0 * slower))
        promised.append(expectation.summary_s(unread, 10, manner, 512))
    assert promised[10] > 1.4 * promised[9] and promised[11] > 1.7 * promised[9]


def test_what_was_told_before_takes_no_time():
    """A summary by chapters behind one of a page was promised in three minutes and took one."""
    session, _ = make(inventing, style=style("supported"))
    measure(session)
    first = telling_left(ask(session, long_book(), None, summary_length="chapters"))
    assert any(first)
    assert set(telling_left(ask(session, long_book(), None, summary_length="chapters"))) == {0.0}
    assert telling_left(ask(session, long_book(), None, summary_length="chapters", again=True))[0] is None


def test_a_stopped_summary_goes_on_with_its_lines(tmp_path):
    """Their places must come back from disk, too."""
    book = long_book()
    session, before = make(inventing, style=style("supported"), notes=PartSummaryStore(tmp_path))
    seen = []
    for event in session.ask(Request(None, book, "c"), should_stop=lambda: len(seen) > 2):
        if isinstance(event, ReadingStep) and event.attempt == 1:
            seen.append(event)
    assert event.reason == "user"
    again, engine = make(inventing, style=style("supported"), notes=PartSummaryStore(tmp_path))
    done = finished(ask(again, book, None))
    told = len(before.prompts) - 1  # the last was stopped
    afresh, whole = make(inventing, style=style("supported"))
    finished(ask(afresh, book, None))
    assert told > 0 and len(engine.prompts) == len(whole.prompts) - told
    stands_in(book, done)


def test_a_limit_binds_the_summary():
    session, _ = make(inventing, style=style("own"))
    done = finished(ask(session, long_book(), None, spoiler_limit=2))
    assert "Oddo" in done.text and "Tancred" not in done.text


IN_ONE_GO = {"style": style("told", whole_tokens=None), "context_tokens": 8000}
TALE = "Oddo rowed all of the barrels from the old ferry. Oddo counted all of the lanterns before dark."


def test_of_a_book_told_in_one_go_every_sentence_stands_in_it():
    session, engine = make(inventing, **IN_ONE_GO)
    book = long_book()
    events = ask(session, book, None)
    done = finished(events)
    assert len(engine.prompts) == 1 and done.plan["reading"]["mode"] == "full"
    assert "Oddo rowed all of the barrels" in done.text
    assert "Gatsby" not in done.text and "wedding" not in done.text and "And so he" not in done.text
    stands_in(book, done)
    assert any(one.quoted for one in done.stands) and worded_by(summary_layout.quoted, *done.notes)
    assert CharTokenizer().decode(done.decoded) == CharTokenizer().decode(inventing(engine.prompts[0], None))
    told = [one for one in events if isinstance(one, ReadingStep)]
    assert [(one.purpose, one.attempt) for one in told] == [("whole summary", 1), ("whole summary", 2)]
    asked = ask(session, book, "Who?", history=turns("Summarise", done))
    assert finished(asked) and encoded(done.text) == list(done.token_ids)
    assert "Gatsby" not in CharTokenizer().decode(engine.prompts[-1])


def test_what_stands_in_the_book_is_shown_once_and_kept_as_it_was_told():
    session, engine = make(lambda ids, params: encoded(TALE), **IN_ONE_GO)
    events = ask(session, long_book(1, 3), None)
    done = finished(events)
    assert done.text == TALE and done.token_ids == tuple(encoded(TALE)) and not done.notes
    assert sum(isinstance(one, ReadingStep) for one in events) == 1
    assert [done.text[one.start : one.end] for one in done.stands] == re.findall(r"[^.]+\.", TALE)[:1] + [
        "Oddo counted all of the lanterns before dark."
    ]


def test_a_whole_book_told_too_long_ends_with_a_sentence():
    session, _ = make(lambda ids, params: encoded(TALE + " Then he"), **IN_ONE_GO)
    done = finished(ask(session, long_book(1, 3), None, params={"max_new_tokens": len(TALE) + 5}))
    assert done.reason == "length"
    assert done.text == TALE and done.token_ids == tuple(encoded(done.text))


def test_a_whole_book_told_in_circles_ends_with_a_sentence():
    session, _ = make(lambda ids, params: encoded(TALE + " And then he went" * 40), **IN_ONE_GO)
    done = finished(ask(session, long_book(1, 3), None))
    assert done.reason == "looping"
    assert done.text == TALE and done.token_ids == tuple(encoded(TALE))


def test_a_summary_as_a_person_wished_it_is_not_held_to_the_words_of_the_book():
    wished = "Oddo ruderte alle Fässer von der Fähre. Es war Winter."
    session, engine = make(lambda ids, params: encoded(wished + " Und dann"), **IN_ONE_GO)
    done = finished(
        ask(
            session,
            long_book(1, 3),
            None,
            instructions="In German.",
            params={"max_new_tokens": len(wished) + 5},
        )
    )
    assert done.text == wished and done.stands == ()
    assert CharTokenizer().decode(engine.prompts[0]).endswith("In German.")


def test_a_summary_that_is_stopped_stays_as_far_as_it_came():
    session, _ = make(lambda ids, params: encoded("Captain Gatsby sailed to Boston. " * 3), **IN_ONE_GO)
    told = []
    for event in session.ask(Request(None, long_book(1, 3), "c"), should_stop=lambda: len(told) > 20):
        told.extend([event] if isinstance(event, Delta) else [])
    assert event.reason == "user" and event.text.startswith("Captain Gatsby") and event.stands == ()


def test_a_book_that_takes_too_long_to_read_in_one_go_is_told_in_parts():
    book, notes = long_book(), []
    for reading_mode, limit in (("auto", 0.0), ("full", 0.0), ("auto", 1e9)):
        session, engine = make(inventing, **IN_ONE_GO, read_whole_s=limit)
        done = finished(ask(session, book, None, reading_mode=reading_mode))
        notes.append((len(engine.prompts) > 1, any("part by part" in note for note in done.notes)))
        stands_in(book, done)
    assert notes == [(True, True), (False, False), (False, False)]


def test_what_is_not_borne_out_gives_way_to_what_is():
    book = long_book(1)
    stretch, plain = TellableSpan(book, Evidence(book), (0, len(book.text))), LevelledText.plain
    told = stretch.supported(plain("Gatsby gave a party. Oddo rowed to New York with Nick."), 0.3)
    assert len(told) == 2 and all(line.own for line in told)
    assert all(book.text[line.start : line.end] == line.text for line in told)
    (ended,) = stretch.supported(plain("Oddo rowed all of the barrels from the old ferry and"), 0.3)
    assert ended.own and ended.text.endswith(".")
    lines = (SummaryLine("Oddo carried all of the ledgers.", 5, 9),)
    from_lines = TellableSpan(book, Evidence(book), (0, len(book.text)), lines)
    assert from_lines.supported(plain("Gatsby sang."), 0.3) == lines


def test_whom_a_sentence_names_that_gave_way_is_not_spoken_of_behind_the_one_in_its_place():
    """ "He sang" of a sentence that was not borne out stood behind a quotation about somebody else."""
    text = "Mirabel painted the tower. Oddo rowed the barrels to the ferry. He mended the nets of the boats."
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="B")
    stretch, plain = TellableSpan(book, Evidence(book), (0, len(text))), LevelledText.plain
    borne_out = stretch.supported(plain("Oddo rowed the barrels. He mended the nets of the boats."), 0.3)
    assert [line.own for line in borne_out] == [False, False]
    told = stretch.supported(plain("Gatsby gave a party. He mended the nets of the boats."), 0.3)
    assert all(line.own and not line.text.startswith("He") for line in told)


def test_nothing_is_told_twice():
    line = SummaryLine("Oddo rowed the barrels to the ferry.", 0, 5)
    other = SummaryLine("Mirabel painted the tower of the chapel.", 5, 9)
    assert fewer([line, line, other, line], 100) == (line, other)


def test_chapters_of_parts():
    book = long_book(3)
    session, _ = make(style=style("told"))
    parts = session.reading_plan(book).parts
    assert [one.start for group in by_chapter(book, parts) for one in group] == [one.start for one in parts]
    assert len(by_chapter(book, parts)) == 3 < len(parts)


def test_composed_text_and_places_agree():
    lines = tuple(SummaryLine(f"Sentence {number}.", number, number + 1, number == 2) for number in range(7))
    levelled, stands = composed([HeadedLines("One", lines), HeadedLines("Two", lines[:1])], quoting=True)
    text = levelled.text
    assert text.startswith("## One\n\nSentence 0. Sentence 1. “Sentence 2.” ")
    assert text.endswith("\n\n## Two\n\nSentence 0.") and text.count("\n\n") == 4
    assert [text[one.start : one.end].strip("“”") for one in stands] == [
        *(line.text for line in lines),
        "Sentence 0.",
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two. And thr", "One. Two."),
        ("No end", "No end"),
        ("He said: “So.” Then", "He said: “So.”"),
        ("", ""),
    ],
)
def test_whole_sentences(text: str, kept: str):
    assert whole_sentences(text) == kept
