"""What ranks tell one another, and what happens where one cannot go on."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.ranks import ProcessRanks, gloo_group
from core.errors import DeviceFull, RankLost, UserError
from core.model.config import from_source
from core.model.gguf.folder import opened
from core.model.loader import build_model, load_model
from core.model.split_weights import Share
from tests.support.assembled_engines import OutOfMemory, SmallDevice
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.tiny import Named, oracle, whole_cache
from tests.support.two_ranks import TwoRanks, both

IDS = [5, 17, 63, 3, 88]


def test_numbers_are_rank_0s(pair: TwoRanks):
    """Ranks that acted on their own would part ways over a rounding."""

    def case(ranks: ProcessRanks) -> list[float]:
        return ranks.numbers(torch.tensor([1.5 + ranks.rank]), torch.tensor([2**53 - 1 - ranks.rank]))

    assert pair.run(case) == [[1.5, 2**53 - 1]] * 2


@pytest.mark.parametrize("failing", [1, 3], ids=["in the first layer", "in the second pass"])
def test_where_one_is_full_all_say_so(pair: TwoRanks, tmp_path: Path, failing: int):
    """The other would wait for its sums for ever, or go on with half a model; afterwards they are in step."""
    oracle().save_pretrained(tmp_path)

    def case(ranks: ProcessRanks) -> tuple[list[int], torch.Tensor]:
        backend = SmallDevice(failures=[failing] if ranks.rank == 1 else [])
        model = load_model(tmp_path, backend, positions=64, ranks=ranks)
        cache, refused = whole_cache(model, 64), []
        with torch.inference_mode():
            for number in range(3):
                try:
                    found = model.forward(IDS, cache)
                except (DeviceFull, OutOfMemory):
                    refused.append(number)
        return refused, found

    (first, own), (second, other) = pair.run(case)
    assert first == second == [(failing - 1) // 2]
    assert torch.equal(own, other)
    assert own.isfinite().all()


def test_a_prefill_ends_where_one_is_full(pair: TwoRanks, tmp_path: Path):
    """A segment that was computed with zeros in place of a rank's sums must not become final."""
    oracle().save_pretrained(tmp_path)

    def case(ranks: ProcessRanks) -> int:
        backend = SmallDevice(failures=[4] if ranks.rank == 1 else [])  # of two layers: in the second segment
        model = load_model(tmp_path, backend, positions=64, ranks=ranks)
        cache = whole_cache(model, 64)
        sizes = {"segment_tokens": 20, "chunk_tokens": 20, "should_stop": lambda: False}
        with torch.inference_mode(), pytest.raises((DeviceFull, OutOfMemory)):
            list(model.prefill(IDS * 8, cache, **sizes))
        return cache.length

    assert pair.run(case) == [20, 20]


def test_what_nobody_expects_is_not_taken_for_a_full_device(pair: TwoRanks):
    """Only a device without memory gives way; a mistake has to be seen."""

    def case(ranks: ProcessRanks) -> None:
        with pytest.raises(RuntimeError, match="a mistake"):
            ranks.attempt(_fail)
        ranks.agree()

    pair.run(case)


def _fail() -> None:
    raise RuntimeError("a mistake")


def test_what_one_refuses_is_refused_by_all(pair: TwoRanks):
    """A card that does not hold the weights must say so to the person, not leave the others waiting."""

    def case(ranks: ProcessRanks) -> tuple[str, int]:
        def make() -> int:
            if ranks.rank == 1:
                raise UserError("The weights do not fit. Buy memory.")
            return 7

        with pytest.raises(UserError) as refused:
            ranks.all_or_none(make)
        return str(refused.value), ranks.all_or_none(lambda: 7)

    assert pair.run(case) == [("The weights do not fit. Buy memory.", 7)] * 2


def test_who_waits_alone_is_told(tmp_path: Path):
    """A rank that never came must not hold the others for ever."""
    with pytest.raises(RankLost):
        gloo_group(tmp_path / "meeting", 0, 2, timeout_s=0.2)


def test_a_mistake_ends_the_tests_of_ranks():
    """A slip in one of them left the other waiting, and the test with it, instead of failing."""
    never = Event()

    def case(rank: int) -> None:
        if rank == 1:
            raise AssertionError("a slip")
        never.wait()

    with pytest.raises(AssertionError, match="a slip"):
        both(case)
    with pytest.raises(TimeoutError, match="2 of 2 ranks"):
        both(lambda rank: never.wait(), patience_s=0.05)


def test_ranks_meet_anew_behind_a_mistake(tmp_path: Path):
    """One that waits for a sum would take the next test's numbers for it."""
    pair = TwoRanks(tmp_path)

    def parted(ranks: ProcessRanks) -> None:
        ranks.any(True) if ranks.rank else _fail()

    with pytest.raises(RuntimeError, match="a mistake"):
        pair.run(parted)
    assert pair.run(lambda ranks: ranks.numbers(torch.tensor([float(ranks.rank)]))) == [[0.0]] * 2


def test_heads_that_do_not_divide_are_refused_with_the_numbers():
    """A share of half a head would be computed, wrongly, or fail far from its cause."""
    config = from_source(oracle(kv_heads=2).config.to_dict(), name="tiny", eos=None)
    with pytest.raises(UserError, match="tiny has 2 key/value heads, which do not divide by 3 graphics"):
        Share(0, 3).config(config)
    states = from_source(oracle("qwen3_5_text").config.to_dict(), name="tiny", eos=None)
    with pytest.raises(UserError, match="layers that keep a state"):
        Share(0, 2).config(states)


def test_blocks_of_codes_are_not_cut(tmp_path: Path):
    """A share that ends inside a block has no factors of its own."""
    file = write_gguf(tmp_path / "tiny.gguf", wide(), "Q4_K")  # 256 columns of o_proj, 128 for each

    class Second:
        rank, size = 1, 2

    with pytest.raises(UserError, match="128 columns .*o_proj.* blocks of 256"):
        load_model(opened(file), CpuBackend(), positions=64, ranks=Second())


@pytest.mark.parametrize(("width", "size"), [(48, 2), (50, 2), (768, 2), (8960, 2), (11008, 3), (256, 2)])
def test_shares_of_an_mlp_cover_it_once(width: int, size: int):
    """A column that two ranks have, or none, makes another model."""
    found = [list(range(width)[Share(rank, size).of_mlp(width)]) for rank in range(size)]
    assert sum(found, []) == list(range(width))
    assert max(map(len, found)) - min(map(len, found)) <= 256


def test_only_the_share_is_held(tmp_path: Path):
    """Two cards hold a model that one does not: each has half of what is split."""
    model = oracle(kv_heads=2)
    config = from_source(model.config.to_dict(), name="tiny", eos=None)

    class First:
        rank, size = 0, 2

    layer = build_model(config, Named(model), CpuBackend(), positions=64, ranks=First())._layers[0]
    assert layer.qkv.weight.shape == (32, 32)  # of 4 + 2 + 2 heads of 8
    assert layer.out.weight.shape == (32, 16)
    assert layer.gate_up.weight.shape == (48, 32)
    assert layer.down.weight.shape == (32, 24)
