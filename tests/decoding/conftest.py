"""Both ways to decide: with logits in host memory, and with logits on a device whose numbers the host has not
seen.
"""

from __future__ import annotations

import pytest

from core.decoding import sampling, verify


def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the law, the residual and the bonus are computed as on a device, here on the CPU."""
    for home in (sampling, verify):
        monkeypatch.setattr(home, "on_device", lambda tensor: True)


@pytest.fixture(params=["host", "device"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For promises that hold wherever the logits are."""
    if request.param == "device":
        unseen(monkeypatch)
