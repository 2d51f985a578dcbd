"""Where the last words of a text stand."""

from __future__ import annotations

import pytest

from core.evidence.last_words import last_words

LONG = "The keeper rowed out to the holm with lamp number {} and came home before it was dark again."
SPEECH = "“I was never the keeper,” said Mara."


def said(text: str, start: int = 0, end: int | None = None) -> str | None:
    place = last_words(text, start, len(text) if end is None else end)
    return text[slice(*place)] if place else None


@pytest.mark.parametrize(
    "below",
    [
        "",
        "\n\nTHE END.",
        "\n\nThe End",
        "\n\n（完）",
        "\n\nEnd of Project Gutenberg's The Light, by A. Keeper",
        "\n\nTrieste, 1914",
        "\n\n[3] A holm is a small island.",
        "\n\nFig. 3. The holm, seen from the boat.",
    ],
)
def test_they_are_the_last_paragraphs_and_nothing_that_stands_below(below: str):
    text = (
        f"{LONG.format(1)} {LONG.format(2)} {LONG.format(3)} {LONG.format(4)}\n\nShe rose.\n\n{SPEECH}{below}"
    )
    assert said(text) == f"{LONG.format(3)} {LONG.format(4)}\n\nShe rose.\n\n{SPEECH}"


def test_of_a_long_paragraph_they_are_the_last_sentences():
    text = " ".join(map(LONG.format, range(9)))
    assert said(text) == " ".join(map(LONG.format, range(6, 9)))
    one = " and ".join(LONG.format(at)[:-1] for at in range(9)) + "."
    assert said(f"It was late. {one}") == one


def test_they_do_not_begin_within_what_somebody_says():
    text = " ".join(["“" + LONG.format(1), *map(LONG.format, range(2, 5)), LONG.format(5) + "” She rose."])
    assert said(text) == "She rose."
    assert (
        said(f"“{LONG.format(1)} {LONG.format(2)} {LONG.format(3)} {LONG.format(4)}”\n\n{SPEECH}") == SPEECH
    )


def test_they_stop_at_a_heading_and_a_sentence_that_is_broken_off_is_none_of_them():
    text = f"{LONG.format(1)}\n\nCHAPTER II\n\n{SPEECH} And there she"
    assert said(text) == SPEECH
    assert said("CHAPTER II\n\nThe Holm") is None and said("") is None
    assert said(text, 0, len(LONG)) == LONG.format(1)
    assert said(f"{LONG.format(1)}\n\n“I never—”") == f"{LONG.format(1)}\n\n“I never—”"
