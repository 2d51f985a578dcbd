"""Questions answered from passages: what is read, which answer is given, what is quoted, what is not said."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation.followups import leant_on, looked_up, restated
from core.conversation.part_summaries import PartSummaryStore
from core.conversation.session import Session
from core.documents.document import Section
from core.documents.quotes import find_quotes
from core.errors import UserError
from core.events import Delta, Prefill, ReadingStep
from core.evidence.support import UNFOUND
from core.request import HistoryTurn, Request
from core.text import words
from core.text.words import in_language
from tests.support.ferry import HIDDEN, LOST, QUESTION, REFUSAL, prompts, reader, shown, told
from tests.support.modes import GRID_MODES
from tests.support.said import values, worded_by
from tests.support.talks import STYLE, ask, encoded, finished, make


def test_only_passages_are_read_and_the_answer_rests_on_the_books_words():
    session, engine = make(reader(HIDDEN))
    events = ask(session, told(pages=True), QUESTION, reading_mode="retrieval")
    done = finished(events)
    answer, place, quote = done.text.replace(":\n", "\n\n").split("\n\n")
    assert answer == "Under the third plank of the jetty."
    assert place == "Chapter 1, p. 1"
    assert quote == "> The ferryman Oddo hid the silver key under the third plank of the jetty."
    assert shown(events) == done.text and done.token_ids == tuple(encoded(done.text))
    assert 1 <= len(engine.prompts) <= 4, "the passages that share words with the question, no others"
    assert all(len(prompt) < 2500 for prompt in prompts(engine))
    assert done.plan["reading"]["mode"] == "retrieval"
    assert "Chapter 1, p. 1" in [values(one)["place"] for one in done.sources]


def test_reading_is_told_passage_by_passage_and_nothing_of_it_is_shown():
    session, _ = make(reader({**HIDDEN, "priest": "It was lost."}))
    events = ask(session, told(), QUESTION, reading_mode="retrieval")
    steps = [event for event in events if isinstance(event, ReadingStep)]
    assert [(step.index, step.purpose) for step in steps] == [
        (at, "passage") for at in range(1, len(steps) + 1)
    ]
    first_word = next(at for at, event in enumerate(events) if isinstance(event, Delta))
    assert not any(isinstance(event, (ReadingStep, Prefill)) for event in events[first_word:])


def test_every_quotation_stands_in_the_book_word_for_word():
    book = told()
    for answers in (HIDDEN, {}):
        session, _ = make(reader(answers))
        done = finished(ask(session, book, QUESTION, reading_mode="retrieval"))
        quotes = find_quotes(done.text, book)
        assert quotes and all(quote.found is not None for quote in quotes)
        for quote in quotes:
            words = " ".join(book.text[quote.found : quote.found_end].split())
            assert words in quote.text


@pytest.mark.parametrize(
    "answers",
    [
        {"priest": "Under the altar of Nidaros."},  # a name that stands in no passage
        {"third plank": "42 fathoms deep."},  # a number
        {"third plank": "The Great Gatsby keeps it."},
    ],
)
def test_an_answer_that_its_passage_does_not_bear_out_is_not_given(answers: dict[str, str]):
    session, _ = make(reader(answers))
    text = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text
    assert text.startswith(UNFOUND) and "\n> " in text
    assert not any(said in text for said in answers.values())


@pytest.mark.parametrize(
    "refused",
    [
        "The passage does not specify where the silver key of the ferryman is.",
        "The text doesn't say where Oddo hid the silver key.",
        "It is unclear where Oddo hid the silver key under the jetty.",
        "The place of the silver key is not explicitly mentioned.",
    ],
)
def test_a_refusal_in_other_words_is_one(refused: str):
    """Its words stand in the passage, as it repeats the question: they would bear it out."""
    session, _ = make(reader({"third plank": refused}))
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith(UNFOUND)


def test_an_answer_that_denies_something_is_no_refusal():
    session, _ = make(reader({"priest": "The priest did not believe the ferryman."}))
    text = finished(
        ask(session, told(), "Did the priest believe the ferryman Oddo?", reading_mode="retrieval")
    ).text
    assert text.startswith("The priest did not believe the ferryman.")


def test_a_refusal_is_not_written_to_its_end():
    """Most passages refuse, and what they write is never seen."""
    session, engine = make(reader({}))
    events = ask(session, told(), QUESTION, reading_mode="retrieval")
    written = finished(events).stats.new_tokens
    assert written < len(engine.prompts) * len(REFUSAL)


def test_the_first_passage_that_says_it_answers_and_no_more_are_read():
    """Each costs seconds before the first word."""
    session, engine = make(reader({**HIDDEN, "priest": LOST}))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert len(engine.prompts) == 1 and done.text.startswith(LOST)
    (source,) = map(values, done.sources)
    assert (source["place"], source["count"]) == ("Chapter 2", 1)
    session, engine = make(reader(HIDDEN))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert len(engine.prompts) == 2 and done.text.startswith(HIDDEN["third plank"])


@pytest.mark.parametrize(
    ("question", "answer", "given"),
    [
        ("What is the name of the ferryman with the silver key?", "The ferryman.", False),
        ("What is the name of the ferryman with the silver key?", "Oddo.", True),
        ("Is the key under the plank of silver or of copper?", "Of silver.", True),
        ("Is the key of silver?", "It is.", True),
    ],
)
def test_an_answer_in_words_of_the_question_alone_is_none(question: str, answer: str, given: bool):
    session, _ = make(reader({"third plank": answer}))
    assert finished(ask(session, told(), question, reading_mode="retrieval")).text.startswith(answer) is given


def test_of_chosen_chapters_the_book_is_not_blamed_for_their_silence():
    """Of a range that somebody forgot, "the book does not seem to say" was all that stood there."""
    session, _ = make(reader({}))
    done = finished(ask(session, told(pages=True), QUESTION, reading_mode="retrieval", chapters=(1, 1)))
    unlimited = finished(ask(session, told(pages=True), QUESTION, reading_mode="retrieval"))
    (said, *_quoted), (without, *_quoted) = done.pieces, unlimited.pieces
    assert len(values(said.text)) == len(values(without.text)) + 1, "that only these chapters were read"


def test_where_nothing_says_it_the_nearest_passages_are_shown():
    session, _ = make(reader({}))
    done = finished(ask(session, told(pages=True), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(UNFOUND) and done.text.split("\n\n")[1].startswith("Chapter ")
    assert "Chapter 1, p. 1:\n> " in done.text
    assert "hid the silver key" in done.text and done.text.count("\n> ") in (2, 3)
    assert REFUSAL not in done.text


def test_what_the_program_says_in_an_answer_comes_apart_from_the_books_words():
    """It is told in the language of whoever looks, which quotations never are."""
    session, _ = make(reader({}))
    events = ask(session, told(pages=True), QUESTION, reading_mode="retrieval")
    pieces = [piece.text for event in events if isinstance(event, Delta) for piece in event.pieces]
    with in_language("de"):
        here = "".join(words.localized(piece) for piece in pieces)
    assert here.startswith("Es wurde keine Antwort gefunden. Am nächsten kommen:\n\nKapitel ")
    assert "Kapitel 1, S. 1:\n> " in here and "hid the silver key" in here


def test_a_question_that_shares_no_word_with_the_book_is_not_guessed_at():
    session, engine = make(reader({}))
    done = finished(ask(session, told(), "Warum?", reading_mode="retrieval"))
    assert done.text.startswith(UNFOUND) and "names" in done.text
    assert engine.prompts == []


def test_chapters_that_were_not_chosen_are_not_looked_at():
    session, engine = make(reader(HIDDEN))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", chapters=(2, 4)))
    assert "third plank" not in "".join(prompts(engine)) + done.text
    assert "Chapter 1" in [values(note).get("places", "").partition(",")[0] for note in done.notes]


# ---- follow-ups --------------------------------------------------------------------------------------------


def test_a_follow_up_is_looked_up_and_put_with_the_question_before_it():
    """ "And why did he?" names nothing: alone it finds nothing, and no passage could answer it."""
    session, engine = make(reader(HIDDEN))
    book = told()
    first = finished(ask(session, book, "Where did Oddo hide the silver key?", reading_mode="retrieval"))
    said = (HistoryTurn("Where did Oddo hide the silver key?", first.text, first.token_ids),)
    ask(session, book, "And why did he?", reading_mode="retrieval", history=said)
    last = prompts(engine)[-1]
    assert "Where did Oddo hide the silver key? Under the third plank of the jetty. And why did he?" in last
    assert "> " not in last, "the quotation below an answer is not put again"
    assert any("Nobody saw him do it" in prompt for prompt in prompts(engine)[len(prompts(engine)) // 2 :])


def test_a_follow_up_of_a_follow_up_is_about_the_same():
    """What the second leans on is what the third is about; a word that only begins an answer is no name."""
    said = (
        HistoryTurn("Who came home first?", "The herring boats."),
        HistoryTurn("Where did Oddo hide the silver key?", "Under the plank, by Sigrun."),
        HistoryTurn("And why did he?", "He was alone."),
    )
    asked = Request("And what happened then?", book=told(), history=said)
    assert [one.question for one in leant_on(asked)] == [one.question for one in said[1:]]
    words = looked_up(asked)
    assert "silver key" in words
    assert "Sigrun" in words
    assert "Under" not in words.split()
    assert "herring" not in words
    assert restated(asked) == (
        "Where did Oddo hide the silver key? Under the plank, by Sigrun. And why did he? He was alone. "
        "And what happened then?"
    )


def test_a_question_that_stands_alone_is_put_alone():
    session, engine = make(reader({}))
    said = (HistoryTurn("Where did Oddo hide the silver key?", "Under the plank.", (5,)),)
    ask(
        session,
        told(),
        "How many herring boats came home before the storm?",
        reading_mode="retrieval",
        history=said,
    )
    assert not any("Oddo hide" in prompt for prompt in prompts(engine))


def test_a_refusal_is_not_repeated_to_the_model():
    session, engine = make(reader({}))
    first = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    said = (HistoryTurn(QUESTION, first.text, first.token_ids),)
    ask(session, told(), "And who hid it?", reading_mode="retrieval", history=said)
    assert prompts(engine)[-1].endswith(f"{QUESTION} And who hid it?")
    assert UNFOUND not in prompts(engine)[-1]


@pytest.mark.parametrize(
    ("question", "leans"),
    [
        ("And why did he?", True),
        ("What happened to it then?", True),
        ("Why?", True),
        ("Who is Ogilvy the astronomer?", False),
        ("Who dies in the great fire?", False),
        ("What is ambergris?", False),  # one content word, and whole: it was asked of the ribs before it
        ("Who's the abbot?", False),
        ("Wer ist der Abt?", False),
        ("Who is he?", True),
        ("And the abbot?", True),
        ("Warum hat er den Schlüssel vergraben?", True),
        ("Und warum hat sie das getan?", True),
        ("Wer hat den silbernen Schlüssel vergraben?", False),
        ("他为什么把钥匙藏起来？", True),
        ("奥多把银钥匙藏在哪里？", False),
    ],
)
def test_which_questions_lean(question: str, leans: bool):
    asked = Request(question, history=(HistoryTurn("Who?", "He.", (5,)),))
    assert bool(leant_on(asked)) == leans


# ---- contexts, parameters, stopping ------------------------------------------------------------------------


def test_a_passage_that_was_read_is_not_read_again():
    session, engine = make(reader(HIDDEN))
    ask(session, told(), QUESTION, reading_mode="retrieval")
    before = len(engine.fed)
    ask(session, told(), QUESTION, reading_mode="retrieval", conversation="other", params={"seed": 1})
    again = engine.fed[before:]
    assert again and max(again) <= 1


def test_passages_do_not_send_the_open_book_away():
    """What was read for hours must be there when the person goes back to it."""
    from tests.support.fakes import BYTES_PER_TOKEN

    book = told()
    room = (len(book.text) + 3000) * BYTES_PER_TOKEN
    session, engine = make(
        reader(HIDDEN),
        context_tokens=12_000,
        allowance_bytes=room,
        style=dataclasses.replace(STYLE, whole_tokens=None),
    )
    ask(session, book, "Who came?", reading_mode="full")
    for question in (QUESTION, "Who is the priest?", "What did the widow find?", "Which boats came home?"):
        ask(session, book, question, reading_mode="retrieval", conversation="other")
    session._engine.fed.clear()
    ask(session, book, "Who came?", reading_mode="full", params={"seed": 2})
    assert engine.fed == [0] or engine.fed[0] <= 2
    kept = sum(context.nbytes for context in engine.contexts if not context.closed)
    assert kept <= room + 3000 * BYTES_PER_TOKEN


def test_answers_are_short_and_drawn_as_set():
    session, engine = make(reader(HIDDEN))
    ask(
        session,
        told(),
        QUESTION,
        reading_mode="retrieval",
        params={"temperature": 0.7, "seed": 9, "mode": "draft"},
    )
    assert {(one.temperature, one.seed, one.mode) for one in engine.params} == {(0.7, 9, "draft")}
    assert all(one.max_new_tokens <= STYLE.note_tokens for one in engine.params)


@pytest.mark.parametrize(("asked", "penalty"), [({}, 1.0), ({"repetition_penalty": 1.3}, 1.3)])
def test_words_of_the_passage_may_be_repeated_unless_somebody_wants_it_otherwise(asked, penalty: float):
    """A penalty on what the prompt has keeps a model from the passage's own names."""
    style = dataclasses.replace(STYLE, repetition_penalty=1.1)
    session, engine = make(reader(HIDDEN), style=style)
    ask(session, told(), QUESTION, reading_mode="retrieval", params=asked)
    assert {one.repetition_penalty for one in engine.params} == {penalty}
    session, engine = make(reader(HIDDEN), style=style)
    ask(session, told(), QUESTION, reading_mode="chunked", params=asked)
    assert {one.repetition_penalty for one in engine.params} == {asked.get("repetition_penalty", 1.1)}


