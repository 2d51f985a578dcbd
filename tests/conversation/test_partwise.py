"""A summary told in the place of the book's own sentences: these stand there first, and only what the book
bears out takes their place.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from core.conversation.books import passage
from core.conversation.characters import Introduction, introductions
from core.conversation.hearing import standing_line
from core.conversation.part_summaries import PartSummaryStore, SummaryLine
from core.conversation.reading import ReadingPart
from core.conversation.standing import SlottedSummary
from core.conversation.summarization import Summaries
from core.conversation.summary import Summarizer
from core.conversation.summary_layout import HeadedLines as Lines
from core.conversation.summary_layout import retold_to
from core.conversation.supported_sentences import TellableSpan
from core.documents.document import Document, Section
from core.events import Delta, Finished, ReadingStep, SummaryDraft
from core.evidence.naming import in_first_person, named, points_back
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence
from core.request import Request
from core.text.levelled import LevelledText
from core.wire import pack, unpack
from tests.support.said import values, worded_by
from tests.support.talks import ask, finished, make
from tests.support.told_books import long_book, stands_in, style, telling, true_of

STYLE = style("supported", tellings=1)
DRAWING = dataclasses.replace(STYLE, tellings=3)


def text_of(event: SummaryDraft) -> str:
    return "".join(piece.text for piece in (*event.before, *event.telling, *event.after))


def test_the_books_own_sentences_stand_there_before_anything_is_read():
    session, engine = make(telling(true_of), style=STYLE)
    book = long_book()
    events = session.ask(Request(None, book, "c"))
    first = next(event for event in events if isinstance(event, SummaryDraft))
    assert engine.prompts == [] and not first.telling
    own = finished(ask(session, book, None, summaries="own"))
    said = re.sub(r"[“”\s]", "", text_of(first))
    assert said == re.sub(r"\s", "", own.text) and all(stand.quoted for stand in first.stands)


def test_what_is_borne_out_takes_their_place_with_its_levels_and_its_place():
    session, engine = make(telling(true_of), style=STYLE)
    book = long_book()
    events = ask(session, book, None)
    done, last = finished(events), [event for event in events if isinstance(event, SummaryDraft)][-1]
    told = [done.text[one.start : one.end] for one in done.stands if not one.quoted]
    assert len(engine.prompts) >= len(told) > 2 and "And so he" not in done.text
    stands_in(book, done)
    assert text_of(last) == done.text and last.stands == done.stands
    levels = [piece.level for piece in last.before for _char in piece.text]
    for one in done.stands:
        assert all(level == "" for level in levels[one.start : one.end]) == one.quoted
    assert done.stats.new_tokens > 0


def test_a_sentence_is_grey_until_it_ends_and_what_follows_is_added_to_it():
    session, _ = make(telling(true_of), style=STYLE)
    shown, telling_now = [], None
    for event in ask(session, long_book(), None):
        assert unpack(pack(event)) == event
        if isinstance(event, SummaryDraft):
            telling_now = list(event.telling)
        elif isinstance(event, Delta):
            telling_now += event.pieces
            shown.append("".join(piece.text for piece in telling_now))
    assert any(one.endswith("before it was dark.") for one in shown)
    assert max(map(len, shown)) < 200, "a sentence that has ended is told no longer"


def test_what_the_book_does_not_bear_out_gives_way_to_its_own_sentences():
    session, _ = make(telling(lambda part, params: "Captain Gatsby sailed to Boston."), style=STYLE)
    book = long_book()
    done = finished(ask(session, book, None))
    own = finished(ask(session, book, None, summaries="own"))
    assert re.sub(r"[“”\s]", "", done.text) == re.sub(r"\s", "", own.text)
    assert all(one.quoted for one in done.stands)


def test_nothing_is_said_twice_while_it_is_told():
    session, _ = make(telling(lambda prompt, params: true_of(prompt[:600])), style=STYLE)
    for event in ask(session, long_book(), None):
        if isinstance(event, SummaryDraft):
            said = [text_of(event)[one.start : one.end] for one in event.stands]
            assert len(said) == len(set(said))
    assert 0 < sum(not one.quoted for one in event.stands) < len(event.stands)


def test_what_is_kept_is_held_to_the_book_again():
    """“The parrot has a prior claim” stood in a summary after the rule came that it breaks."""
    book, (session, engine) = long_book(), make(telling(true_of), style=STYLE)
    for part in session.reading_plan(book, reading_mode="chunked").parts:
        for a, b in sentence_spans(book.text, part.start, part.end):
            own = SummaryLine(book.text[a:b], a, b, True)
            kept = [own, SummaryLine("Captain Gatsby sailed to Boston.", a, b)]
            session._summarizer.keep(kept, book.sha256, passage(book, part))
    assert "Gatsby" not in finished(ask(session, book, None)).text
    assert engine.prompts


def test_what_was_kept_of_two_summaries_is_not_said_twice():
    """A sentence may have been told in two of them in the place of another."""
    book, (session, engine) = long_book(), make(telling(true_of), style=STYLE)
    told = []
    for part in session.reading_plan(book, reading_mode="chunked").parts:
        sentences = [
            SummaryLine(book.text[a:b], a, b, True)
            for a, b in sentence_spans(book.text, part.start, part.end)
        ]
        last = next(one for one in reversed(sentences) if "winter" in one.text)
        told.append(SummaryLine(true_of(last.text).split(" And")[0], last.start, last.end))
        kept = [line for own in sentences for line in (own, told[-1])]
        session._summarizer.keep(kept, book.sha256, passage(book, part))
    done = finished(ask(session, book, None))
    assert engine.prompts == [] and all(done.text.count(one.text) <= 1 for one in told)
    assert any(one.text in done.text for one in told)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("I rowed all the barrels from that old ferry.", False),
        ("The keeper said: “I rowed all the barrels to market.”", True),
    ],
)
def test_a_telling_says_nothing_in_the_first_person(said: str, stands: bool):
    text = (
        "I rowed all of the barrels from the old ferry. "
        "The keeper said: “I rowed all the barrels to the market.”"
    )
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="B")
    stretch = TellableSpan(book, Evidence(book), (0, len(text)))
    assert stretch.near(said, 0.8)
    assert (standing_line(LevelledText.plain(said), stretch, 0.8, ()) is not None) == stands


def test_a_page_of_a_long_book_is_told_from_the_parts_that_its_sentences_stand_in():
    session, engine = make(telling(true_of), style=STYLE)
    book = long_book(12, 20)
    plan = session.reading_plan(book, reading_mode="chunked")
    done = finished(ask(session, book, None, summary_length="paragraph"))
    assert 0 < len(engine.prompts) < len(plan.parts) / 2
    stands_in(book, done)


def test_a_summary_of_it_all_says_so_and_counts_the_parts_as_the_card_does():
    """ "Read for this answer: Chapters III–VI", of a summary whose sentences are the best of all chapters;
    and part 7 of 15, where the card had promised 23.
    """
    session, engine = make(telling(true_of), style=STYLE)
    book = long_book(12, 20)
    plan = session.reading_plan(book, reading_mode="chunked")
    events = ask(session, book, None, summary_length="paragraph")
    steps = [one for one in events if isinstance(one, ReadingStep) and one.attempt == 1]
    assert [plan.parts[one.index - 1].label for one in steps] == [one.label for one in steps]
    assert {one.total for one in steps} == {len(plan.parts)} and len(steps) < len(plan.parts)
    assert [values(source) for source in finished(events).sources] == [{"count": 12}]


def test_a_sentence_of_the_book_is_told_once():
    """ "The mother was very choice of her daughters. The mother is very choice of her daughters, and would
    allow them to perform no labour": the shorter stood first, and the longer says more than it.
    """
    text = "The mother was very choice of her daughters, and would allow them no heavy labour at all."
    short = SummaryLine("The mother was very choice of her daughters.", 0, len(text))
    long = text.replace("was", "is")
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="B")
    stretch = TellableSpan(book, Evidence(book), (0, len(text)))
    assert standing_line(LevelledText.plain(long), stretch, 0.8, ())
    assert standing_line(LevelledText.plain(long), stretch, 0.8, [short]) is None


def stopped_in_part(number: int, book) -> Finished:
    """The end of a summary that is stopped in this part."""
    session, parts = make(telling(true_of), style=STYLE)[0], []
    for event in session.ask(Request(None, book, "c"), should_stop=lambda: len(parts) >= number):
        if isinstance(event, ReadingStep) and event.attempt == 1:
            parts.append(event)
    assert isinstance(event, Finished) and event.reason == "user"
    return event


def test_stopped_it_keeps_what_was_told_and_the_books_own_for_the_rest():
    book = long_book()
    event = stopped_in_part(3, book)
    assert {one.quoted for one in event.stands} == {True, False}
    stands_in(book, event)
    (said,) = [note for note in event.notes if values(note).get("number") == 3]
    assert worded_by(retold_to, said), "the rest stands there: nothing says that parts are missing"


def test_stopped_it_was_read_as_far_as_it_was_retold():
    """It said "Read for this answer: all 12 chapters", of which the model had read the first two parts."""
    read = [values(source) for source in stopped_in_part(3, long_book()).sources]
    assert read and {"count": 12} not in read
    assert not stopped_in_part(1, long_book()).sources


def test_a_part_that_was_stopped_in_its_middle_does_not_count_as_read(tmp_path):
    session, engine = make(telling(true_of), style=STYLE, notes=PartSummaryStore(tmp_path))
    events = ask(session, long_book(), None, should_stop=lambda: len(engine.prompts) > 1)
    assert finished(events).reason == "user" and len(engine.prompts) == 2
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_what_is_known_of_a_part_is_looked_up_once(monkeypatch):
    """Each sentence that was told before is held to the book for it, which takes a moment of a long part."""
    session, _engine = make(telling(true_of), style=STYLE)
    looked_up: list[str] = []
    known = Summarizer.known

    def noted(self, book_id: str, text: str):
        looked_up.append(text)
        return known(self, book_id, text)

    monkeypatch.setattr(Summarizer, "known", noted)
    finished(ask(session, long_book(), None))
    assert looked_up and len(set(looked_up)) == len(looked_up)


def test_told_again_it_is_decoded_again_with_another_seed(tmp_path):
    store, book = PartSummaryStore(tmp_path), long_book()
    session, engine = make(telling(true_of), style=STYLE, notes=store)
    finished(ask(session, book, None))
    told = len(engine.prompts)
    finished(ask(session, book, None))
    assert len(engine.prompts) == told, "what was told is known"
    finished(ask(session, book, None, again=True, params={"seed": 7}))
    first, second = engine.params[0], engine.params[told]
    assert len(engine.prompts) == 2 * told
    assert second.temperature > first.temperature and second.seed != first.seed


def test_what_is_not_borne_out_is_told_again_unless_the_likeliest_was_asked_for():
    def later(prompt: str, params) -> str:
        return true_of(prompt) if params.temperature > 0.5 else "It was so. And so he"

    session, engine = make(telling(later), style=DRAWING)
    done = finished(ask(session, long_book(), None))
    assert any(not one.quoted for one in done.stands)
    seeds = [params.seed for params in engine.params]
    assert len(seeds) == len(set(seeds))
    session, engine = make(telling(later), style=DRAWING)
    done = finished(ask(session, long_book(), None, params={"temperature": 0.0}))
    assert all(one.quoted for one in done.stands)
    assert {params.temperature for params in engine.params} == {STYLE.temperature}


def test_a_pronoun_that_begins_a_sentence_gets_the_name_or_it_is_not_said():
    """The subject of the sentence before it in the book is meant, not of what was told before."""

    def he(prompt: str, params) -> str:
        return re.sub(r"The patient \w+", "He", true_of(prompt))

    text = "Oddo came home by noon. He rowed all of the barrels from the old ferry. Nobody saw it. They left."
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="B")
    stretch = TellableSpan(book, Evidence(book), (0, len(text)))
    line = stretch.near("He rowed all the barrels from that old ferry.", 0.8)
    assert line and line.text == "Oddo rowed all the barrels from that old ferry."
    assert text[line.start : line.end] == "He rowed all of the barrels from the old ferry."
    session, _ = make(telling(he), style=STYLE)
    done = finished(ask(session, long_book(), None))
    assert all(one.quoted for one in done.stands), "its sentences begin with no name"


def test_a_heading_bears_nothing_out():
    """ "The seven whaling ports of the Carrow coast." stood in a summary as a sentence."""
    text = "The Seven Whaling Ports of all the Carrow Coast\n\nThe seven whaling ports sent out nine ships."
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="B")
    stretch = TellableSpan(book, Evidence(book), (0, len(text)))
    assert stretch.near("The seven whaling ports sent out the nine ships.", 0.8)
    assert stretch.near("The seven whaling ports of the Carrow coast.", 0.8) is None


def test_who_is_meant_is_the_only_one_whom_the_sentence_before_names_and_its_subject():
    """ "While Sydney Carton changed the leg on which he rested": it was Jerry."""

    def known(name: str) -> bool:
        return name in ("Tull", "Dorcas")

    assert points_back("Then he left.") and not points_back("The man left.")
    assert named("He left.", "Mr. Tull came in, for Tull was cold.", known) == "Mr. Tull left."
    assert named("His hat fell.", "Dorcas ran.", known) == "Dorcas’s hat fell."
    assert named("He left.", "Somebody came.", known) is None
    assert named("He left.", "Somebody came with Mr. Tull.", known) is None
    assert named("He left.", "Mr. Tull came in with Dorcas.", known) is None
    assert named("They left.", "Mr. Tull came in.", known) is None
    assert in_first_person("I saw it.") and not in_first_person("He said, “I saw it.”")


def test_a_book_in_another_language_stands_in_its_own_sentences():
    words = "Der alte Wärter ruderte am Abend hinaus und kam nicht wieder, bevor die Flut sich wandte. "
    book = Document("B", "", "txt", words * 40, (Section("Eins", 0, 40 * len(words)),), sha256="de")
    english = dataclasses.replace(STYLE, english=True)
    session, engine = make(telling(true_of), style=english)
    done = finished(ask(session, book, None))
    assert engine.prompts == [] and done.text
    (why,) = worded_by(Summaries.in_own_words, *done.notes)
    assert "English" in why


def test_main_characters_that_no_sentence_names_are_introduced_where_the_book_does():
    """What was told spoke of "the keeper", and nobody learned her name. What stands before a part that is
    told stays as it is: a terminal cannot take back what it wrote.
    """
    parts = [ReadingPart("I", 0, 100, 20), ReadingPart("II", 100, 200, 20)]
    own = (
        SummaryLine("The lamp was lit before dark.", 10, 40, own=True),
        SummaryLine("It was late.", 110, 120, own=True),
    )
    names = {"Marigold": 5, "Oddo": 50, "Ann": 150, "Mirabel": 160}
    summary = SlottedSummary(parts, [Lines("", own)])
    summary.main = [
        Introduction(SummaryLine(f"{name} kept the light.", at, at + 9, own=True), frozenset([name]))
        for name, at in names.items()
    ]
    first, second = summary.slots
    first.told[own[0]] = SummaryLine("Oddo lit the lamp.", 10, 40)
    summary.complete(first)
    before = summary.standing(second).before
    assert "".join(one.text for one in before) == "“Marigold kept the light.” Oddo lit the lamp. "
    second.told[own[1]] = SummaryLine("Oddo and Ann were late.", 110, 120)
    summary.complete(second)
    text = "".join(one.text for one in summary.standing().before)
    assert text == (
        "“Marigold kept the light.” Oddo lit the lamp. Oddo and Ann were late. “Mirabel kept the light.”"
    )


def test_the_main_characters_of_a_book_are_those_it_names_most():
    book = long_book()
    found = introductions(book, [ReadingPart("all", 0, len(book.text), 1)])
    assert [sorted(one.names) for one in found] == [["Oddo"], ["Mirabel"], ["Tancred"]]
    assert all(book.text[one.line.start : one.line.end] == one.line.text for one in found)
    spoken = dataclasses.replace(book, text=book.text.replace("In winter", "“In winter"))
    assert introductions(spoken, [ReadingPart("all", 0, len(spoken.text), 1)]) == [], "somebody says it"
