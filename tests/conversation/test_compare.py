"""An answer beside plain decoding, by a real engine: the answer is judged, and what is written is plain."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation import turns
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.documents.document import Document, Section
from core.request import Request
from core.wire import pack_ask, unpack_ask
from tests.support.tiny import engine, oracle, ours
from tests.support.tiny_tokenizer import TEXT, TinyTokenizer

SHORT = TEXT[: len(TEXT) // 2]
BOOK = Document("B", "", "txt", SHORT, (Section("One", 0, len(SHORT)),), sha256="b")


SHORT = {"max_new_tokens": 12, "seed": 3}


@pytest.fixture
def session() -> Session:
    made = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    return Session(made, TinyTokenizer(), ReadingStyle(system="S", part_prompts=("?",), whole_prompt="?"))


def answer(session: Session, **choices):
    *_, last = session.ask(Request("Who?", BOOK, "c", reading_mode="full", **choices))
    return last


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_answer_is_judged_and_plain_decoding_writes_its_own(session, temperature):
    params = {**SHORT, "temperature": temperature}
    first = answer(session, params=params)
    assert first.stats.mode == "triforce" and first.stats.temperature == temperature
    plain = answer(session, params={**params, "mode": "autoregressive"}, compare=first.token_ids)
    judged = plain.stats.verified
    assert plain.stats.mode == "autoregressive" and judged.tokens == len(first.token_ids)
    assert judged.mismatches == 0
    if temperature == 0 and not judged.near_ties:
        assert plain.text == first.text
    if temperature == 0:
        assert answer(session, params=params).text == first.text, "the conversation goes on as it was"


def test_a_summary_told_in_one_go_is_judged_by_what_the_model_wrote(session):
    """What is shown of it may be the book's own sentences: those are nobody's tokens."""
    params = {**SHORT, "temperature": 0.0}
    *_, first = session.ask(Request(None, BOOK, "c", reading_mode="full", params=params))
    assert first.stands and first.decoded and first.decoded != first.token_ids
    plainly = {**params, "mode": "autoregressive"}
    *_, plain = session.ask(
        Request(None, BOOK, "c", reading_mode="full", params=plainly, compare=first.decoded)
    )
    judged = plain.stats.verified
    assert judged.tokens == len(first.decoded) and judged.mismatches == 0


def test_a_foreign_token_is_found(session):
    params = {**SHORT, "temperature": 0.0}
    ids = list(answer(session, params=params).token_ids)
    ids[5] = (ids[5] + 40) % 90
    judged = answer(session, params={**params, "mode": "autoregressive"}, compare=tuple(ids)).stats.verified
    assert judged.mismatches >= 1


def test_near_ties_are_places_in_the_text(session, monkeypatch):
    """Counted alone, nobody sees which word rounding decides."""
    params = {**SHORT, "temperature": 0.0}
    first = answer(session, params=params)
    real = turns.verify_answer

    def tied(*given):
        return dataclasses.replace(real(*given), ties=wanted[-1])

    monkeypatch.setattr(turns, "verify_answer", tied)
    plain, ids = {**params, "mode": "autoregressive"}, first.token_ids
    found, wanted = [], []
    for numbers in (range(len(ids)), range(3, 5)):
        wanted.append(numbers)
        found.append(answer(session, params=plain, compare=ids).stats.verified.places)
    every, some = found
    assert "".join(first.text[start:end] for start, end in every) == first.text, "each token where it stands"
    assert set(some) <= set(every) and some[0][0] >= every[2][1]


def test_a_longer_answer_than_the_plain_one_may_be_is_judged_whole(session):
    ids = tuple(range(1, 90)) * 2
    plain = answer(session, params={**SHORT, "temperature": 0.0, "mode": "autoregressive"}, compare=ids)
    assert plain.stats.verified.tokens == len(ids)


def test_it_crosses_the_pipe():
    sent = Request("Who?", compare=(1, 2, 3))
    assert unpack_ask(pack_ask(sent), None) == sent
    assert unpack_ask({**pack_ask(sent), "compare": [1, 2, 3]}, None) == dataclasses.replace(sent)
