"""A worker process whose engine is computed by two processes on the CPU: `python
tests/support/ranked_worker.py --parent PID`. RANKED_MODEL: folder of a tiny checkpoint of two KV heads.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core import worker  # noqa: E402
from core.assembly.ranked import build_ranked  # noqa: E402
from core.conversation.reading import ReadingStyle  # noqa: E402
from core.conversation.session import Session  # noqa: E402
from tests.support.card_worker import AWAY, SmallTokenizer  # noqa: E402


def open_session(settings, *, hear):
    """The session of the worker, of a model that two ranks hold."""
    plan = replace(AWAY, devices=(0, 1))
    engine = build_ranked(plan, replace(settings, snapshot_quota_gb=0), Path(os.environ["RANKED_MODEL"]))
    return Session(engine, SmallTokenizer(), ReadingStyle(part_tokens=300, system=""))


if __name__ == "__main__":
    worker.main(open_session=open_session)
