"""One pair of ranks for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.support.two_ranks import TwoRanks


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TwoRanks:
    """Two ranks over gloo."""
    return TwoRanks(tmp_path_factory.mktemp("ranks"))
