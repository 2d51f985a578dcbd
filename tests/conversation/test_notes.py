"""Summaries made fit to be read: no announcement, no list marks, groups of even size."""

from __future__ import annotations

import pytest

from core.conversation import part_summaries
from core.conversation.part_summaries import (
    PartSummary,
    PartSummaryStore,
    SummaryLine,
    grouped,
    labelled_text,
    tidied,
)
from core.text.levelled import LevelledText


def note(number: int, text: str, label: str = "") -> PartSummary:
    return PartSummary(label or str(number), (SummaryLine(text, 0, 1),), number, number)


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("Sure, here is a summary: The keeper rowed home.", "The keeper rowed home."),
        (
            "The main events are:\n\n1. The keeper rowed home\n2. He lit it.\n3. Then he",
            "The keeper rowed home. He lit it.",
        ),
        ("XI\n**He** rowed. He lit it. 3.", "He rowed. He lit it."),
        (
            "## The storm\n\nThe keeper rowed home.\n\n**After**\nHe lit it.",
            "The keeper rowed home.\n\n\nHe lit it.",
        ),
        ("**The keeper rowed home.** He lit it.", "The keeper rowed home. He lit it."),
        ("1. **\n2. **", ""),
        ("1. The bell\n2. The fog", "The bell. The fog."),
        ("- A boat came,\n- and the bell rang.", "A boat came. and the bell rang."),
        ("The keeper rowed home. Then he sat down and", "The keeper rowed home."),
        ('He said: "Row home."\n\nThey rowed.', 'He said: "Row home."\n\nThey rowed.'),
        ("no end in sight", "no end in sight"),
    ],
)
def test_settled(raw: str, kept: str):
    assert tidied(LevelledText.plain(raw), "Summarize what happens in this passage.").text == kept


def test_echo_of_the_instruction_goes():
    prompt = "Summarize what happens in this passage."
    assert tidied(LevelledText.plain(f"The keeper rowed home. {prompt} Again."), prompt).text == (
        "The keeper rowed home."
    )


def test_groups_are_even_and_in_order():
    notes = [note(i, "x" * 100) for i in range(10)]
    groups = grouped(notes, lambda note: len(note.text), 350)
    assert [len(group) for group in groups] in (
        [3, 4, 3],
        [3, 3, 4],
        [4, 3, 3],
        [3, 2, 2, 3],
        [2, 3, 2, 3],
        [2, 3, 3, 2],
        [3, 2, 3, 2],
    )
    assert [note.first for group in groups for note in group] == list(range(10))


def test_groups_shrink_whatever_the_room():
    """Notes longer than the room must not keep a summary of summaries from ending."""
    notes = [note(i, "x" * 900) for i in range(5)]
    assert len(grouped(notes, lambda note: len(note.text), 100)) <= 2
    assert grouped(notes[:1], lambda note: len(note.text), 100) == [notes[:1]]


def test_joined_names_every_part():
    assert labelled_text([note(0, "a", "One"), note(1, "b", "Two")]) == "One\na\n\nTwo\nb"


def test_what_stands_on_the_disk_does_not_pile_up_in_memory(tmp_path, monkeypatch):
    """Every part of every book that was ever summarised stayed in the engine's process."""
    monkeypatch.setattr(part_summaries, "_IN_MEMORY", 3)
    kept, alone = PartSummaryStore(tmp_path), PartSummaryStore()
    for number in range(8):
        for store in (kept, alone):
            store.put((SummaryLine(f"Part {number}.", 0, 1),), "book", "model", str(number))
        assert kept.get("book", "model", "0") == (SummaryLine("Part 0.", 0, 1),)
    assert len(kept._notes) == 3 and len(alone._notes) == 8
    for number in range(8):
        for store in (kept, alone):
            assert store.get("book", "model", str(number)) == (SummaryLine(f"Part {number}.", 0, 1),)
