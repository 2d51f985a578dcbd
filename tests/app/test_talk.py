"""What the terminal shows of a stream of events: parts under their names, retries never, stretches under one
title.
"""

from __future__ import annotations

from app.talk import _report, _Stream
from core.events import Delta, Finished, Piece, Reading, Stats


class Idle:
    state = "ready"


def said(text: str) -> Delta:
    return Delta((Piece(text, "target"),), Stats(new_tokens=1))


def shown(capsys, *events) -> str:
    _Stream(Idle()).show(iter([*events, Finished("stop", "", Stats())]))
    return capsys.readouterr().out


def test_answer_read_in_one_go_streams_as_it_comes(capsys):
    assert shown(capsys, Reading(1, 1, "the whole book"), said("  He "), said("rowed.")) == "He rowed.\n"


def test_parts_are_named_and_a_retry_is_shown_instead_of_what_it_replaces(capsys):
    text = shown(
        capsys,
        Reading(1, 2, "chapter One", "part summary"),
        said("A pirate."),
        Reading(1, 2, "chapter One", "part summary", attempt=2),
        said("He "),
        said("rowed."),
        Reading(2, 2, "Two", "part summary"),
        said("It rang."),
        Reading(1, 1, "the whole book", "whole summary"),
        said("All "),
        said("of it."),
    )
    assert text == "[1/2] Chapter One\nHe rowed.\n\n[2/2] Two\nIt rang.\n\nThe whole book\n\nAll of it.\n"


def test_stretches_stand_under_one_title(capsys):
    text = shown(
        capsys,
        Reading(1, 1, "Part", "part summary"),
        said("note"),
        Reading(1, 2, "One", "whole summary"),
        said("## One\n\n"),
        said("He rowed."),
        Reading(2, 2, "Two", "whole summary"),
        said("\n\n## Two\n\n"),
        said("A pirate."),
        Reading(2, 2, "Two", "whole summary", attempt=2),
        said("\n\n## Two\n\n"),
        said("It rang."),
    )
    assert text.endswith("The whole book\n\n## One\n\nHe rowed.\n\n## Two\n\nIt rang.\n")
    assert "pirate" not in text


def test_what_was_read_is_told_beside_the_notes(capsys):
    """The notes no longer name it: where only they are printed, nobody would know which part was read."""
    _report(Finished("stop", "", Stats(), sources=("Chapter 3", "the summaries"), notes=("A note.",)))
    assert capsys.readouterr().err.splitlines() == [
        "Read for this answer: Chapter 3; the summaries",
        "A note.",
    ]
