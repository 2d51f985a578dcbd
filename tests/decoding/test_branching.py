"""Several answers as rows of one batch: each is what it would be alone, and what plain decoding says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.cache.full import FullKVCache
from core.decoding.branching import AnswerBranch
from core.decoding.decoder import never
from core.engine import Engine
from core.text.stopping import StopStrings
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.tiny import engine, oracle, ours

LAWS = [
    replace(GREEDY, temperature=0.9 * (seed > 0), seed=seed, max_new_tokens=5 + seed) for seed in range(6)
]


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return engine(ours(oracle()))


def branches(tiny: Engine, laws, ends=never) -> list[AnswerBranch]:
    """What is said behind the prompt by each law, in one batch."""
    context, found = tiny.new_context(400), [AnswerBranch(law, ends) for law in laws]
    seconds = tiny.several(context, PROMPT, found)
    assert seconds is not None and len(seconds) >= max(len(one.tokens) for one in found)
    return found


def test_a_row_has_the_bits_it_has_alone(tiny: Engine):
    """The same tokens, and the same log-probabilities to the last bit, whoever else is in the batch."""
    together = branches(tiny, LAWS)
    assert len({tuple(one.tokens) for one in together}) > 3, "they differ, or the test says nothing"
    for law, one in zip(LAWS, together, strict=True):
        (alone,) = branches(tiny, [law])
        assert alone.tokens == one.tokens and alone.log_probability == one.log_probability
        assert alone.reason == one.reason


@pytest.mark.parametrize("law", LAWS[:4])
def test_a_row_says_what_plain_decoding_says(tiny: Engine, law):
    (one,) = branches(tiny, [law])
    plain, reason = run(tiny, tiny.new_context(400), PROMPT, replace(law, mode="autoregressive"))
    assert (one.tokens, one.reason) == (plain, reason)


def test_a_cache_that_is_not_in_place_takes_one_after_another(tiny: Engine, monkeypatch):
    """Rows that lie partly in host memory are no trunk; the answers are the same."""
    together = [one.tokens for one in branches(tiny, LAWS)]
    monkeypatch.setattr(FullKVCache, "in_place", lambda self: None)
    context, found = tiny.new_context(400), [AnswerBranch(law, never) for law in LAWS]
    tiny.several(context, PROMPT, found)
    assert [one.tokens for one in found] == together


def test_the_context_is_left_as_it_was_and_a_stop_ends_all(tiny: Engine):
    context = tiny.new_context(400)
    said, _reason = run(tiny, context, PROMPT, GREEDY)
    held = list(context.ids)
    assert tiny.several(context, held, [AnswerBranch(LAWS[1], never)], should_stop=lambda: True) is None
    assert context.ids == held[: len(context.ids)] and len(context.ids) == context.cache.length
    again, _reason = run(tiny, context, PROMPT, GREEDY)
    assert again == said


def test_a_stop_string_ends_its_own_row(tiny: Engine):
    (free,) = branches(tiny, [LAWS[5]])
    word = chr(65 + free.tokens[2] % 26)

    def decode(ids) -> str:
        return "".join(chr(65 + one % 26) for one in ids)

    found = [AnswerBranch(LAWS[5], StopStrings((word,), decode)), AnswerBranch(LAWS[5], never)]
    tiny.several(tiny.new_context(400), PROMPT, found)
    assert len(found[0].tokens) <= 3 and found[0].reason == "stop"
    assert found[1].tokens == free.tokens
