"""States behind any number of accepted rows, in prefills that are stopped, and in every sequence of these."""

from __future__ import annotations

import random

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.cache.layered import LayeredKVCache
from core.cache.layered_retrieval import LayeredRetrievalKVCache, retrieval_over
from core.cache.states import LayerStates
from core.model.delta import STEP_ROWS, GatedDelta
from core.model.mixer_sizes import DeltaSizes
from core.tuning.passes import TimeLimit, verify_times
from tests.support.embedded import compiled
from tests.support.tiny import VOCAB, oracle, ours, whole_cache

IDS = torch.randint(0, VOCAB, (300,), generator=torch.Generator().manual_seed(6)).tolist()
SIZES = DeltaSizes(key_heads=2, value_heads=4, key_dim=8, value_dim=16, kernel=4)


@pytest.fixture(scope="module", params=["by torch", "compiled", "short convolution"])
def model(request):
    """Whose rows go by torch's form, and by the compiled kernel where this CPU has one."""
    if request.param == "short convolution":
        return ours(oracle("lfm2"))
    if request.param == "by torch":
        return ours(oracle("qwen3_5_text"))
    kernels = compiled()
    if kernels["delta"] is None:
        pytest.skip("no library for this computer")
    return ours(oracle("qwen3_5_text", linear_key_head_dim=16), backend=CpuBackend(**kernels))


@pytest.fixture(scope="module")
def plainly(model) -> torch.Tensor:
    """Logits of every token, each fed alone."""
    cache = whole_cache(model, 400)
    return torch.cat([fed(model, cache, [token]) for token in IDS[:150]])