@pytest.mark.parametrize("mode", GRID_MODES)
def test_the_same_seed_gives_the_same_answer(mode: str):
    texts = [
        finished(
            ask(
                make(reader(HIDDEN))[0],
                told(),
                QUESTION,
                reading_mode="retrieval",
                params={"seed": 3, "mode": mode},
            )
        ).text
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_a_stop_says_in_which_passage_it_was():
    session, engine = make(reader(HIDDEN))

    def stop_in_the_second() -> bool:
        return len(engine.prompts) > 1

    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=stop_in_the_second))
    assert (done.reason, done.text) == ("user", "")
    assert any("passage 2 of" in note for note in done.notes)
    session, _ = make(reader(HIDDEN))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=lambda: True))
    assert (done.reason, done.text) == ("user", ""), "what was not looked for is not called missing"


def test_a_question_too_long_for_the_context_is_refused_in_words():
    session, _ = make(reader({}), context_tokens=3000)
    with pytest.raises(UserError, match="Ask a shorter question"):
        ask(session, told(), "key " * 900, reading_mode="retrieval")


# ---- what is chosen where nothing was ----------------------------------------------------------------------


def test_what_would_take_too_long_is_answered_from_passages_and_says_so():
    book = told()
    slow, engine = make(reader(HIDDEN), context_tokens=12_000, read_whole_s=0.5)
    done = finished(ask(slow, book, QUESTION))
    assert done.plan["reading"]["mode"] == "retrieval"
    assert worded_by(Session._plan_for, *done.notes)
    patient, _ = make(reader(HIDDEN), context_tokens=12_000, read_whole_s=1e6)
    assert finished(ask(patient, book, QUESTION)).plan["reading"]["mode"] == "chunked"
    assert slow.card(book)["from_passages"] and not patient.card(book)["from_passages"]
    assert slow.card(book)["passages_s_estimate"] > 0


