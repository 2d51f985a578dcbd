"""The acceptance benchmark on a tiny model."""

from __future__ import annotations

import pytest
import torch

from benchmarks.quality import acceptance
from benchmarks.quality.acceptance import (
    CHUNK,
    DEFAULT_REFRESH,
    RetrievalSetup,
    Row,
    acceptance_tables,
    rate,
    setups,
)
from benchmarks.quality.selection_policies import ByColumnSums
from core.cache.full import FullKVCache
from core.decoding.forced import ExpectedTokens
from core.decoding.sampling import Sampling
from tests.support.tiny import VOCAB, engine, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (180,), generator=torch.Generator().manual_seed(3))]


def test_the_star_has_one_default_and_varies_one_thing_at_a_time():
    """A full grid would take days; a setup that differs in two things would explain neither. The paper's own
    is beside.
    """
    made = setups(4096)
    assert len(made) == len(set(made)) and RetrievalSetup("mass", 512, CHUNK, DEFAULT_REFRESH) in made
    differences = {
        (one.policy != "mass") + (one.chunk != CHUNK) + (one.refresh != DEFAULT_REFRESH) for one in made
    }
    assert differences == {0, 1, 2} and {
        one for one in made if one.policy != "mass" and one.refresh != DEFAULT_REFRESH
    } == {RetrievalSetup("mean_key", budget, CHUNK, "never") for budget in (256, 1024)}
    assert max(one.budget for one in setups(1024)) == 512


def test_all_setups_along_one_text(monkeypatch: pytest.MonkeyPatch):
    """Every policy selects and every setup gets a figure, H2O by sums that were taken once for all."""
    monkeypatch.setattr(acceptance, "BUDGETS", (32, 64))
    made_engine = engine(ours(oracle()))
    cache = FullKVCache(made_engine.model.config.kv_shape, 256, made_engine.model.backend, block_tokens=64)
    columns = ByColumnSums(cache, CHUNK)
    monkeypatch.setattr(acceptance, "CHUNK_TOKENS", 32)
    with torch.inference_mode():
        acceptance._read(made_engine.model, IDS[:158], cache, columns)
        # one per row, head and layer
        assert sum(float(sums.sum()) for sums in columns.columns) == pytest.approx(2 * 4 * 158, rel=1e-3)
        samplings = [Sampling(temperature) for temperature in acceptance.TEMPERATURES]
        text, rows = acceptance._forced(made_engine, cache, columns, "tale", 160, "book", IDS, 160, samplings)
    assert text.tokens == 20 and text.perplexity > 1 and len(rows) == 3 * len(setups(160))
    assert all(row.expected.rounds == 3 and 0 <= row.expected.rate <= 1 for row in rows)
    assert [table.title.split(" by ")[-1] for table in acceptance_tables(rows, [text])][:3] == [
        "selection and budget",
        "chunk and budget",
        "refresh",
    ]


def test_texts_are_summed_before_they_are_divided():
    """A text of few tokens must not weigh as much as one of many."""
    setup = RetrievalSetup("mass", 64, 8, DEFAULT_REFRESH)
    rows = [
        Row("a", 512, "book", 0.0, setup, ExpectedTokens(9.0, 10.0, 2)),
        Row("b", 512, "book", 0.0, setup, ExpectedTokens(0.0, 90.0, 20)),
    ]
    assert rate(rows, setup, 512, 0.0) == pytest.approx(0.09) and rate(rows, setup, 512, 0.6) is None
