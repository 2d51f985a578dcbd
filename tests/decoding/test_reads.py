"""Logits on a device: the host waits once per pass, and decides as it would with logits of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from core.backend.shared.transfer import to_device, to_host
from core.decoding import sampling
from core.decoding import verify as rule
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, Verdict, sample_token, verify
from core.model import cuda_graphs, llama
from core.model.llama import LlamaModel
from core.request import Params
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.far import Far, far_away
from tests.support.laws import EXACT, LEVELS
from tests.support.loop import Loop, distance, exact_law, plain_law
from tests.support.modes import GRID_MODES
from tests.support.recording import RecordingBackend
from tests.support.replays import prepared
from tests.support.rounds import rounds
from tests.support.tiny import engine, oracle, ours
from tests.support.toys import ToyModel
from tests.support.unseen_cases import unseen

SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "T 1": {},
    "nucleus": {"temperature": 0.8, "top_p": 0.7},
    "penalty": {"penalty": 1.5},
    "all": {"temperature": 1.3, "top_p": 0.8, "penalty": 1.2},
}
SAMPLED = replace(GREEDY, temperature=0.8, top_p=0.9, repetition_penalty=1.2)
# who draws without a model of the device has laws of its own
ON_DEVICE = {name: levels for name, levels in LEVELS.items() if levels["drafter"] != "wrong"}


@pytest.mark.parametrize("levels", ON_DEVICE.values(), ids=ON_DEVICE)
@pytest.mark.parametrize("settings", SAMPLINGS.values(), ids=SAMPLINGS)
def test_one_read_per_pass_and_the_same_tokens(levels: dict, settings: dict):
    """Passes of the draft, of the middle level and of the target alike; the same seed says the same from
    there as from here.
    """
    loop = Loop(**levels, **settings, gamma=3, middle_gamma=2)
    want = [result.tokens for result in rounds(loop, tokens=30, vocab=8)]
    with far_away(ToyModel) as device:
        got = [result.tokens for result in rounds(loop, tokens=30, vocab=8)]
    assert got == want
    assert len(device.reads) == device.passes > 0, device.reads


@pytest.mark.wide
@pytest.mark.parametrize("mode", GRID_MODES)
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_one_read_per_pass_of_real_models(mode: str, settings: Params):
    """The product's compositions over its caches: nothing inside a pass, nor what stands between passes, asks
    the device either.
    """
    machine = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    params = replace(settings, mode=mode, max_new_tokens=40)
    want = run(machine, machine.new_context(400), PROMPT, params)
    with far_away(LlamaModel) as device:
        assert run(machine, machine.new_context(400), PROMPT, params) == want
    assert 0 < len(device.reads) <= device.passes, device.reads


def test_the_count_notices_a_look(monkeypatch: pytest.MonkeyPatch):
    """What is for logits in host memory only, taken for others."""
    monkeypatch.setattr(rule, "on_device", lambda tensor: False)
    with far_away(ToyModel) as device:
        rounds(Loop(top_p=0.7), tokens=10)
    assert len(device.reads) > device.passes


def test_a_law_for_host_memory_takes_no_others(monkeypatch: pytest.MonkeyPatch):
    """NumPy cannot look at what lies elsewhere, so that look fails instead of waiting."""
    monkeypatch.setattr(sampling, "on_device", lambda tensor: False)
    with far_away(ToyModel), pytest.raises(RuntimeError, match="numpy"):
        rounds(Loop(top_p=0.7), tokens=10)


@pytest.mark.parametrize(
    "loop", [Loop(), Loop(drafter="ngram", top_p=0.7), Loop(temperature=0.7, penalty=1.5)]
)
def test_the_exact_law_on_the_device(loop: Loop):
    """Branch by branch, with every tensor of the decision on the device."""
    with far_away(ToyModel):
        law = exact_law(loop, horizon=2)
    assert distance(law, plain_law(loop, horizon=2)) < EXACT


@pytest.mark.parametrize("vocab", [97, 512])
@pytest.mark.parametrize("settings", [(0.0, 1.0, 1.0), (0.6, 0.9, 1.0), (1.0, 1.0, 1.3), (1.4, 0.95, 1.1)])
def test_both_ways_give_the_same_law_and_draw_the_same_tokens(
    vocab: int, settings: tuple, monkeypatch: pytest.MonkeyPatch
):
    """In fp32, for drafts that are certain and drafts with laws, accepted and rejected."""
    dice = torch.Generator().manual_seed(vocab)
    levels = [3.0 * torch.randn(2, 4, vocab, generator=dice) for _ in range(40)]

    def played() -> tuple[list[torch.Tensor], list[Verdict]]:
        randomness, law, laws, verdicts = SeededRandomness(4), Sampling(*settings), [], []
        for rows, others in levels:
            q = law.probs(0.9 * rows[:3] + 0.3 * others[:3], (1, 2), (3, 4))
            tokens = tuple(sample_token(row, randomness)[0] for row in q)
            laws.append(law.probs(rows, (1, 2), tokens))
            verdicts += [
                verify(Draft(tokens, probs), laws[-1], randomness, logits=rows) for probs in (q, None)
            ]
        return laws, verdicts

    laws, verdicts = played()
    unseen(monkeypatch)
    again, same = played()
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(laws, again, strict=True))
    assert [(one.accepted, one.token) for one in verdicts] == [
        (other.accepted, other.token) for other in same
    ]
    assert all(
        one.confidence == pytest.approx(other.confidence, abs=1e-6)
        for one, other in zip(verdicts, same, strict=True)
    )
    assert {one.accepted for one in verdicts} == {0, 1, 2, 3}


@pytest.mark.parametrize("place", [lambda tensor: tensor, Far], ids=["host", "device"])
def test_uniforms_come_in_the_generators_order(place: Callable[[torch.Tensor], torch.Tensor]):
    """Blocks are for the journey only: a draw takes the next number whatever was asked before, also across
    the border of two blocks.
    """
    alone = torch.rand(3_000, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    randomness, taken = SeededRandomness(9), 0
    with far_away():
        for n in (1, 5, 700, 700, 3, 1_200):
            # u < u is false and u < u + a little is true: the very same numbers are compared
            just_above = torch.nextafter(alone[taken : taken + n], torch.tensor(2.0, dtype=torch.float64))
            just_above[-1] = alone[taken + n - 1]
            assert to_host(randomness.first_rejection(place(just_above))) == [n - 1]
            taken += n


def test_draws_never_land_on_probability_zero(monkeypatch: pytest.MonkeyPatch):
    """At both ends of the unit interval, with zeros there and laws that do not sum to 1 exactly."""
    law = torch.tensor([0.0, 0.3, 0.0, 0.7000001, 0.0])
    for u, token in ((0.0, 1), (1.0 - 2.0**-53, 3)):
        monkeypatch.setattr(torch, "rand", lambda n, u=u, **how: torch.full((n,), u, dtype=torch.float64))
        assert int(SeededRandomness(0).draw(law)) == token


def test_what_a_pass_is_fed_goes_there_without_waiting(monkeypatch: pytest.MonkeyPatch):
    """A copy of ids from ordinary memory waits for all that the device computes: once for each pass."""
    fed: list[object] = []

    def sent(values: object, device: torch.device) -> torch.Tensor:
        fed.append(values)
        return to_device(values, device)

    for module in (llama, cuda_graphs):
        monkeypatch.setattr(module, "to_device", sent)
    backend = RecordingBackend()
    answering = prepared(backend, kv_heads=2)
    fed.clear()
    run(answering, answering.new_context(400), PROMPT, replace(GREEDY, mode="triforce"))
    assert sum(isinstance(one, list) for one in fed) > backend.replayed > 0