def test_a_card_says_whether_its_times_were_measured_here():
    """What the plan expects of a computer at rest was promised like what answers took."""
    session, _engine = make(reader(HIDDEN), context_tokens=12_000)
    before = session.card(told())["is_measured"]
    session._expectation.passage_took(3.0, session._style, 300)
    assert (before, session.card(told())["is_measured"]) == (False, True)


def test_a_text_of_one_passage_is_promised_the_time_of_one():
    """129 words, which are read in 1.3 s, were promised an answer in 30 s: the time of eight passages."""
    session, _engine = make(reader(HIDDEN), context_tokens=12_000)
    book = told()
    short = dataclasses.replace(
        book, text=book.text[:200], sections=(Section("One", 0, 200),), sha256="e" * 64
    )
    assert session.card(short)["passages_s_estimate"] < session.card(book)["passages_s_estimate"] / 2


def test_a_book_that_was_read_already_is_not_answered_from_passages():
    """The time that counts is what is still to be read."""
    book, style = told(), dataclasses.replace(STYLE, whole_tokens=None)
    session, _ = make(reader(HIDDEN), context_tokens=12_000, read_whole_s=1.0, style=style)
    assert session.card(book)["from_passages"]
    ask(session, book, "Who came?", reading_mode="full")
    assert not session.card(book)["from_passages"]
    assert finished(ask(session, book, QUESTION)).plan["reading"]["mode"] == "full"


