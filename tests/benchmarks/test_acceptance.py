"""The acceptance benchmark on a tiny model, and the pictures of what it saves."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
import torch

from benchmarks import acceptance, plots
from benchmarks.acceptance import CHUNK, DEFAULT_REFRESH, Row, Setup, rate, setups, tables
from benchmarks.selections import ByColumnSums
from core.cache.full import FullKVCache
from core.decoding.forced import Expected
from core.decoding.sampling import Sampling
from tests.support.tiny import VOCAB, engine, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (180,), generator=torch.Generator().manual_seed(3))]


def test_the_star_has_one_default_and_varies_one_thing_at_a_time():
    """A full grid would take days; a setup that differs in two things would explain neither. The paper's own
    is beside.
    """
    made = setups(4096)
    assert len(made) == len(set(made)) and Setup("mass", 512, CHUNK, DEFAULT_REFRESH) in made
    differences = {
        (one.policy != "mass") + (one.chunk != CHUNK) + (one.refresh != DEFAULT_REFRESH) for one in made
    }
    assert differences == {0, 1, 2} and {
        one for one in made if one.policy != "mass" and one.refresh != DEFAULT_REFRESH
    } == {Setup("mean_key", budget, CHUNK, "never") for budget in (256, 1024)}
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
    assert [table.title.split(" by ")[-1] for table in tables(rows, [text])][:3] == [
        "selection and budget",
        "chunk and budget",
        "refresh",
    ]


def test_texts_are_summed_before_they_are_divided():
    """A text of few tokens must not weigh as much as one of many."""
    setup = Setup("mass", 64, 8, DEFAULT_REFRESH)
    rows = [
        Row("a", 512, "book", 0.0, setup, Expected(9.0, 10.0, 2)),
        Row("b", 512, "book", 0.0, setup, Expected(0.0, 90.0, 20)),
    ]
    assert rate(rows, setup, 512, 0.0) == pytest.approx(0.09) and rate(rows, setup, 512, 0.6) is None


def test_pictures_show_every_line_with_its_name():
    """A line without a legend, or a point off the panel, would be worse than no picture. Both themes are in
    the file.
    """
    made = plots.figure(
        "A & B",
        [plots.Panel("behind 1", ("64", "128"), {"mass": (0.5, 1.0), "<h2o>": (None, 0.75)})],
        x_label="budget",
    )
    root = ElementTree.fromstring(made)
    names = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"mass", "<h2o>", "64", "128", "budget", "A & B"} <= set(
        names
    ) and "prefers-color-scheme:dark" in made
    line, other, *_ = root.iter("{http://www.w3.org/2000/svg}polyline")
    ys = [float(point.split(",")[1]) for point in line.get("points").split()]
    assert (
        len(other.get("points").split()) == 1 and ys[1] == plots.TOP < ys[0] <= plots.TOP + plots.PANEL_HEIGHT
    )


@pytest.mark.skipif(not plots.RESULT.is_file(), reason="acceptance was not measured for this version")
def test_pictures_are_those_of_the_result():
    """A picture left over from an older run."""
    drawn = plots.pictures(json.loads(plots.RESULT.read_text(encoding="utf-8"))["details"]["rows"])
    assert {name: (plots.IMAGES / name).read_text(encoding="utf-8") for name in drawn} == drawn, (
        "run python -m benchmarks.plots"
    )
