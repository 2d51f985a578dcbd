"""Which of many answers is given: features, scores, and what a session does with them."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise
from types import SimpleNamespace

import pytest

from app.web.citations import Citations
from core.conversation import verifier
from core.conversation.passage_reading import Candidate
from core.conversation.reranking import ScoredPassage
from core.conversation.retrieval_answering import SHORT_PASSAGES
from core.conversation.retrieval_result import RetrievalState
from core.conversation.verification import GreedyAgreement
from core.conversation.verifier import NAMES, PassageAnswers, ScoredAnswer, Verifier, scored_answers
from core.documents.document import Document, Section
from core.errors import UserError
from core.events import ReadingStep
from core.evidence.passages import Passage
from core.evidence.support import HEDGE, UNFOUND, Evidence
from core.request import Request
from tests.support.fakes import CharTokenizer
from tests.support.ferry import FACTS, HIDDEN, LOST, QUESTION, REFUSAL, reader, told
from tests.support.said import values
from tests.support.talks import STYLE, ask, encoded, finished, make

AGREED = tuple(float(name == "agreement over all passages") for name in NAMES)
JUDGED = dataclasses.replace(STYLE, consensus=2, verifier="a")
BORNE_OUT = tuple(float(name == "borne out") for name in NAMES)


def weighing(feature: str) -> Verifier:
    """One that goes by this alone."""
    return Verifier(0.0, tuple(float(name == feature) for name in NAMES), 0.0, 0.0, 0.0)


def judging(replies, given: float, marked: float, weights=AGREED):
    """A session whose verifier goes by these weights."""
    session, engine = make(replies if callable(replies) else reader(replies), style=JUDGED)
    return session, engine, Verifier(0.0, weights, given, marked, given)


@pytest.fixture
def uses(monkeypatch):
    return lambda judge: monkeypatch.setattr(verifier, "load_verifier", lambda name: judge)


def said(witnesses: list[PassageAnswers], found: list[ScoredAnswer]) -> list[str]:
    return [witnesses[one.witness].said[one.at][0] for one in found]


def witnesses(evidence: Evidence, *texts: tuple[str, ...]) -> list[PassageAnswers]:
    passages = evidence.passages
    return [
        PassageAnswers(ScoredPassage(passages[at], 1.0, -50.0, -9.0), tuple((text, -1.0) for text in several))
        for at, several in enumerate(texts)
    ]


def test_refusals_echoes_and_other_kinds_are_no_candidates():
    evidence = Evidence(told())
    heard = witnesses(evidence, ("The silver key.", REFUSAL, "", "Under the plank.", "Under the plank."))
    assert said(heard, scored_answers(QUESTION, heard, evidence)) == ["Under the plank."]
    heard = witnesses(evidence, ("Under the plank.", "Three."))
    assert said(heard, scored_answers("How many keys had Oddo?", heard, evidence)) == ["Three."]


def test_an_answer_that_other_passages_agree_with_is_worth_more():
    evidence = Evidence(told())
    heard = witnesses(evidence, ("the jetty", "a boat"), ("the jetty", REFUSAL), ("an owl", "an owl"))
    judge = weighing("agreement over all passages")
    best, score = judge.best(scored_answers("What did the ferryman see?", heard, evidence))
    assert said(heard, [best]) == ["the jetty"]
    assert score == pytest.approx((0.5 + 0.5 + 0.0) / 3)  # of a boat and a refusal nothing is in common


def test_where_the_other_passages_refuse_what_one_says_can_be_told_from_where_all_say_something():
    """A reader that finds something in every passage finds it in the wrong ones, too."""
    evidence, question = Evidence(told()), "What did the ferryman see?"
    alone = witnesses(evidence, ("an owl", "an owl"), (REFUSAL, ""), (REFUSAL, REFUSAL))
    crowd = witnesses(evidence, ("an owl", "an owl"), ("a boat", "a boat"), (REFUSAL, "a key"))
    judge = weighing("refusals of all that was said")
    for heard, refusals in ((alone, 4 / 6), (crowd, 1 / 6)):
        assert judge.best(scored_answers(question, heard, evidence))[1] == pytest.approx(refusals)


def test_words_that_stand_in_many_passages_are_told_from_rare_ones():
    """Passages agree on the hero of a book by chance. The question's own words and titles do not count."""
    evidence = Evidence(told())
    heard = witnesses(evidence, ("Mr. Oddo", "Brandt's key", "Tales and Brandt"))
    found = scored_answers("Whose key is it?", heard, evidence)
    common = [one.features[NAMES.index("passages that hold its words")] for one in found]
    everywhere, twice, once = (math.log1p(number) for number in (len(evidence.passages), 2, 1))
    assert common == pytest.approx([twice, once, (everywhere + once) / 2])


