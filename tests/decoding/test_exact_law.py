"""The law of what the loop emits is the target's: computed branch by branch, compared to 1e-9. No sampling
noise, no false alarms.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.cache.base import KVShape
from core.cache.disk import GB, SnapshotFolder
from core.cache.snapshot import SnapshotStore
from tests.support.laws import EXACT, LEVELS
from tests.support.loop import PROMPT, Loop, distance, exact_law, plain_law
from tests.tiers import first

pytestmark = pytest.mark.usefixtures("either_way")


def check(loop: Loop, **how: object) -> None:
    """The promise itself."""
    plain = plain_law(loop, **{key: value for key, value in how.items() if key != "beyond"})
    assert sum(plain.values()) == pytest.approx(1.0, abs=EXACT)
    assert distance(exact_law(loop, **how), plain) < EXACT


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("gamma", [1, 2])
def test_every_composition_has_the_law_of_plain_decoding(levels: dict, gamma: int):
    """The promise of the whole project."""
    check(Loop(**levels, gamma=gamma), horizon=3)


@pytest.mark.parametrize("drafter", first(["model", "ngram", "both", "stubborn"], 2))
def test_two_drafted_and_the_last_round_runs_past_the_end(drafter: str):
    """A round of full length: two tokens drafted, verified and followed by a third."""
    check(Loop(drafter=drafter, gamma=2, middle_gamma=1 if drafter == "model" else 2), horizon=3, beyond=1)


@pytest.mark.parametrize("drafter", ["model", "ngram", "both", "wrong"])
def test_four_tokens_one_drafted(drafter: str):
    """Four tokens through all three levels."""
    check(Loop(drafter=drafter, gamma=1), horizon=4)


@pytest.mark.parametrize("middle", ["retrieval", "streaming", "itself"])
@pytest.mark.parametrize(("drafter", "gamma"), [("model", 2), ("ngram", 3), ("none", 3)])
def test_adaptive_draft_length(middle: str, drafter: str, gamma: int):
    """Whether to draft on must depend on what is past alone: then it cannot bias."""
    check(Loop(drafter=drafter, middle=middle, length="gain", gamma=gamma), horizon=3)


class EveryOther:
    """Lets the middle level draft once in two rounds; never the same for all, so that both ways are mixed."""

    def __init__(self) -> None:
        self._asked = 0

    def more(self, confidence, gamma):
        """See DraftLength."""
        if not confidence:
            self._asked += 1
        return len(confidence) < gamma and self._asked % 2 == 0

    def observe(self, confidence, accepted):
        """See DraftLength."""

    def rested(self, made):
        """See DraftLength."""


@pytest.mark.parametrize("drafter", ["ngram", "stubborn", "wrong"])
@pytest.mark.parametrize("middle", ["retrieval", "itself"])
def test_where_the_middle_level_rests_the_draft_goes_past_it(drafter: str, middle: str):
    """Who verifies a draft may change from round to round, for it depends on the past alone."""
    check(Loop(drafter=drafter, middle=middle, gamma=2, middle_gamma=2, policy=EveryOther), horizon=4)


@pytest.mark.parametrize("drafter", ["model", "both"])
def test_a_draft_model_that_stops_when_it_doubts(drafter: str):
    """Level 0 decides by its own law of the tokens before; the token it doubts is submitted all the same."""
    check(Loop(drafter=drafter, middle="none", length="gain", gamma=3), horizon=4)


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_end_of_sequence_inside_a_block(levels: dict):
    """An accepted end-of-sequence ends the answer there; what was drafted behind it is not part of it."""
    check(Loop(**levels, gamma=2, eos=frozenset({2})), horizon=3)
    check(Loop(**levels, gamma=2, eos=frozenset({2})), horizon=2, beyond=1)


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("stop", [(1,), (1, 2)])
def test_stop_string_inside_a_block(levels: dict, stop: tuple[int, ...]):
    """An answer is cut where it says a passage, also one that begins in an earlier round or ends among
    accepted tokens.
    """
    check(Loop(**levels, gamma=2, stop=stop), horizon=3)
    check(Loop(**levels, gamma=2, stop=stop), horizon=2, beyond=1)


@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_maximum_length_inside_a_block(beyond: int):
    """An answer cut at its maximum is the beginning of the longer answer."""
    check(Loop(gamma=2, drafter="stubborn"), horizon=2, beyond=beyond)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("drafter", ["model", "ngram", "both", "wrong"])
def test_temperatures(temperature: float, drafter: str):
    """Greedy is a law like any other: all its mass on one token."""
    check(Loop(drafter=drafter, temperature=temperature), horizon=3)


@pytest.mark.parametrize(
    "loop",
    [
        Loop(top_p=0.6),
        Loop(top_p=0.6, draft_sampling={"top_p": 1.0}, middle_sampling={"top_p": 1.0}),
        Loop(top_p=1.0, draft_sampling={"top_p": 0.5}),
        Loop(top_p=1.0, middle_sampling={"top_p": 0.5}),
        Loop(top_p=0.8, draft_sampling={"temperature": 0.0}, middle_sampling={"temperature": 0.5}),
        Loop(temperature=0.0, draft_sampling={"temperature": 2.0}, middle_sampling={"temperature": 1.0}),
    ],
    ids=["all", "target only", "draft only", "middle only", "greedy draft", "greedy target"],
)
def test_supports_may_differ(loop: Loop):
    """A nucleus cut on one side only makes p = 0 where q > 0 and the other way round."""
    check(loop, horizon=3)


@pytest.mark.parametrize("drafter", ["model", "ngram", "both", "stubborn"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_repetition_penalty(drafter: str, temperature: float):
    """The penalty of a position knows the tokens drafted before it."""
    check(Loop(drafter=drafter, temperature=temperature, penalty=1.5), horizon=3)


@pytest.mark.parametrize("every", [1, 2])
def test_refresh_in_the_middle_of_an_answer(every: int):
    """A new selection between two rounds changes q, never the law."""
    check(Loop(drafter="ngram", gamma=2, refresh_every=every), horizon=3)
    check(Loop(drafter="model", gamma=1, refresh_every=every), horizon=4)


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("ends", [{}, {"eos": frozenset({2})}, {"stop": (1,)}], ids=["length", "eos", "stop"])
def test_second_turn_by_the_same_caches(levels: dict, ends: dict):
    """Rows that were drafted behind the end of the first answer must not be there when the user goes on."""
    heavy = levels["drafter"] in ("model", "perfect", "wrong") and levels["middle"] != "none"
    check(Loop(**levels, gamma=2, **ends), horizon=2 if heavy else 3, turn=(1, 0))


@pytest.mark.parametrize("levels", LEVELS.values(), ids=LEVELS)
def test_second_turn_from_a_snapshot(levels: dict, tmp_path: Path):
    """Saved after the first answer, loaded into new caches: what comes from disk is what was computed, row
    for row.
    """
    disk = SnapshotStore(
        SnapshotFolder(tmp_path),
        "toy",
        KVShape(layers=1, kv_heads=1, head_dim=1),
        torch.float32,
        quota_bytes=GB,
    )
    loop = Loop(**levels, gamma=2, prompt=PROMPT * 8)
    law = exact_law(loop, horizon=2, turn=(1, 0), disk=disk)
    assert distance(law, plain_law(loop, horizon=2, turn=(1, 0))) < EXACT


def test_other_tables_and_sizes():
    """One table may be kind by accident."""
    for seed in range(3):
        check(Loop(), horizon=3, seed=seed)
    check(Loop(gamma=1), horizon=2, vocab=6)
    check(Loop(gamma=2, prompt=(*PROMPT, *PROMPT)), horizon=3)
