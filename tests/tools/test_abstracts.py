"""Which sentences of a summary fall on which passage of its story, and which of them stand alone."""

from __future__ import annotations

import pytest

from tools.embedded_reader.abstracts import abstracts, assigned, paragraph_passages, stands_alone


def test_sentences_of_a_summary_fall_on_the_passages_they_tell():
    """In order, by the words they share."""
    texts = ["Ahab chased the whale.", "Nemo steered the submarine.", "Ishmael floated on a coffin."]
    told = [
        "The whale was chased by Ahab.",
        "Then Nemo steered.",
        "He came to a submarine.",
        "Ishmael floated.",
    ]
    assert assigned(told, texts) == [0, 1, 1, 2]
    assert [a.text for a in abstracts(" ".join(told), texts)][
        1
    ] == "Then Nemo steered. He came to a submarine."


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("Ahab chased the whale. Later he lost it.", True),
        ("He chased the whale. Later he lost it.", False),
        ("Ahab chased the whale.", False),
        ("Ahab and Starbuck chased the whale. Later he lost it.", False),
    ],
)
def test_an_abstract_stands_alone(text: str, stands: bool):
    """No pronoun first, two sentences at least, and no name that the passage does not know."""
    assert stands_alone(text, "Ahab chased the whale and lost it.", words=(5, 30), most=5) is stands


def test_passages_keep_every_paragraph():
    """Nothing of a story is left out, nothing twice."""
    parts = [f"Paragraph {n} " + "word " * (n * 7 % 50) for n in range(40)]
    assert "\n\n".join(paragraph_passages(parts, 90)) == "\n\n".join(parts)
