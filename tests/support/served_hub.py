"""The stand-in of the hub, running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.model.store import download as hub
from tests.support.hub import Hub, serving


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The stand-in, running. Nothing here may reach the real hub."""
    from huggingface_hub import file_download

    # the client's pause between tries
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    # 10 MB: nothing here is that large
    monkeypatch.setattr(file_download.constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    monkeypatch.setattr(hub, "SPARE_BYTES", 0)
    with serving() as (stand_in, url):
        point_client_at(url, monkeypatch)
        yield stand_in


def point_client_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT does when it is set before the client is imported."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