def test_all_passages_are_asked_and_the_likeliest_to_be_right_is_given(uses):
    """The first passage says something else; its answer was given before the others were asked."""
    session, _, judge = judging({**HIDDEN, "priest": LOST}, 0.5, 0.5, BORNE_OUT)
    uses(judge)
    events = ask(session, told(), QUESTION, reading_mode="retrieval")
    done = finished(events)
    read = [one for one in events if isinstance(one, ReadingStep)]
    assert len(read) == read[0].total and done.stats.answers == 3 * len(read)
    assert done.text.split("\n\n")[0] in (LOST, HIDDEN["third plank"])
    assert set(done.drawn) == {"passage", "temperature", "top_p", "instructed"}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Did Oddo hide the key?", "No."),  # whatever the passage says
        ("What did Oddo hide?", "Brandt."),  # whom the passage does not know
    ],
)
def test_what_its_passage_cannot_bear_out_has_no_mark(uses, question, answer):
    """ "No." stood, with a mark, above the sentence that says yes."""
    session, _engine, judge = judging({"third plank": answer}, 0.01, 0.02)
    uses(judge)
    done = finished(ask(session, told(), question, reading_mode="retrieval"))
    assert done.text.startswith(f"{HEDGE} {answer}")
    assert [one.borne_out for one in done.stands] == [False]


@pytest.mark.parametrize(
    ("question", "answer", "marked", "bears"),
    [
        ("How many sheep did the ferry carry?", "Four.", 0.02, False),  # four barrels, however sure it is
        ("How many sheep did the ferry carry?", "Nine.", 9.0, True),
        ("When did the ferry carry nine sheep?", "On 3 May 1811.", 9.0, True),
        ("Where did the ferry carry nine sheep?", "To Elsinore.", 9.0, False),
    ],
)
def test_what_the_book_counts_or_dates_in_these_words_has_a_mark(uses, question, answer, marked, bears):
    """A circle stood behind the words of the sentence below it, and a mark behind the number of tons."""
    session, _engine, judge = judging({"barrels": answer}, 0.01, marked)
    uses(judge)
    book = told((*FACTS, "The ferry did carry four barrels and nine sheep to Elsinore on 3 May 1811."))
    done = finished(ask(session, book, question, reading_mode="retrieval"))
    assert done.text.startswith(answer if bears else f"{HEDGE} {answer}")
    assert [one.borne_out for one in done.stands] == [bears]


@pytest.mark.parametrize("question", ["Who is Tancred Moss?", "who was tancred"])
@pytest.mark.parametrize(("given", "marked"), [(0.01, 0.02), (0.01, 9.0), (9.0, 9.0)])
def test_who_somebody_is_says_the_book_where_no_answer_is_sure(uses, given, marked, question):
    """“Perhaps: A deaf man.” stood above what the book says of a judge who is a woman."""
    session, _engine, judge = judging({"Tancred": "A shepherd."}, given, marked)
    uses(judge)
    who = "Tancred Moss was the miller of the island, and deaf in one ear."
    other = "Nobody on the island asked Tancred Moss about the shepherd."
    done = finished(ask(session, told((*FACTS, who, other)), question, reading_mode="retrieval"))
    assert done.text.endswith(f"> {who}") is (marked > 1)
    assert done.text.startswith("A shepherd.") is (marked < 1) and HEDGE not in done.text
    assert bool(done.stands) is (marked < 1)
    done = finished(ask(session, told((*FACTS, who)), question, reading_mode="retrieval"))
    assert not done.text.startswith("Tancred Moss"), "who is named once is nobody of the list"


