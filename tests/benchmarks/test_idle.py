"""benchmarks/speed/idle.py's engine by script: the app must understand it, or the benchmark measures an
error.
"""

from __future__ import annotations

import pytest

from app.engine.client import Runtime
from benchmarks.speed.idle import PROGRAM
from core.config import Settings
from core.documents.document import Document, Section
from core.events import Delta, Finished
from core.request import Request

BOOK = Document("B", "", "txt", "Once.", (Section("I", 0, 5),), sha256="b")


@pytest.fixture
def runtime(home):
    made = Runtime(Settings(), worker=PROGRAM)
    made.start()
    yield made
    made.close()


def test_the_app_understands_all_that_the_scripted_engine_says(runtime):
    """It lagged behind the wire for a day: the engine was started again and again."""
    assert runtime.wait_ready(30), runtime.error
    assert runtime.card(BOOK)["tokens"] == 20000
    asked = Request("Go on from word 40", BOOK, conversation_id="c")
    assert runtime.room(asked)["reading"] == "full"
    told = ""
    for event in runtime.ask(asked):
        if isinstance(event, Delta):
            told += "".join(piece.text for piece in event.pieces)
            runtime.stop()
    assert isinstance(event, Finished) and event.text == told and "word39" in told
