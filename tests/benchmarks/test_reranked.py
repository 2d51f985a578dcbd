"""What the reranking benchmark counts, by hand."""

from __future__ import annotations

import pytest

from benchmarks import reranked
from core.conversation.reading import ReadingStyle
from core.conversation.reranking import Heard
from core.evidence.passages import Passage

STYLE = ReadingStyle(doubt=-2.0, asked_weight=1.0, refused_weight=1.0)


def heard(*values: tuple[float, float, float]) -> list[Heard]:
    return [Heard(Passage(at, at + 1, "", None), *value) for at, value in enumerate(values)]


# by words the second holds the answer, by the question's likelihood the first, by both the fourth
ROW = heard((1.0, -1.0, -1.0), (2.0, -9.0, -1.0), (1.5, -5.0, -1.0), (1.0, -2.0, -4.0))


@pytest.mark.parametrize(
    ("right", "expected"), [(3, (1.0, 1.0)), (0, (0.0, 1.0)), (2, (0.0, 1.0)), (1, (0.0, 0.0))]
)
def test_the_right_one_is_looked_for_in_the_models_order(right: int, expected: tuple[float, float]):
    assert reranked.found([(ROW, [at == right for at in range(4)])], STYLE) == expected


def test_doubt_is_counted_with_and_without_the_passages_that_hold_the_answer():
    """Of two questions one is doubted everywhere but at the passage that holds its answer."""
    rows = [(ROW, [False, False, False, True]), (heard((1.0, -1.0, -3.0), (1.0, -1.0, -3.0)), [True, False])]
    assert reranked.refused(rows, STYLE, without=False) == 0.0
    assert reranked.refused(rows, STYLE, without=True) == 1.0, "of those with two passages left"


def test_every_way_is_in_the_table():
    first, _second = reranked.tables([(ROW, [False, True, False, False])], STYLE)
    assert [row[1] for row in first.rows] == ["1.000", "0.000", "0.000", "0.000"]