@pytest.mark.parametrize(("given", "marked"), [(0.01, 0.02), (0.01, 9.0), (9.0, 9.0)])
def test_what_is_likely_wrong_is_not_given_and_what_may_be_wrong_has_no_mark(uses, given, marked):
    session, _engine, judge = judging(HIDDEN, given, marked)
    uses(judge)
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    if given > 1:
        assert done.text.startswith(UNFOUND) and not done.stands
        return
    answer = done.text.split("\n\n")[0]
    (stand,) = done.stands
    assert done.text[stand.start : stand.end] == HIDDEN["third plank"]
    assert answer == (HIDDEN["third plank"] if marked < 1 else f"{HEDGE} {HIDDEN['third plank']}")
    assert stand.borne_out is (marked < 1)
    cited = Citations()(done.text, told(), QUESTION, (), done.stands)
    (sign,) = [one for one in cited.citations if one.kind]
    assert sign.kind == ("agrees" if marked < 1 else "nothing")
    assert "third plank" in told().text[sign.offset : sign.offset + sign.length]


@pytest.mark.parametrize(
    ("beside", "several"), [({"expected": 0.75}, [False, True]), ({"refusals": 0.7}, [True, False])]
)
def test_a_mark_counts_how_much_is_likely_right_and_how_much_refused(uses, beside, several: list[bool]):
    """Its own odds alone say little of an answer that is likely enough to be given."""
    marks = []
    for replies in (HIDDEN, {**HIDDEN, "priest": HIDDEN["third plank"]}):
        session, _engine = make(reader(replies), style=JUDGED)
        hardly = tuple(0.001 * weight for weight in BORNE_OUT)  # each is right by one half
        uses(Verifier(0.0, hardly, 0.0, 0.5, 0.0, **beside))
        (stand,) = finished(ask(session, told(), QUESTION, reading_mode="retrieval")).stands
        marks.append(stand.borne_out)
    assert marks == several


@pytest.mark.parametrize(
    ("passages", "chosen", "gives"),
    [(SHORT_PASSAGES, (), True), (SHORT_PASSAGES + 1, (), False), (SHORT_PASSAGES + 1, (1, 2), True)],
)
def test_a_short_text_is_not_refused_because_few_passages_could_agree(
    uses, passages: int, chosen: tuple, gives: bool
):
    """One passage of five says it: 25 of 46 questions about short stories were refused. What may be read is
    what counts, and of a book with a rare word few passages are found, but it is none the shorter.
    """
    session, _engine = make(reader(HIDDEN), style=JUDGED)
    uses(Verifier(0.0, AGREED, 0.9, 0.9, 0.01))
    book = told((FACTS[0], *["Nothing came to pass."] * (passages - 1)))
    done = finished(ask(session, book, QUESTION, reading_mode="retrieval", selected_chapters=chosen))
    assert done.text.startswith(f"{HEDGE} {HIDDEN['third plank']}") is gives


def test_a_stop_between_passages_gives_nothing(uses):
    session, engine, judge = judging(HIDDEN, 0.0, 0.0)
    uses(judge)
    done = finished(
        ask(session, told(), QUESTION, reading_mode="retrieval", should_stop=lambda: len(engine.prompts) > 4)
    )
    assert done.reason == "user" and done.text == ""


def test_where_nothing_is_said_the_nearest_passages_are_shown(uses):
    session, _engine, judge = judging({}, -9.0, 9.0)
    uses(judge)
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(UNFOUND) and "\n> " in done.text