def fed(model, cache, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model.forward(ids, cache)


def rule() -> GatedDelta:
    dice = torch.Generator().manual_seed(2)
    return GatedDelta(
        sizes=SIZES,
        convolution=torch.randn(SIZES.kernel, SIZES.channels, generator=dice) * 0.5,
        decay=-torch.rand(SIZES.value_heads, generator=dice),
        step_bias=torch.randn(SIZES.value_heads, generator=dice),
        norm=torch.ones(SIZES.value_dim),
    )


def some_rows(n: int) -> torch.Tensor:
    return torch.randn(SIZES.kernel - 1 + n, SIZES.width, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("accepted", range(9))
def test_whatever_is_accepted_of_a_draft_the_bits_are_those_of_plain_decoding(
    model, plainly: torch.Tensor, accepted: int
):
    """Round by round, with drafts that are wrong behind what is accepted, or right to their end."""
    cache, at = whole_cache(model, 400), 100
    for token in IDS[:at]:
        fed(model, cache, [token])
        cache.commit(cache.length)
    for _ in range(3):
        wrong = [(token + 1) % VOCAB for token in IDS[at + 1 + accepted : at + 9]]
        found = fed(model, cache, [*IDS[at : at + 1 + accepted], *wrong])
        assert torch.equal(found[: accepted + 1], plainly[at : at + accepted + 1])
        at += accepted + 1
        cache.commit(at)
    assert torch.equal(fed(model, cache, [IDS[at]])[0], plainly[at])


def test_a_draft_that_was_taken_back_in_part_goes_on_from_there(model, plainly: torch.Tensor):
    """As the middle level's rounds do: nothing is final yet, and rows that wait are gone through again."""
    cache = whole_cache(model, 400)
    for token in IDS[:20]:
        fed(model, cache, [token])
    cache.commit(20)
    for at in (20, 23, 24):
        cache.rollback(at)
        found = fed(model, cache, [*IDS[at : at + 4], 1, 2])
        assert torch.equal(found[:4], plainly[at : at + 4])
    assert cache.committed == 20


def test_a_row_among_many_has_the_bits_that_it_has_alone(model, plainly: torch.Tensor):
    cache = whole_cache(model, 400)
    for token in IDS[:30]:
        fed(model, cache, [token])
    assert torch.equal(fed(model, cache, IDS[30 : 30 + SHORT_PASS_ROWS]), plainly[30 : 30 + SHORT_PASS_ROWS])


def test_more_rows_may_wait_than_there_is_room_for(model, plainly: torch.Tensor):
    """As where several answers are drawn from one text: nothing of them is final, and then it is."""
    cache = whole_cache(model, 400)
    fed(model, cache, IDS[:1])
    cache.commit(1)
    for token in IDS[1:149]:
        fed(model, cache, [token])
    held = cache.side.nbytes
    assert torch.equal(fed(model, cache, [IDS[149]])[0], plainly[149])
    cache.rollback(120)
    cache.commit(120)
    assert cache.side.nbytes < held
    assert torch.equal(fed(model, cache, [IDS[120]])[0], plainly[120])
    fed(model, cache, [1] * 100)
    cache.rollback(cache.resumable(0))  # outside a pass, as the engine does


def test_many_rows_at_once_are_what_they_are_one_by_one():
    """To rounding; states and what is found, over several steps of the chunked form."""
    rows = some_rows(5 * STEP_ROWS)
    one, other = (torch.zeros(SIZES.value_heads, SIZES.key_dim, SIZES.value_dim) for _ in range(2))
    found = rule().steps(one, rows)
    want = rule().one_by_one(other, other, rows)
    assert torch.allclose(found, want, atol=1e-5) and torch.allclose(one, other, atol=1e-5)
    assert float(want.abs().max()) > 0.1


def recurred(model, rows: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    """What a layer finds in a prefill in such chunks."""
    states, found, at = LayerStates(model.config.kv_shape, model.backend), [], 0
    for chunk in chunks:
        found.append(states.recur_for_good(0, rows[at : at + chunk], rule(), start=at))
        at += chunk
    return torch.cat(found)


def test_steps_of_a_prefill_begin_at_multiples_of_64_wherever_its_chunks_do():
    """So chunks that end with a step change no bit, and others what rounding does, by torch's form."""
    model = ours(oracle("qwen3_5_text"))
    rows = torch.randn(300, SIZES.width, generator=torch.Generator().manual_seed(1))
    want = recurred(model, rows, [300])
    assert torch.equal(recurred(model, rows, [64, 64, 172]), want)
    assert torch.equal(recurred(model, rows, [256, 44]), want)
    for chunks in ([20, 44, 128, 108], [256, 1, 43], [1] * 300):
        assert torch.allclose(recurred(model, rows, chunks), want, atol=1e-4)
    assert torch.equal(
        recurred(model, rows, [20, 108, 172])[128:256], recurred(model, rows, [20, 280])[128:256]
    )


def test_the_middle_level_has_the_states_of_its_source(model):
    """Where the budget holds everything, its logits are the full cache's, over rounds whose drafts were
    rejected, in the middle and at the end.
    """
    source = whole_cache(model, 400)
    middle = retrieval_over(source, budget=160, chunk=8, recent=8, tail_tokens=64, slack=24)
    assert isinstance(source, LayeredKVCache) and isinstance(middle, LayeredRetrievalKVCache)
    fed(model, source, IDS[:90])
    source.full.observer = middle.policy.observe
    fed(model, source, IDS[90:96])
    source.full.observer = None
    source.commit(96)
    assert middle.refresh()
    for length in range(96, 150, 6):
        want = fed(model, source, IDS[length : length + 6])
        found = fed(model, middle, IDS[length : length + 6])
        assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())
        middle.rollback(length + 2)
        fed(model, middle, [1, 2, 3])  # what will not be accepted
        source.commit(length + 6)
        middle.rollback(length)
        fed(model, middle, IDS[length : length + 6])
        middle.commit(length + 6)


def prefilled(model, cache, ids: list[int], *, layers: int) -> None:
    """In segments; stopped behind so many layers."""
    left = iter(range(layers))
    with torch.inference_mode():
        for _ in model.prefill(
            ids, cache, segment_tokens=64, chunk_tokens=13, should_stop=lambda: next(left, None) is None
        ):
            pass


@pytest.mark.parametrize("seed", range(12))
def test_after_any_sequence_the_cache_is_one_that_was_fed_at_once(model, seed: int):
    """Passes of which some is accepted, prefills, some of them stopped, rollbacks to where the cache can go
    back to, and places that somebody will come back to.
    """
    dice = random.Random(seed)
    cache, ids, returned = whole_cache(model, 400), list[int](), 0
    for _ in range(14):
        op = dice.choice(["pass", "pass", "prefill", "stopped", "rollback", "remember"])
        n = min(dice.choice([1, 3, 17, 45, 90]), 380 - len(ids))
        new = [dice.randrange(VOCAB) for _ in range(n)]
        if op == "rollback":
            length = dice.randint(0, len(ids))
            found = cache.resumable(length)
            assert found <= length
            returned += found < length
            cache.rollback(found)
        elif op == "remember":
            cache.remember()
        elif op == "pass" and new:
            fed(model, cache, new)
            cache.commit(len(ids) + dice.randint(0, len(new)))
        elif new:
            prefilled(model, cache, new, layers=dice.randint(1, 9) if op == "stopped" else 1000)
        ids = (ids + new)[: cache.length]
    assert cache.length == len(ids)
    found = fed(model, cache, [7])
    want = fed(model, whole_cache(model, 400), [*ids, 7])[-1]
    assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())


def test_copies_from_behind_a_rollback_are_of_another_text(model):
    """And are not gone back to."""
    cache = whole_cache(model, 400)
    prefilled(model, cache, IDS[:200], layers=1000)
    assert cache.resumable(199) == 192
    cache.rollback(192)
    assert [cache.resumable(length) for length in (191, 127, 63)] == [128, 64, 0]
    cache.rollback(64)
    prefilled(model, cache, [1] * 30, layers=1000)
    assert (cache.resumable(93), cache.resumable(300)) == (64, 94)
    with pytest.raises(ValueError, match="see resumable"):
        cache.rollback(80)


def test_of_copies_the_newest_are_kept_and_where_somebody_will_return(model):
    cache = whole_cache(model, 800)
    prefilled(model, cache, IDS[:70], layers=1000)
    cache.remember()
    for _ in range(5):
        prefilled(model, cache, IDS[:64], layers=1000)
    assert [cache.resumable(length) for length in (389, 263, 197, 69)] == [326, 262, 70, 0]
    before = cache.nbytes
    prefilled(model, cache, IDS[:64], layers=1000)
    assert cache.nbytes == before


def test_times_behind_rows_that_were_copied_leave_a_cache_as_it_was(model, plainly: torch.Tensor):
    """States do not go through what is written, and stand again where they stood."""
    cache = whole_cache(model, 400)
    for token in IDS[:60]:
        fed(model, cache, [token])
    cache.commit(60)
    held = cache.side.nbytes
    with torch.inference_mode():
        verify_times(model, cache, 300, TimeLimit(1e-9, iter(range(10**6)).__next__))
    assert (cache.length, cache.side.nbytes) == (60, held)
    assert torch.equal(fed(model, cache, IDS[60:64]), plainly[60:64])


def test_what_lies_in_host_memory_is_of_the_shape_that_is_planned(model):
    """A copy: the states, and the rows that the convolution sees of the next token."""
    shape = model.config.kv_shape.states
    kept = LayerStates(model.config.kv_shape, CpuBackend()).kept_at(0)
    assert kept.states.shape == (len(shape.layers), *shape.size)
    assert kept.rows.shape == (len(shape.layers), shape.tail, shape.width)
