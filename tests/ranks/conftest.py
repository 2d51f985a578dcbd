"""One pair of ranks for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.two_ranks import TwoRanks


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRanks]:
    """Two ranks over gloo."""
    found = TwoRanks(tmp_path_factory.mktemp("ranks"))
    yield found
    found.close()
