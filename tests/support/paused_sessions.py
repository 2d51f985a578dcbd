"""Sessions over a text whose reading is paused."""

from __future__ import annotations

from pathlib import Path

from core.conversation.part_summaries import PartSummaryStore
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from tests.support.reopening import reopened
from tests.support.tiny_tokenizer import TinyTokenizer

SENTENCE = "On day {day} the water stood at {day} feet, and Mara wrote it on the door of the boathouse.\n\n"


TEXT = "".join(SENTENCE.format(day=day) for day in range(14))


def opened(folder: Path, style: ReadingStyle) -> Session:
    (folder / "notes").mkdir(exist_ok=True)
    return Session(
        reopened(folder),
        TinyTokenizer(),
        style,
        allowance_bytes=1 << 30,
        notes=PartSummaryStore(folder / "notes"),
        read_whole_s=1e6,
    )


STYLE = ReadingStyle(system="S", part_prompts=("?",), whole_prompt="?", note_tokens=8)
