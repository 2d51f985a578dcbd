"""Conversations about books on an engine that only counts: what is fed, what is reused, what is said to have
been read.
"""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation.chunked_answering import ChunkedAnswering
from core.conversation.session import Session
from core.conversation.time_estimates import TimeEstimate
from core.conversation.turns import Turns
from core.conversation.verification import GreedyAgreement
from core.engine import Done
from core.errors import UserError
from core.events import Delta, Prefill, Stats, VerificationResult
from core.request import HistoryTurn, Request
from tests.support.fakes import EOS, FAKE_PLAN, CharTokenizer, FakeEngine
from tests.support.said import values, worded_by
from tests.support.talks import STYLE, ask, book, encoded, finished, make, reply_by_prompt, turns

# ---- a book that fits --------------------------------------------------------------------------------------


def test_follow_up_feeds_only_what_is_new():
    """The book must not be prefilled again for a second question."""
    session, engine = make()
    small = book(1)
    first = finished(ask(session, small, "Who came?"))
    events = ask(session, small, "And then?", history=turns("Who came?", first))
    assert engine.fed[0] > len(small.text.strip())
    # bridge and ask around it; the end token is in the cache already
    assert engine.fed[1] == len("And then?") + 3 - 1
    assert [e.total_tokens for e in events if isinstance(e, Prefill)][-1] == engine.fed[1]


def test_summary_then_question_feeds_only_what_is_new():
    """The instruction of the summary is no text the app stores: it is found again by the answer's ids."""
    session, engine = make(lambda ids, params: encoded("The lighthouse keeper came again."))
    small = book(1)
    first = finished(ask(session, small, None))
    ask(session, small, "And then?", history=turns("Summarise this book", first))
    assert engine.fed[1] == len("And then?") + 3 - 1


def test_another_conversation_shares_the_book():
    session, engine = make()
    small = book(1)
    ask(session, small, "Who came?", conversation="one")
    ask(session, small, "Who left?", conversation="two")
    assert engine.fed[1] == len("left?") + 1


def test_answers_are_never_encoded_again():
    """Text of an answer encodes to other ids than the model chose: the stored ids count."""
    session, engine = make()
    small = book(1)
    ids = [1234, 2345]
    ask(session, small, "And then?", history=(HistoryTurn("Who?", "other", tuple(ids)),))
    prompt = engine.prompts[0]
    assert any(prompt[i : i + 2] == ids for i in range(len(prompt)))
    assert not any(prompt[i : i + 5] == encoded("other") for i in range(len(prompt)))


def test_restarted_engine_rebuilds_the_same_prompt_from_history():
    small = book(1)
    old, old_engine = make()
    first = finished(ask(old, small, "Who came?"))
    ask(old, small, "And then?", history=turns("Who came?", first))
    new, new_engine = make()
    ask(new, small, "And then?", history=turns("Who came?", first))
    assert new_engine.prompts[-1] == old_engine.prompts[-1]


def test_same_turn_repeats_and_asking_again_differs():
    """A seed fixed per conversation and turn; regenerate must not give the same text again."""
    small = book(1)
    session, engine = make()
    ask(session, small, "Who?")
    ask(session, small, "Who?")
    ask(session, small, "Who?", params={"seed": 7})
    again, other = make()
    ask(again, small, "Who?")
    seeds = [params.seed for params in engine.params]
    assert other.params[0].seed == seeds[0] != seeds[1]
    assert seeds[2] == 7


def test_full_context_drops_oldest_turns_and_says_so():
    session, engine = make(context_tokens=800)
    small = book(1, 8)
    long_turns = (HistoryTurn("x" * 90, "x" * 90, tuple(encoded("y" * 90))),) * 4
    done = finished(ask(session, small, "And?", history=long_turns, params={"max_new_tokens": 50}))
    assert worded_by(Turns.turn, *done.notes)
    assert len(engine.prompts[0]) <= 800


# ---- answers -----------------------------------------------------------------------------------------------


def test_circling_answer_is_stopped_and_said_so():
    session, engine = make(lambda ids, params: encoded("Once. " + "And so on and on. " * 50))
    done = finished(ask(session, book(1), "Who?"))
    assert done.reason == "looping"
    assert done.text.startswith("Once. And so on")
    assert len(done.text) < 80
    assert list(done.token_ids) == encoded(done.text + " " * (len(done.token_ids) - len(done.text)))


def test_the_notes_of_a_circling_answer_are_its_own():
    """The engine was left in mid-answer: what it had to tell was lost, or told with the next answer."""

    class Noting(FakeEngine):
        told = 0

        def generate(self, *args, **options):
            for event in super().generate(*args, **options):
                if isinstance(event, Done):
                    Noting.told += 1
                    event = dataclasses.replace(event, notes=(f"Note {Noting.told}.",))
                yield event

    engine = Noting(lambda ids, params: encoded("Once. " + "And so on and on. " * 50))
    session = Session(engine, CharTokenizer(), STYLE, allowance_bytes=10**9)
    answers = [finished(ask(session, book(1), "Who?", conversation=name)) for name in "ab"]
    assert [(done.reason, done.notes) for done in answers] == [
        ("looping", ("Note 1.",)),
        ("looping", ("Note 2.",)),
    ]


