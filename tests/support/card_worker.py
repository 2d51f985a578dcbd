"""A worker process whose engine runs on stand-ins for a card, most of its KV cache in host memory:
`python tests/support/card_worker.py --parent PID`.

CARD_TOUCH_S: seconds that a piece of host memory takes until it is ready.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest  # noqa: E402

from core import worker  # noqa: E402
from core.assembly.cache_factory import CacheFactory  # noqa: E402
from core.assembly.composition import Composer  # noqa: E402
from core.backend.cuda import pinned  # noqa: E402
from core.conversation.reading import ReadingStyle  # noqa: E402
from core.conversation.session import Session  # noqa: E402
from core.engine import Engine  # noqa: E402
from tests.support.fake_cuda import FakeCuda  # noqa: E402
from tests.support.fakes import CharTokenizer  # noqa: E402
from tests.support.tiny import PLAN, VOCAB, oracle, ours  # noqa: E402

AWAY = replace(PLAN, on_chip_layers=0, staging_blocks=2, staging_block_tokens=64, staging_block_bytes=1)


class SmallTokenizer(CharTokenizer):
    """One token per character, as many as the tiny model knows."""

    def encode(self, text: str) -> list[int]:
        return [5 + ord(char) % (VOCAB - 5) for char in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("0") + one) for one in ids if one >= 5)


def open_session(settings, *, hear):
    """The session of the worker: what `build_engine` puts together, around random weights."""
    touched = pinned._touched

    def slowly(nbytes: int):
        time.sleep(float(os.environ.get("CARD_TOUCH_S", "0")))
        return touched(nbytes)

    pinned._touched = slowly
    model = ours(oracle(), backend=FakeCuda().install(pytest.MonkeyPatch()).backend())
    room = CacheFactory(AWAY, settings, model)
    engine = Engine(
        model,
        AWAY,
        new_cache=room.new_cache,
        host_memory=room.host_memory,
        compose=Composer(AWAY, model, None).compose,
        peak_memory=lambda: 1,
    )
    return Session(engine, SmallTokenizer(), ReadingStyle(part_tokens=300, system=""))


if __name__ == "__main__":
    worker.main(open_session=open_session)
