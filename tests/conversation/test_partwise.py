"""A summary told in the place of the book's own sentences: these stand there first, and only what the book
bears out takes their place.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from core.conversation.announcing import announces, plainly
from core.conversation.characters import Introduction, introductions
from core.conversation.naming import in_first_person, named, points_back
from core.conversation.part_summaries import PartSummaryStore, SummaryLine
from core.conversation.reading import ReadingPart
from core.conversation.standing import PartSlot, SlottedSummary
from core.conversation.summary_layout import HeadedLines as Lines
from core.documents.document import Document, Section
from core.events import Delta, Finished, ReadingStep, SummaryDraft
from core.request import Request
from core.wire import pack, unpack
from tests.support.talks import ask, finished, make
from tests.support.told_books import long_book, stands_in, style, telling, true_of

STYLE = style("supported", supported=0.3)
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
    assert any(one.endswith("before dark.") for one in shown)
    assert max(map(len, shown)) < 200, "a sentence that has ended is told no longer"


def test_what_the_book_does_not_bear_out_gives_way_to_its_own_sentences():
    session, _ = make(telling(lambda part, params: "Captain Gatsby sailed to Boston."), style=STYLE)
    book = long_book()
    done = finished(ask(session, book, None))
    own = finished(ask(session, book, None, summaries="own"))
    assert re.sub(r"[“”\s]", "", done.text) == re.sub(r"\s", "", own.text)
    assert all(one.quoted for one in done.stands)


def test_nothing_is_said_twice_while_it_is_told():
    def twice(part: str, params) -> str:
        said = true_of(part).removesuffix(" And so he")
        return f"{said} {said} And so he"

    session, _ = make(telling(twice), style=STYLE)
    for event in ask(session, long_book(), None):
        if isinstance(event, SummaryDraft):
            said = [text_of(event)[one.start : one.end] for one in event.stands]
            assert len(said) == len(set(said))


def test_a_page_of_a_long_book_is_told_from_the_parts_that_its_sentences_stand_in():
    session, engine = make(telling(true_of), style=STYLE)
    book = long_book(12, 20)
    plan = session.reading_plan(book, reading_mode="chunked")
    done = finished(ask(session, book, None, summary_length="paragraph"))
    assert 0 < len(engine.prompts) < len(plan.parts) / 2
    stands_in(book, done)


def test_stopped_it_keeps_what_was_told_and_the_books_own_for_the_rest():
    book, session = long_book(), make(telling(true_of), style=STYLE)[0]
    parts = []
    for event in session.ask(Request(None, book, "c"), should_stop=lambda: len(parts) > 2):
        if isinstance(event, ReadingStep):
            parts.append(event)
    assert isinstance(event, Finished) and event.reason == "user"
    assert {one.quoted for one in event.stands} == {True, False}
    stands_in(book, event)
    assert any("Stopped in part 3" in note for note in event.notes)


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


def test_a_part_that_says_too_little_is_told_again_unless_the_likeliest_was_asked_for():
    def later(part: str, params) -> str:
        return true_of(part) if params.temperature > 0.5 else "It was so. And so he"

    session, engine = make(telling(later), style=DRAWING)
    done = finished(ask(session, long_book(), None))
    assert any(not one.quoted for one in done.stands)
    seeds = [params.seed for params in engine.params]
    assert len(seeds) == len(set(seeds))
    session, engine = make(telling(later), style=DRAWING)
    done = finished(ask(session, long_book(), None, params={"temperature": 0.0}))
    assert all(one.quoted for one in done.stands)
    assert {params.temperature for params in engine.params} == {STYLE.temperature}


def test_a_pronoun_stands_behind_whom_it_means_or_gets_the_name():
    def story(part: str, params) -> str:
        person, verb, thing, place = re.findall(
            r"patient (\w+) (\w+) all of the (\w+) from the old (\w+)", part
        )[-1]
        return (
            f"{person} flew to Saturn with Gatsby. He {verb} before dark all of the "
            f"{thing} from the old {place}. And so he"
        )

    session, _ = make(telling(story), style=STYLE)
    done = finished(ask(session, long_book(), None))
    told = [done.text[one.start : one.end] for one in done.stands if not one.quoted]
    assert told and not any(map(points_back, told))
    assert any(one.startswith(("Oddo", "Mirabel", "Tancred", "Ysolde")) for one in told)


def test_beside_what_was_told_no_own_sentence_points_back_to_one_that_is_not_there():
    own = (
        SummaryLine("It rolled up to the old boards and stopped.", 0, 9, True),
        SummaryLine("Mara rowed.", 10, 19, True),
    )
    slot = PartSlot(ReadingPart("One", 0, 90, 20), own)
    assert slot.lines() == list(own)
    slot.told, slot.complete = [SummaryLine("The baker wept.", 40, 60)], True
    assert [line.text for line in slot.lines()] == ["Mara rowed.", "The baker wept."]


def test_who_is_meant_is_the_subject_of_one_of_the_two_sentences_before():
    def known(name: str) -> bool:
        return name in ("Tull", "Dorcas")

    assert points_back("Then he left.") and not points_back("The man left.")
    assert named("He left.", ["Mr. Tull came in."], known) == "Mr. Tull left."
    assert named("His hat fell.", ["Dorcas ran.", "The bell rang."], known) == "Dorcas’s hat fell."
    assert named("He left.", ["Somebody came."], known) is None
    assert named("They left.", ["Mr. Tull came in."], known) is None
    assert in_first_person("I saw it.") and not in_first_person("He said, “I saw it.”")


def test_a_book_in_another_language_stands_in_its_own_sentences():
    words = "Der alte Wärter ruderte am Abend hinaus und kam nicht wieder, bevor die Flut sich wandte. "
    book = Document("B", "", "txt", words * 40, (Section("Eins", 0, 40 * len(words)),), sha256="de")
    english = dataclasses.replace(STYLE, english=True)
    session, engine = make(telling(true_of), style=english)
    done = finished(ask(session, book, None))
    assert engine.prompts == [] and done.text
    assert any("English only" in note for note in done.notes)


@pytest.mark.parametrize(
    ("announced", "plain"),
    [
        ("The story begins with Ann, who is late.", "Ann is late."),
        ("The story begins with a man named Bob Tate, who has been sent to Mars.", None),
        (
            "The story starts off with Ann and Bob at the boat, trying to leave.",
            "Ann and Bob are at the boat,",
        ),
        ("The story begins with Ann Lee, a keeper of clocks.", "Ann Lee is a keeper of clocks."),
        ("The story begins with Mr. Crane walking home.", "Mr. Crane is walking home."),
        ("The story begins when Ann comes home.", "Ann comes home."),
        ("Ann begins.", "Ann begins."),
    ],
)
def test_what_is_announced_can_be_said_plainly(announced: str, plain: str | None):
    """A name was cut in two, or a sentence lost its verb."""
    plain = plain or "A man named Bob Tate has been sent to Mars."
    assert plainly(announced).startswith(plain) and not announces(plainly(announced))


def test_what_cannot_be_said_plainly_is_not_said():
    assert plainly("The story begins with the arrival of two people.") is None


def begins_with(part: str, params) -> str:
    """Announces the story in every part, as a small model does."""
    said = true_of(part).removesuffix(" And so he")
    thing, person = re.match(r"The (.*?): (\w+)", said).group(0), re.search(r": (\w+)", said)[1]
    rest = said.removeprefix(thing).strip()
    return f"The story begins with {person}, who {rest} And so he"


def test_the_story_begins_once_also_where_its_parts_were_told_before(tmp_path):
    """ "The story begins with ..." stood in every second part of a summary."""
    session, _ = make(telling(begins_with), style=STYLE, notes=PartSummaryStore(tmp_path))
    book = long_book()
    for _time in range(2):
        done = finished(ask(session, book, None))
        told = [done.text[one.start : one.end] for one in done.stands if not one.quoted]
        assert len(told) > 2 and [announces(one) for one in told] == [True] + [False] * (len(told) - 1)
        stands_in(book, done)
    end = finished(ask(session, book, "How does it end?", reading_mode="chunked"))
    assert "Ysolde" in end.text and "begins" not in end.text, "what is told of an end does not begin"


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
    first.told.append(SummaryLine("Oddo lit the lamp.", 10, 40))
    summary.complete(first)
    before = summary.standing(second).before
    assert "".join(one.text for one in before) == "“Marigold kept the light.” Oddo lit the lamp. "
    second.told.append(SummaryLine("Oddo and Ann were late.", 110, 120))
    summary.complete(second)
    text = "".join(one.text for one in summary.standing().before)
    assert text == (
        "“Marigold kept the light.” Oddo lit the lamp. Oddo and Ann were late. “Mirabel kept the light.”"
    )


def test_no_sentence_comes_between_a_name_and_who_is_meant_by_it():
    """ "Ann came to the lifeboat. “Peg was there.” He asks her": who asked whom?"""
    slot = PartSlot(ReadingPart("I", 0, 200, 40), ())
    told = {5: "It was late.", 10: "Ann came home.", 100: "She slept there."}
    slot.told = [SummaryLine(said, at, at + 5) for at, said in told.items()]
    slot.introducing = [
        SummaryLine(f"{who} kept the light.", at, at + 5) for who, at in (("Peg", 50), ("Bob", 90))
    ]
    assert [line.start for line in slot.lines()] == [5, 50, 90, 10, 100]


def test_the_main_characters_of_a_book_are_those_it_names_most():
    book = long_book()
    found = introductions(book, [ReadingPart("all", 0, len(book.text), 1)])
    assert [sorted(one.names) for one in found] == [["Oddo"], ["Mirabel"], ["Tancred"]]
    assert all(book.text[one.line.start : one.line.end] == one.line.text for one in found)
    spoken = dataclasses.replace(book, text=book.text.replace("In winter", "“In winter"))
    assert introductions(spoken, [ReadingPart("all", 0, len(spoken.text), 1)]) == [], "somebody says it"
