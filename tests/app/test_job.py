"""What a stream of events becomes on the page and in the history: parts beside the answer, retries replaced,
stretches in a row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace

import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.answer_snapshot import Snapshot
from app.desk.store import Store
from app.store.history import History
from app.web.regions import progress_html
from core.events import (
    AttentionEvidence,
    DecodingStarted,
    Delta,
    Event,
    Failed,
    Finished,
    Piece,
    Prefill,
    ReadingStep,
    RoundStats,
    SourceSpan,
    Stats,
    SummaryDraft,
)
from core.request import Request
from core.wire import unpack_looked
from tests.support.said import values

STATS = Stats(model="m", new_tokens=3)
STARTED = DecodingStarted("triforce", "m", 100, 9, 0)


def said(text: str, level: str = "target", tokens: int = 3) -> Delta:
    """One round; of no level: there at once."""
    return Delta((Piece(text, level),), (RoundStats(tokens, 0.1),) if level else ())


@pytest.fixture
def history(tmp_path) -> History:
    return History(tmp_path / "talks.db")


def put(history: History) -> Request:
    """A question in a conversation of its own."""
    return Request("Who?", conversation_id=history.create("book").id)


def watched(
    history: History, events: Iterable[Event], look: Callable[[Snapshot], None], **options
) -> AnswerJob:
    """The job after all events; `look` is given what the state shows of the answer after each change."""
    store = Store()
    store.watch(lambda: look(store.state.answer))
    job = AnswerJob(iter(events), history, put(history), store, Callbacks(), **options)
    job.start()
    assert job.join(10)
    return job


def played(history: History, *events) -> tuple[AnswerJob, list]:
    """The job after all events, and the text that stood there after each."""
    seen: list[str] = []
    return watched(history, events, lambda now: seen.append(now.text)), seen


def test_the_figures_are_those_of_all_stretches_while_they_come(history):
    """The panel showed the last stretch alone. A text that is there at once was decoded before."""
    counted = []
    events = (
        ReadingStep(1, 2, "One", "part summary"),
        STARTED,
        said("The keeper rowed."),
        ReadingStep(1, 2, "One", "part summary", attempt=2),
        said("The keeper rowed.", ""),
        ReadingStep(1, 1, "the whole book", "whole summary"),
        STARTED,
        said("He rowed.", "draft", 2),
        Finished("stop", "He rowed.", replace(STATS, new_tokens=5)),
    )
    hours = itertools.count()
    watched(history, events, lambda now: counted.append(now.stats), clock=lambda: 3600.0 * next(hours))
    assert [one.new_tokens for one in counted if one] == sorted(one.new_tokens for one in counted if one)
    assert {one.new_tokens for one in counted if one} == {3, 5}


def test_the_end_brings_its_colours_whatever_was_streamed_before_it(history):
    """A summary is put together of what was decoded: its colours were guessed, by looking for sentences."""
    end = (Piece("He said: ", ""), Piece("The keeper rowed", "draft"), Piece(" out.", "retrieval"))
    text = "".join(piece.text for piece in end)
    job, _ = played(
        history, said("The keeper rowed out. And then"), Finished("length", text, STATS, pieces=end)
    )
    assert job.snapshot.pieces == end
    (turn,) = history.turns(job.conversation_id)
    assert turn.extra["level_pieces"] == [[piece.text, piece.level] for piece in end]


def test_parts_stand_beside_the_answer_and_a_retry_replaces_its_part(history):
    job, _ = played(
        history,
        ReadingStep(1, 2, "One", "part summary"),
        Prefill(9, 9, 1.0),
        said("A pirate."),
        ReadingStep(1, 2, "One", "part summary", attempt=2),
        said("The keeper rowed."),
        ReadingStep(2, 2, "Two", "part summary"),
        said("The bell rang."),
        ReadingStep(1, 1, "the whole book", "whole summary"),
        said("He rowed and rang."),
        Finished("stop", "He rowed and rang.", STATS),
    )
    assert job.snapshot.parts == (("One", "The keeper rowed."), ("Two", "The bell rang."))
    assert job.snapshot.text == "He rowed and rang."


def test_what_was_told_of_parts_stays_when_the_engine_dies_and_stands_once(history):
    """Only the part at hand was kept in the conversation; what was told before it was gone with the page."""
    job, _ = played(
        history,
        ReadingStep(1, 2, "One", "part summary"),
        said("The keeper rowed."),
        ReadingStep(2, 2, "Two", "part summary"),
        said("The bell"),
        Failed("The engine stopped."),
    )
    (turn,) = history.turns(job.conversation_id)
    assert turn.state == "failed" and turn.text == "## One\n\nThe keeper rowed.\n\nThe bell"
    assert "".join(text for text, _level in turn.extra["level_pieces"]) == turn.text
    assert job.snapshot.parts == ()


def test_a_summary_in_levels_has_one_bar_that_is_met(history):
    """Each part had a bar of its own from nothing to all, and none while it was told."""
    bars = []
    events = (
        ReadingStep(1, 2, "One", "part summary", left_s=100.0),
        Prefill(9, 9, 1.0),
        said("The keeper rowed."),
        ReadingStep(2, 2, "Two", "part summary", left_s=60.0),
        said("The bell rang."),
        ReadingStep(1, 1, "the whole book", "whole summary", left_s=20.0),
        said("He rowed and rang."),
        Finished("stop", "He rowed and rang.", STATS),
    )

    def look(now: Snapshot) -> None:
        if shown := progress_html(now):
            bars.append(float(re.search(r"width:([\d.]+)%", shown).group(1)))

    watched(history, events, look)
    assert bars == sorted(bars) and bars[0] == 0 and bars[-1] == 90 and {25, 40, 70, 80} <= set(bars)


def test_stretches_of_the_whole_follow_each_other_and_a_retry_takes_back_only_its_own(history):
    text = "## One\n\nHe rowed.\n\n## Two\n\nIt rang."
    job, seen = played(
        history,
        ReadingStep(1, 1, "Part", "part summary"),
        said("note"),
        ReadingStep(1, 2, "One", "whole summary"),
        said("## One\n\n", ""),
        said("He rowed."),
        ReadingStep(2, 2, "Two", "whole summary"),
        said("\n\n## Two\n\n", ""),
        said("A pirate came."),
        ReadingStep(2, 2, "Two", "whole summary", attempt=2),
        said("\n\n## Two\n\n", ""),
        said("It rang."),
        Finished("stop", text, STATS, pieces=(Piece("## One\n\n", ""), Piece(text[8:], "target"))),
    )
    assert "## One\n\nHe rowed.\n\n## Two\n\nA pirate came." in seen
    assert job.snapshot.text == text and job.snapshot.parts == (("Part", "note"),)
    assert {piece.level for piece in job.snapshot.pieces} == {"", "target"}


def test_headings_without_figures_do_not_wipe_the_panel(history):
    shown = []
    events = [
        ReadingStep(1, 2, "One", "whole summary"),
        STARTED,
        said("He rowed."),
        said("\n\n## Two", ""),
        Finished("stop", "x", STATS),
    ]
    watched(history, events, lambda now: shown.append(now.stats))
    assert all(stats is None or stats.model == "m" for stats in shown)


def test_looks_are_kept_with_the_answer_they_belong_to(history):
    """Sentences are told apart by their number: looks of what was written before must not count with them."""
    look, other = AttentionEvidence(0, ((12, 0.5),)), AttentionEvidence(1, ((7, 0.25), (12, 0.125)))
    job, _ = played(
        history,
        ReadingStep(1, 1, "One"),
        said("A draft."),
        AttentionEvidence(0, ((99, 1.0),)),
        ReadingStep(1, 1, "One", attempt=2),
        said("He rowed. It rang."),
        look,
        other,
        Finished("stop", "He rowed. It rang.", STATS),
    )
    assert job.snapshot.looked == (look, other)
    (turn,) = history.turns(job.conversation_id)
    assert tuple(unpack_looked(one) for one in turn.extra["looked"]) == (look, other)


def test_a_summary_told_in_place_grows_where_it_is_told(history):
    own, rest = Piece("“The sea lay still.”", ""), Piece(" “It rained.”", "")
    stands = (SourceSpan(1, 19, 0, 18, True), SourceSpan(22, 32, 30, 40, True))
    told = Piece("He rowed.", "target")
    job, seen = played(
        history,
        ReadingStep(1, 2, "One", "telling", left_s=9.0),
        SummaryDraft((own, Piece(" ", "")), (), (rest,), stands),
        said("He ro"),
        said("wed."),
        ReadingStep(1, 2, "One", "telling", attempt=2),
        SummaryDraft(
            (told, Piece(" ", "")), (), (rest,), (SourceSpan(0, 9, 0, 18), SourceSpan(12, 22, 30, 40, True))
        ),
        said("He sang."),
        ReadingStep(2, 2, "Two", "telling", left_s=4.0),
        SummaryDraft(
            (told, Piece(" ", "")), (), (rest,), (SourceSpan(0, 9, 0, 18), SourceSpan(12, 22, 30, 40, True))
        ),
        SummaryDraft((told, rest), stands=(SourceSpan(0, 9, 0, 18), SourceSpan(11, 21, 30, 40, True))),
        Finished("stop", told.text + rest.text, STATS, pieces=(told, rest)),
    )
    assert f"{own.text} He rowed.{rest.text}" in seen
    assert f"{told.text} He sang.{rest.text}" in seen and not any("rowed.He sang" in one for one in seen)
    assert job.snapshot.text == told.text + rest.text and job.snapshot.parts == ()
    assert [piece.level for piece in job.snapshot.pieces] == ["target", ""]


def test_a_summary_whose_engine_dies_keeps_what_stands_without_the_sentence_under_way(history):
    own, rest = Piece("He rowed. ", "target"), Piece(" “It rained.”", "")
    job, _seen = played(
        history,
        ReadingStep(2, 3, "Two", "telling"),
        SummaryDraft((own,), (), (rest,), (SourceSpan(0, 9, 0, 18),)),
        said("Captain Gats"),
        Failed("The engine ended."),
    )
    stored = history.turns(job.conversation_id)[-1]
    assert stored.state == "failed" and stored.text == own.text + rest.text
    assert stored.extra["stands"] == [asdict(SourceSpan(0, 9, 0, 18))] and stored.extra["error"]
    assert values(stored.extra["notes"][-1]) == {"number": 2, "count": 3}, "how far it was told"


def test_a_summary_that_is_stored_while_it_is_told_lacks_the_sentence_under_way(history, monkeypatch):
    """A power cut left `... her husband. Hen “She was a small, upright woman` as the answer for good."""
    own, rest = Piece("He rowed. ", "target"), Piece(" “It rained.”", "")
    stored, hours, update = [], itertools.count(), history.update

    def kept(conversation_id: str, turn: int, text: str, **more: object) -> None:
        stored.append(text)
        update(conversation_id, turn, text, **more)

    monkeypatch.setattr(history, "update", kept)
    events = (
        ReadingStep(1, 1, "One", "telling"),
        SummaryDraft((own,), (), (rest,)),
        said("Captain Gats"),
        Failed("The engine ended."),
    )
    watched(history, events, lambda now: None, clock=lambda: 3600.0 * next(hours))
    assert stored == [own.text + rest.text] * 2


def test_what_is_told_moves_the_places_behind_it():
    before, after = Piece("One. ", ""), Piece(" Two.", "")
    told = Snapshot(
        standing=SummaryDraft(
            (before,),
            (Piece("Telling", "ngram"),),
            (after,),
            (SourceSpan(0, 4, 0, 4), SourceSpan(6, 10, 9, 13)),
        )
    )
    assert told.telling == (5, 12)
    assert [(one.start, one.end) for one in told.stands] == [(0, 4), (13, 17)]


def test_a_passage_that_takes_longer_than_promised_is_said_to(history):
    """ "about 10 s left" stood still through the first of six passages, which took nine by itself."""
    now, late = [0.0], []

    def events():
        yield ReadingStep(1, 6, "One", "passage", left_s=12.0)
        for seconds in (2.0, 4.0):
            now[0] = seconds
            late.append((job.late, progress_html(job.snapshot, job.late)))
        yield ReadingStep(2, 6, "Two", "passage", left_s=20.0)
        late.append((job.late, progress_html(job.snapshot, job.late)))
        yield Finished("end", "", STATS)

    store, asked = Store(), put(history)
    job = AnswerJob(events(), history, asked, store, Callbacks(), clock=lambda: now[0])
    job.start()
    assert job.join(10) and not job.late
    assert [one for one, _html in late] == [False, True, False]
    assert ["10\u00a0s" in html for _late, html in late] == [True, False, False]