def test_stop_keeps_what_was_said():
    session, _ = make(lambda ids, params: encoded("a" * 5 + "b" * 5))
    heard = []
    events = session.ask(Request("Who?", book(1), "c"), should_stop=lambda: len(heard) >= 3)
    for event in events:
        if isinstance(event, Delta):
            heard.append(event.text)
    assert event.reason == "user"
    assert event.text == "".join(heard) != ""


def test_text_of_the_deltas_is_the_answer():
    session, _ = make(lambda ids, params: encoded("It — is 🙂 so."))
    events = ask(session, book(1), "Who?")
    assert (
        "".join(e.text for e in events if isinstance(e, Delta)) == finished(events).text == "It — is 🙂 so."
    )
    assert EOS not in finished(events).token_ids


# ---- a book in parts ---------------------------------------------------------------------------------------


def test_sampling_that_was_left_open_is_the_models_own():
    session, engine = make()
    ask(session, book(), None, reading_mode="full", params={"repetition_penalty": 1.3, "top_p": 0.5})
    ask(session, book(), None, reading_mode="full", params={"temperature": 0.9, "top_p": None})
    asked = [(params.temperature, params.top_p, params.repetition_penalty) for params in engine.params]
    assert asked == [(STYLE.temperature, 0.5, 1.3), (0.9, STYLE.top_p, STYLE.repetition_penalty)]


def test_question_goes_to_the_part_that_matches_and_names_it():
    session, engine = make(reply_by_prompt)
    done = finished(ask(session, book(), "What about the wedding?"))
    assert done.sources == ("Chapter 3",)
    assert not any("Chapter 3" in note for note in done.notes), "what was read is said once, by sources"
    assert [values(note).get("count") for note in done.notes] == [4, 3], "parts, and those that were not read"
    assert "wedding guests" in CharTokenizer().decode(engine.prompts[0])
    assert "copper magnet" not in CharTokenizer().decode(engine.prompts[0])


def test_question_after_summary_reuses_the_part_that_was_read():
    """Its cache is kept: only the notes, the turn before and the question are fed."""
    session, engine = make(reply_by_prompt)
    long = book()
    first = finished(ask(session, long, None))
    done = finished(ask(session, long, "What about the wedding?", history=turns("Summarize", first)))
    assert done.sources[0] == "Chapter 3"
    part_tokens = len(long.text) // 4
    assert engine.fed[-1] < len(engine.prompts[-1]) - part_tokens + 10


def test_follow_up_stays_with_its_part():
    """ "And why?" names nothing: the part under discussion is meant."""
    session, engine = make(reply_by_prompt)
    first = finished(ask(session, book(), "What about the wedding?"))
    done = finished(
        ask(session, book(), "And why was that?", history=turns("What about the wedding?", first))
    )
    assert done.sources == ("Chapter 3",)
    assert engine.fed[-1] == len("And why was that?") + 2


def test_a_follow_up_after_a_restart_stays_with_its_part():
    """What was talked about is known by the conversation then, not by the process."""
    session, _engine = make(reply_by_prompt)
    first = finished(ask(session, book(), "What about the wedding?"))
    session, _engine = make(reply_by_prompt)
    again = turns("What about the wedding?", first)
    assert finished(ask(session, book(), "And why was that?", history=again)).sources == ("Chapter 3",)


def test_going_back_to_a_part_costs_no_prefill_while_memory_lasts():
    long = book()
    costs = {}
    for allowance in (10**9, 0):
        session, engine = make(reply_by_prompt, allowance_bytes=allowance)
        for question in ("The wedding?", "The magnet?", "The wedding?"):
            ask(session, long, question, conversation=question + str(len(engine.fed)))
        costs[allowance] = engine.fed[-1]
    assert costs[10**9] <= 2
    assert costs[0] > 200


def test_question_about_nothing_in_particular_is_answered_from_the_summaries():
    session, engine = make(reply_by_prompt)
    first = finished(ask(session, book(), None))
    done = finished(ask(session, book(), "Is it so?", conversation="d", history=turns("Summarize", first)))
    assert worded_by(ChunkedAnswering.answer, *done.sources) == list(done.sources)
    assert "about the copper magnet alone." in CharTokenizer().decode(engine.prompts[-1])


def test_chosen_chapter_is_what_is_read():
    session, engine = make(reply_by_prompt)
    done = finished(ask(session, book(), "What about the wedding?", chapters=(2, 2)))
    assert done.sources == ("Chapter 2",)
    assert any("Chapter 1" in values(note).get("places", "") for note in done.notes)


