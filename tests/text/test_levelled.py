"""Cut, joined and made fit to be read, a text still knows which level proposed each of its characters."""

from __future__ import annotations

from core.conversation.part_summaries import tidied
from core.events import Piece
from core.text.levelled import LevelledText

TOLD = LevelledText.of((Piece(" The kee", "draft"), Piece("per\nrow", "ngram"), Piece("ed.  ", "target")))


def test_pieces_come_back_one_for_each_run():
    cut = (Piece("ab", "draft"), Piece("c", "draft"), Piece("", "target"), Piece("d", ""))
    assert LevelledText.of(cut).pieces == (Piece("abc", "draft"), Piece("d", ""))
    assert LevelledText().pieces == () and LevelledText.plain("x").pieces == (Piece("x", ""),)


def test_what_is_cut_away_takes_its_levels_with_it():
    assert TOLD.strip().pieces[0] == Piece("The kee", "draft") and TOLD.strip().pieces[-1] == Piece(
        "ed.", "target"
    )
    assert LevelledText.plain("  ").strip() == LevelledText()
    without = TOLD.without("e+").on_one_line()
    assert without.pieces == (
        Piece("Th", "draft"),
        Piece(" ", ""),
        Piece("k", "draft"),
        Piece("pr", "ngram"),
        Piece(" ", ""),
        Piece("row", "ngram"),
        Piece("d.", "target"),
    )


def test_a_summary_made_fit_to_be_read_keeps_the_levels_of_what_stays():
    """Announcement, bullets and the broken-off end go, among them words that stand in what stays, too."""
    said = "Here is it: the bell:\n\n- **the bell** rang\n- Mara rowed.\n- And so"
    raw = LevelledText(said, tuple(f"{at}" for at in range(len(said))))
    found = tidied(raw, "Summarise")
    assert found.text == "the bell rang. Mara rowed."
    assert all(
        said[int(level)] == char for char, level in zip(found.text, found.levels, strict=True) if level
    )
    assert found.levels[0] == str(said.index("**the") + 2), "the announcement has the same words"
    assert found.levels.count("") == 2, "a full stop and a space were nobody's"
