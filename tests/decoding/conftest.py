"""Both ways to decide: with logits in host memory, and with logits on a device whose numbers the host has not
seen.
"""

from __future__ import annotations

import pytest

from tests.support.unseen_cases import unseen


@pytest.fixture(params=["host", "device"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For promises that hold wherever the logits are."""
    if request.param == "device":
        unseen(monkeypatch)
