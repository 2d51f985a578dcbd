"""The public door, as its example shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import build
from core.config import Settings, override
from core.conversation.reading import ReadingStyle
from core.documents.document import Document, Section
from core.events import AttentionEvidence
from core.model.store.catalogue import EMBEDDED, find
from core.request import Params, Request, params_of
from examples.answer import main
from tests.support.fakes import CharTokenizer, FakeEngine
from tests.support.said import figures, worded_by


def test_the_example_streams_an_answer_and_its_figures(home_with_model: Path, tmp_path: Path, capsys):
    """The first thing that anyone tries: a book, a question, an answer, and how fast it was."""
    book = tmp_path / "ferry.txt"
    book.write_text("Mara kept the ferry on the river Lind. Every morning she wrote its height on a door.\n")
    main(str(book), "Who kept the ferry?")
    answer, told = capsys.readouterr().out.rsplit("\n\n", 1)
    assert "Mara" in answer
    assert [len(figures(line)) for line in told.splitlines()] == [2, 2]


@pytest.mark.wide
def test_a_load_says_how_long_it_takes_as_the_one_before_took(home_with_model: Path):
    """The wiring of it: what one process measured, the next one says from its first word on."""
    heard = []
    for _start in range(2):
        heard.append([])
        build.open_session(Settings(context_tokens=512), hear=heard[-1].append).close()
    first, again = heard
    assert first[0].left_s is None and first[-1].fraction == 1.0
    assert worded_by(build._opened, again[0].stage) and again[0].left_s > 0.05
    halfway = [one for one in again if one.fraction and 0.4 < one.fraction < 0.6]
    assert halfway and all(one.left_s is None or one.left_s < again[0].left_s * 3 for one in halfway)


def test_settings_reach_an_answer_with_its_question_alone(home_with_model: Path, monkeypatch):
    """What was set when the engine started, and is left open by now, must not be used any more."""
    engine = FakeEngine(lambda ids, params: CharTokenizer().encode("So."))
    monkeypatch.setattr(build, "_loaded", lambda *_given: (engine, CharTokenizer()))
    given = {"temperature": 0.5, "top_p": 0.7, "repetition_penalty": 1.2, "seed": 4, "stop": ["x"]}
    settings = override(Settings(), {**given, "mode": "ngram", "max_new_tokens": 9})
    session = build.open_session(settings)
    list(session.ask(Request("Who?", params={**params_of(settings), "seed": 5})))
    list(session.ask(Request("Who?", params={**params_of(Settings()), "seed": 5})))
    first, reset = engine.params
    assert first == Params(**{**given, "mode": "ngram", "max_new_tokens": 9, "seed": 5})
    style = ReadingStyle.from_record(find(EMBEDDED).reading)
    own = {name: getattr(style, name) for name in ("temperature", "top_p", "repetition_penalty")}
    assert reset == Params(**own, seed=5)


@pytest.mark.parametrize("looking", [True, False])
@pytest.mark.wide
def test_the_setting_says_whether_anybody_asks_where_the_model_looked(home_with_model: Path, looking: bool):
    """One condition in core/build.py is all that reads it: without that, the catalogue's heads are asked
    though they are switched off.
    """
    text = "Mara kept the ferry on the river Lind. Every morning she wrote its height on a door.\n"
    book = Document("Ferry", "", "txt", text, (Section("One", 0, len(text)),), sha256="f")
    session = build.open_session(Settings(context_tokens=512, evidence_attention=looking))
    ask = Request("Who kept the ferry?", book, "c", reading_mode="full", params={"max_new_tokens": 4})
    events = list(session.ask(ask))
    session.close()
    assert any(isinstance(one, AttentionEvidence) for one in events) == looking