def test_what_is_quoted_where_nothing_is_given_is_where_the_likeliest_answer_stands(uses):
    """The words of the question stand elsewhere: with those alone 17 of 32 quotations had the answer."""
    fact = "Oddo lost the silver key. Nobody helped him. He wept. It rained. It snowed. Then {} of the jetty."
    session, _engine, judge = judging(HIDDEN, 9.0, 9.0)
    uses(judge)
    book = told((fact.format("he sat under the third plank"), *["The silver key."] * 2))
    done = finished(ask(session, book, QUESTION, reading_mode="retrieval"))
    first = done.text[done.text.index("Chapter 1:") :].split("\n\n")[0]
    assert done.text.startswith(UNFOUND)
    assert first.endswith("Then he sat under the third plank of the jetty.")


def test_a_passage_is_read_once_for_all_that_is_asked_of_it(uses):
    """It was read again for its likelihoods, and once more for the first answer."""
    session, engine, judge = judging(HIDDEN, 0.0, 0.0)
    uses(judge)
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(HIDDEN["third plank"])
    assert sum(fed > 300 for fed in engine.fed) == len({tuple(one[:500]) for one in engine.prompts})


@pytest.mark.parametrize(
    "question",
    ["", "?!", "Wo ist der silberne Schlüssel?", "Where is the silver key of Moby Dick and of Oddo?"],
)
def test_odd_questions_are_answered_or_said_not_to_be(uses, question: str):
    session, _engine, judge = judging({}, 9.0, 9.0)
    uses(judge)
    done = finished(ask(session, told(), question, reading_mode="retrieval"))
    assert done.text.startswith(UNFOUND)


def test_after_a_question_of_5000_words_that_is_refused_in_words_the_next_is_answered(uses):
    session, engine, judge = judging(HIDDEN, 0.0, 0.0)
    uses(judge)
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith("Under the")
    with pytest.raises(UserError, match="shorter question"):
        ask(session, told(), "Where is the silver key? " * 1000, reading_mode="retrieval")
    before = len(engine.fed)
    assert finished(ask(session, told(), QUESTION, reading_mode="retrieval")).text.startswith("Under the")
    assert max(engine.fed[before:]) < 300, "what was read of the passages is there still"


def test_a_long_question_is_promised_the_time_that_it_takes(uses):
    """One of 3,261 words was promised 10 s, and took 203."""

    def promised(question: str) -> float:
        session, _engine, judge = judging(HIDDEN, 0.0, 0.0)
        uses(judge)
        expected = session._expectation
        expected._plan = dataclasses.replace(expected._plan, expected_passage_s=1.0)
        events = ask(session, told(), question, reading_mode="retrieval")
        return next(one.left_s for one in events if isinstance(one, ReadingStep))

    assert promised(f"{QUESTION} {'It was lost then. ' * 20}") > 1.2 * promised(QUESTION)


@pytest.mark.parametrize(
    ("question", "strange"),
    [
        ("Where is the silver key of Ahab and of Oddo, and of Queequeg's ship?", "Ahab, Queequeg"),
        ("Where is the silver key of ODDO in the Ferry?", ""),  # the title is known, and capitals are
        ("Which priest is Oddo's?", ""),
        ("Qui est le gardien ?", ""),
        ("It was there once. Did Mr. Ahab see the silver key? Where is it?", "Ahab"),
    ],
)
def test_names_of_another_book_are_said_not_to_be_in_this_one(uses, question: str, strange: str):
    """A question about two books at once is answered from the one that is open."""
    session, _engine, judge = judging(HIDDEN, 0.0, 0.0)
    uses(judge)
    done = finished(ask(session, told(), question, reading_mode="retrieval"))
    assert done.text
    named = [values(one)["names"] for one in done.notes if "names" in values(one)]
    assert named == [strange][: bool(strange)]


def test_under_a_limit_a_name_is_missed_only_in_what_may_be_read(uses):
    """“Not in this book: Evremonde.” was said of a book that ends with him, behind the limit."""
    session, _engine, judge = judging(HIDDEN, 0.0, 0.0)
    uses(judge)
    asked = ask(
        session, told(), "Where is the silver key of Ahab?", reading_mode="retrieval", spoiler_limit=1
    )
    (note,) = [one for one in finished(asked).notes if "names" in values(one)]
    assert values(note)["names"] == "Ahab" and "may" in note