def test_a_model_that_reads_passages_best_is_given_them():
    style = dataclasses.replace(STYLE, passages=True)
    session, engine = make(reader(HIDDEN), style=style)
    assert finished(ask(session, told(), QUESTION)).plan["reading"]["mode"] == "retrieval"
    assert session.card(told())["from_passages"]
    # where the words point nowhere, the beginning of the book would answer no better
    done = finished(ask(session, told(), "Warum?", conversation="d"))
    assert done.plan["reading"]["mode"] == "retrieval" and done.text.startswith(UNFOUND)
    assert (
        finished(ask(session, told(), QUESTION, reading_mode="chunked")).plan["reading"]["mode"] == "chunked"
    )


def test_a_summary_is_read_as_if_nothing_had_been_chosen():
    for reading_mode in ("retrieval", "auto"):
        session, engine = make(notes=PartSummaryStore(), read_whole_s=0.0)
        done = finished(ask(session, told(), None, reading_mode=reading_mode))
        assert done.plan["reading"]["mode"] == "chunked"
        assert len(engine.prompts) > 4


@pytest.mark.parametrize(
    ("answer", "nearest"), [("Under the third plank of the jetty.", False), ("With great sadness.", True)]
)
def test_a_quotation_without_the_answers_words_is_called_the_nearest_passage(answer: str, nearest: bool):
    """Below an answer whose words it has not it looked like the proof."""
    session, _ = make(reader({"third plank": answer}))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(answer) and "\n> " in done.text
    assert any("Nearest" in piece.text for piece in done.pieces) is nearest
