"""Files that another program holds for a moment: a virus scanner, an indexer or a synchronised folder looks
at what was just written, and until then Windows neither replaces nor deletes it. Waiting is the remedy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

# between tries, 14 s in all: uv's 10 s are reported as too few, where a whole wheel is scanned
PAUSES_S = (1.0, 3.0, 10.0)
# access denied, used by another process, a part of it locked, mapped into another process
_NUMBERS = (5, 32, 33, 1224)
_TOLD = re.compile(rf"(?:winerror|os error) (?:{'|'.join(map(str, _NUMBERS))})\b", re.IGNORECASE)


def is_sharing_violation(error: OSError) -> bool:
    """Whether it is one of the errors by which Windows says so. None of another system is."""
    return getattr(error, "winerror", None) in _NUMBERS


def is_told(words: str) -> bool:
    """Whether a program's words name such an error, by its number: the sentence is in the user's language."""
    return _TOLD.search(words) is not None


def patiently(action: Callable[[], object], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Do it, and again after a while where a file was held. Raises the OSError of the last try."""
    for pause in PAUSES_S:
        try:
            action()
            return
        except OSError as error:
            if not is_sharing_violation(error):
                raise
        sleep(pause)
    action()