def test_the_number_of_a_chapter_is_no_nearest_passage():
    """A question with a word that nothing read has was refused above “III”."""
    text = "III\n\nThe keeper rowed out at dusk.\n\nHe came home late."
    book = Document("B", "", "txt", text, (Section("III", 0, len(text)),), sha256="n")
    passages = [Passage(0, 5, "III", None), Passage(5, len(text), "III", None)]
    number = Candidate(SimpleNamespace(text="III"), Evidence(book).support("III", passages[0]), {})
    search = RetrievalState(Evidence(book), 2, passages, likeliest={passages[0]: number})
    said = "".join(piece.text for piece in search.pieces(Request("Who is Ada?", book)))
    assert "> The keeper rowed out" in said and "> III" not in said
    search.order = passages[:1]
    assert "III" not in "".join(piece.text for piece in search.pieces(Request("Who is Ada?", book)))


def test_the_nearest_passages_are_those_with_the_questions_names():
    """“Who keeps the mill of Penstead?” was refused above three other villages."""
    text = "A mill is kept by Ada.\n\nThe mill is old.\n\nAll of Penstead sleeps. "
    book = Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="n")
    passages = [Passage(start, end, "One", None) for start, end in pairwise((0, 24, 42, len(text)))]
    pieces = RetrievalState(Evidence(book), 3, passages).pieces(
        Request("Who keeps the mill of Penstead?", book)
    )
    said = "".join(piece.text for piece in pieces)
    assert said.index("All of Penstead") < said.index("kept by Ada") < said.index("The mill is old")


def test_the_one_that_comes_with_the_program_knows_the_features():
    held = verifier.load_verifier.__wrapped__("smollm2-135m-reader/verifier.json")
    assert len(held.weights) == len(NAMES) and held.given_short < held.given <= held.marked


def test_one_learned_on_other_features_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(verifier, "ROOT", tmp_path)
    (tmp_path / "assets" / "models").mkdir(parents=True)
    record = {"bias": 0.0, "weights": {"luck": 1.0}, "given": 0.0, "marked": 0.0, "given_short": 0.0}
    (tmp_path / "assets" / "models" / "a.json").write_text(json.dumps(record))
    with pytest.raises(AssertionError, match="learn it anew"):
        verifier.load_verifier.__wrapped__("a.json")


def test_the_answers_of_one_passage_are_one_batch(uses):
    """Drawn one after another each took as long as all of them do."""
    # what reading takes of them is never said
    order = iter(map(encoded, (REFUSAL, "Under the jetty.", "In the well.", "In the well.")))

    def reply(ids, params):
        return next(order) if "third plank" in CharTokenizer().decode(ids) else encoded(REFUSAL)

    session, engine, judge = judging(reply, 0.0, 9.0)
    uses(judge)
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval"))
    assert done.text.startswith(f"{HEDGE} In the well."), "two of three say so"
    assert done.drawn["temperature"] == 0.7 and done.stats.mode == "autoregressive"


def test_where_answers_are_checked_the_one_that_is_given_is(uses, monkeypatch):
    """In its passage and under its law: the others are not told, and a check takes as long as an answer."""
    checked = []

    def verify(model, context, ids, start, params):
        checked.append((params.temperature, len(ids) - start))
        return GreedyAgreement(len(ids) - start, len(ids) - start, 0, 0, 0.0, 0.1, -1.0)

    monkeypatch.setattr("core.conversation.turns.verify_answer", verify)
    session, _engine = make(reader(HIDDEN), style=JUDGED, verify=True)
    uses(Verifier(0.0, AGREED, 0.0, 9.0, 0.0))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", params={"temperature": 0.0}))
    assert checked == [(0.0, len(HIDDEN["third plank"]))]
    tokens = len(HIDDEN["third plank"])
    assert {"agreed": tokens, "tokens": tokens, "ties": 0} in map(values, done.notes)
    assert done.stats.verified.mismatches == 0
