"""The scripted worker and how its answer ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.documents.document import Document, Section

SCRIPT = Path(__file__).with_name("scripted_worker.py")


BOOK = Document("B", "", "txt", "The keeper came.\n\n" * 40, (Section("One", 0, 18 * 40),), sha256="b")


def last(events: Iterator):
    *_, event = events
    return event