# ---- the rest ----------------------------------------------------------------------------------------------


def test_conversation_without_a_book():
    session, _ = make()
    assert finished(ask(session, None, "Hello?")).text == "It is so."
    with pytest.raises(UserError, match="no book"):
        ask(session, None, None)


def test_whole_is_refused_before_anything_is_read():
    session, engine = make(context_tokens=1000)
    with pytest.raises(UserError, match="in parts") as refused:
        ask(session, book(), None, reading_mode="full")
    assert "--" not in str(refused.value), "on the page there are no options"
    assert not engine.prompts


def test_card_tells_how_the_book_fits():
    session, _ = make()
    card = session.card(book())
    assert card["fits"] is False and card["parts"] == ["Chapter 1", "Chapter 2", "Chapter 3", "Chapter 4"]
    assert card["tokens"] == pytest.approx(len(book().text), abs=10)
    assert card["share_of_context"] == card["tokens"] / 4000
    assert card["prefill_s_estimate"] == pytest.approx(8.0 * card["tokens"] / 4000)


def test_the_card_counts_what_will_be_written():
    """A book in parts was announced as two minutes and took ten: its summaries are written, not only read."""
    slow = dataclasses.replace(
        FAKE_PLAN, expected_tbt_ms=200.0, expected_plain_tbt_ms=200.0, expected_middle_ms=200.0
    )
    session, engine = make(reply_by_prompt)
    session = Session(dataclasses.replace(engine, plan=slow), CharTokenizer(), STYLE, allowance_bytes=10**9)
    fresh = session.card(book())
    # four parts of 60 tokens, the whole of 512
    assert fresh["read_s_estimate"] == pytest.approx(
        (4 * 60 + 512) * 0.2 + fresh["prefill_s_estimate"], rel=0.02
    )
    ask(session, book(), None)
    known = session.card(book())
    assert known["read_s_estimate"] == pytest.approx(512 * 0.2, rel=0.02)
    whole = session.card(book(1, title="C"))
    assert whole["read_s_estimate"] == whole["prefill_s_estimate"]


def test_the_card_goes_by_measured_speed():
    """What the plan expected of this machine is worth less than what it did."""
    expectation = TimeEstimate(FAKE_PLAN)
    assert expectation.writing_s(100, 4000) == pytest.approx(0.1)
    assert expectation.writing_s(100, 0) == pytest.approx(0.05)
    expectation.answered(Stats(rounds=50, tbt_mean_ms=30.0))
    expectation.answered(Stats(rounds=50, tbt_mean_ms=50.0))
    assert expectation.writing_s(100, 4000) == pytest.approx(4.0)
    expectation.watch(Prefill(1000, 1000, 4.0))
    assert expectation.reading_s(500) == pytest.approx(2.0)


def test_one_sentence_moves_what_is_promised_by_little():
    """A telling was promised in 5 minutes, in 8 and in 5 again, by the sentence that was told last."""
    expectation = TimeEstimate(FAKE_PLAN)
    for tbt_mean_ms in [30.0] * 19 + [90.0]:
        expectation.answered(Stats(rounds=20, tbt_mean_ms=tbt_mean_ms))
    assert expectation.writing_s(100, 0) == pytest.approx(3.6, rel=0.01)
    for _sentence in range(60):
        expectation.answered(Stats(rounds=20, tbt_mean_ms=90.0))
    assert expectation.writing_s(100, 0) == pytest.approx(9.0, rel=0.05), "another pace is followed"


def test_closing_frees_every_context():
    session, engine = make(reply_by_prompt)
    ask(session, book(), None)
    session.close()
    assert engine.contexts and all(context.closed for context in engine.contexts)


# ---- re-checking -------------------------------------------------------------------------------------------


def test_verify_checks_the_answer_and_says_how_it_agrees(monkeypatch: pytest.MonkeyPatch):
    """The prompt and exactly the answer's tokens are checked, and mismatches told as they are."""
    asked: list[tuple[list[int], int]] = []

    def checked(model, context, ids, start, params) -> GreedyAgreement:
        asked.append((list(ids), start))
        return GreedyAgreement(len(ids) - start, 6, 1, 2, largest_gap=3.5, margin=0.1, log_probability=-9.0)

    monkeypatch.setattr("core.conversation.turns.verify_answer", checked)
    engine = FakeEngine(lambda ids, params: encoded("It is so."))
    session = Session(engine, CharTokenizer(), STYLE, allowance_bytes=10**9, verify=True)
    done = finished(ask(session, book(1), "Who came?"))
    ids, start = asked[0]
    assert ids[start:] == list(done.token_ids) and ids[:start] == engine.prompts[0]
    assert {"agreed": 7, "tokens": 9, "ties": 1} in map(values, done.notes)
    assert done.stats.verified == VerificationResult(9, 1, 2, 3.5, 0.1)
