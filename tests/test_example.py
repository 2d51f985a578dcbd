"""The public door, as its example shows it."""

from __future__ import annotations

import re
from pathlib import Path

from examples.answer import main


def test_the_example_streams_an_answer_and_its_figures(home_with_model: Path, tmp_path: Path, capsys):
    """The first thing that anyone tries: a book, a question, an answer, and how fast it was."""
    book = tmp_path / "ferry.txt"
    book.write_text("Mara kept the ferry on the river Lind. Every morning she wrote its height on a door.\n")
    main(str(book), "Who kept the ferry?")
    answer, figures = capsys.readouterr().out.rsplit("\n\n", 1)
    assert "Mara" in answer
    assert re.match(
        r"\d+ tokens, \d+ ms between tokens \(TBT\)\n\d+ of \d+ proposed tokens accepted by the full model\n",
        figures,
    )
