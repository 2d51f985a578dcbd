"""What tests of a backend stand on."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.cuda_device import device  # noqa: F401 (a fixture)
from tests.support.fake_cuda import FakeCuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """In place of torch.cuda's own; what was made with it is gone before that comes back."""
    yield FakeCuda().install(monkeypatch)
    gc.collect()
