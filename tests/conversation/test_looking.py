"""Where the model looked, told as events of an answer: for the right rows, the right passages, at the right
time.
"""

from __future__ import annotations

import pytest

from core.cache.query_recorder import AttentionHead
from core.conversation.attention_tracker import AttentionTracker, PassageSpans, stretches
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.documents.document import Document, Section
from core.events import AttentionEvidence
from core.evidence import passages as cutting
from core.evidence.attention_evidence import strongest
from core.evidence.passages import book_passages, sentence_spans
from core.request import Request
from tests.support.dense_attention import dense
from tests.support.modes import GRID_MODES
from tests.support.tiny import engine, oracle, ours
from tests.support.tiny_tokenizer import TinyTokenizer

HEADS = (AttentionHead(1, 3), AttentionHead(0, 1))
STORY = (
    "A keeper rowed out at dusk.\n\n\n\nNobody on the quay saw him come back.\n\nThe tide turned late.\n\n"
)
BOOK = Document("B", "", "txt", STORY, (Section("One", 0, len(STORY)),), sha256="b")
READ = "A keeper rowed out at dusk.\n\nNobody on the quay saw him come back.\n\nThe tide turned late.\n\n"


@pytest.fixture(autouse=True)
def short_passages(monkeypatch):
    """One paragraph each."""
    monkeypatch.setattr(cutting, "LEAST_WORDS", 3)
    monkeypatch.setattr(cutting, "MOST_WORDS", 9)


def events_of(mode: str, heads=HEADS, question: str | None = "Who?", **asked):
    style = ReadingStyle(
        system="S", part_prompts=("?",), whole_prompt="Tell.", answer_prompt="Say it now: {question} Go."
    )
    session = Session(engine(ours(oracle())), TinyTokenizer(), style, heads=heads)
    params = {"mode": mode, "max_new_tokens": 24, "temperature": 0.8, "seed": 5}
    return list(session.ask(Request(question, BOOK, "c", params=params, **asked)))


@pytest.mark.parametrize("mode", GRID_MODES)
def test_events_say_what_dense_attention_says(mode: str):
    """Rows beside the question's own words, a sentence's rows shifted by one, passages counted from the
    prompt's beginning, the wrong heads: none of it survives this, in any mode.
    """
    found = events_of(mode)
    done = found[-1]
    encode = TinyTokenizer().encode
    asked = encode("Say it now: Who? Go.")
    before = [95, *encode("S"), *encode(READ)]
    prompt = [*before, *asked, 96]
    own = range(len(before) + len("Say it now: "), len(before) + len("Say it now: Who?"))
    borders = [2 + READ.index(words) for words in ("A keeper", "Nobody", "The tide")] + [2 + len(READ)]
    starts = [STORY.index(words) for words in ("A keeper", "Nobody", "The tide")]
    pieces = [TinyTokenizer().decode([token]) for token in done.token_ids]  # some are empty
    text = "".join(pieces)
    of = [at for at, piece in enumerate(pieces) for _ in piece]  # the token of each character
    rows = {None: own} | {
        at: range(len(prompt) + of[first] - 1, len(prompt) + of[last - 1])
        for at, (first, last) in enumerate(sentence_spans(text, 0, len(text)))
    }
    told = [event for event in found if isinstance(event, AttentionEvidence)]
    assert [event.sentence for event in told] == list(rows) and len(rows) > 1
    for event in told:
        want = strongest(
            dense(oracle(), [*prompt, *done.token_ids], HEADS, rows[event.sentence], borders), starts
        )
        assert [place for place, _ in event.places] == [place for place, _ in want]
        assert [share for _, share in event.places] == pytest.approx([share for _, share in want], abs=2e-4)


@pytest.mark.parametrize("reading_mode", ["full", "chunked"])
@pytest.mark.parametrize("mode", GRID_MODES)
def test_answers_are_the_same_without(mode: str, reading_mode: str):
    """The setting changes what is said about an answer, never the answer."""
    with_it, without = (
        events_of(mode, reading_mode=reading_mode),
        events_of(mode, (), reading_mode=reading_mode),
    )
    assert any(isinstance(event, AttentionEvidence) for event in with_it)
    assert not any(isinstance(event, AttentionEvidence) for event in without)
    assert with_it[-1].token_ids == without[-1].token_ids
    assert with_it[-1].text == without[-1].text


def test_a_summary_has_places_too():
    """All rows of a wish of ours count: there is no question in it."""
    found = [
        event for event in events_of("autoregressive", question=None) if isinstance(event, AttentionEvidence)
    ]
    assert found[0].sentence is None and len(found[0].places) == 3


class Rows:
    """In place of Looking: says which tokens it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def masses(self, cache, tokens, borders):
        self.asked.append((tokens.start, tokens.stop))
        return [[1.0, 3.0]]


class InContext:
    cache = None

    def __init__(self) -> None:
        self.looking = Rows()


def test_a_sentence_is_told_once_as_soon_as_the_next_begins():
    """Its mark stands there while the rest is written; a token that ends one sentence and begins the next
    belongs to both.
    """
    context = InContext()
    looker = AttentionTracker(
        context, PassageSpans((0, 50), (0, 9, 20)), text_start=4, question=range(30, 33), prompt_tokens=40
    )
    text, ends = "He rows. She waits", [2, 7, 8, 12, 18]

    def look(characters: int, *, whole: bool = False) -> list[int | None]:
        shown = [end for end in ends if end <= characters]
        return [one.sentence for one in looker.look(text[:characters], shown, whole=whole)]

    assert look(2) == [None]
    assert look(8) == [], "nothing says yet that the sentence is over"
    assert look(12) == [0]
    assert look(18) == []
    assert look(18, whole=True) == [1]
    assert look(18, whole=True) == []
    assert context.looking.asked == [(30, 33), (39, 42), (42, 44)]


def test_stretches_are_the_passages_of_a_part_in_its_own_tokens():
    """A part that begins inside a passage, blank lines that are not read, tokens that add up otherwise."""
    found = book_passages(BOOK)
    start, end = STORY.index("rowed"), STORY.index("The tide")
    part = READ[READ.index("rowed") : READ.index("The tide")]
    got = stretches(BOOK, found, start, end, len(part), len)
    assert got.starts == (0, STORY.index("Nobody"))
    assert got.borders == (0, part.index("Nobody"), len(part))
    doubled = stretches(BOOK, found, start, end, 2 * len(part), len)
    assert doubled.borders == tuple(2 * at for at in got.borders)
