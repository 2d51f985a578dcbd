"""Which cases of a grid are left unseen."""

from __future__ import annotations

import pytest

from core.decoding import sampling, verify


def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the law, the residual and the bonus are computed as on a device, here on the CPU."""
    for home in (sampling, verify):
        monkeypatch.setattr(home, "on_device", lambda tensor: True)
