"""The engine's own process, but that a reading rests once two thirds of it are done, until it is stopped:
`python tests/support/resting_worker.py --parent PID`. It does so once in a data folder.

A test can stop it, or kill it, while it reads, however fast the computer is and however short the book.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core import worker  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.events import Prefill  # noqa: E402
from core.paths import subdir  # noqa: E402

read_on = Engine.generate


def generate(self, context, ids, params, *, should_stop=lambda: False, **given):
    """As Engine.generate, with the rest."""
    rested = subdir("run") / "rested"
    for event in read_on(self, context, ids, params, should_stop=should_stop, **given):
        yield event
        far = isinstance(event, Prefill) and 3 * event.done_tokens >= 2 * event.total_tokens
        if far and not rested.exists():
            rested.touch()
            while not should_stop():
                time.sleep(0.01)


if __name__ == "__main__":
    Engine.generate = generate
    worker.main()
