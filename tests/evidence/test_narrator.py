"""Who tells a book as "I", by the sentences that say the name."""

from __future__ import annotations

import pytest

from core.evidence.narrator import narrator, writer

TOLD = "I went down to the harbour, and my lamp was lit. “I, Rudd, am late,” said he.\n\n" * 20


@pytest.mark.parametrize(
    ("says", "name"),
    [
        ("Call me Ishmael. Some years ago I went to sea.", "Ishmael"),
        ("My name is Dorcas Pell, and I had held the post for a year.", "Dorcas Pell"),
        ("So I called myself Pip, and came to be called so.", "Pip"),
        ("I was called Robinson Kreutznaer; but we write Crusoe.", "Robinson Kreutznaer"),
        ("And I, Ishmael, was one of that crew.", "Ishmael"),
        ("Then put down that I am Isaac Rudd, that I kept the light.", "Isaac Rudd"),
        ("I am English, and I am late.", None),
        ("JONATHAN HARKER'S JOURNAL\n\n3 May. Left Munich.", "Jonathan Harker"),
        ("The Diary of Dorcas Pell\n\n3 May. Left Munich.", "Dorcas Pell"),
        ("Thinks I, Queequeg, this is a very civilized overture.", None),
        ("“My name is Isaac Rudd,” said the pilot.", None),
        ("The old man was called Rudd.", None),
        ("He gave me Mina Murray's journal.", None),
    ],
)
def test_the_name_is_what_i_gives(says: str, name: str | None):
    text = f"It was late.\n\n{says}\n\n{TOLD}"
    found = narrator(text)
    assert found.first_person and [one for one, _place in found.named] == [name] * (name is not None)
    assert all(one.split()[0].lower() in text[slice(*place)].lower() for one, place in found.named)


def test_whom_only_its_people_call_i_does_not_tell_it():
    said = "“I am late,” said Rudd. “My name is Rudd, and I tell you so.” He went down to the harbour.\n\n"
    assert not narrator(said * 20).first_person
    assert narrator(said * 20).named == ()


@pytest.mark.parametrize(
    ("heading", "who"),
    [
        ("First Letter: Clara Hollis to M. Verbeke, 4 January 1893", "Clara Hollis"),
        ("CHAPTER II. JONATHAN HARKER’S JOURNAL", "Jonathan Harker"),
        ("3. Diary of Mina Murray", "Mina Murray"),
        ("Letter from Miss Mina Murray to Miss Lucy Westenra.", "Miss Mina Murray"),
        ("Letter 4", None),
        ("From Dover to Calais", None),
        ("Chapter 3: The Road to Hythe", None),
    ],
)
def test_who_writes_a_letter_or_a_journal_its_heading_says(heading: str, who: str | None):
    assert writer(heading) == who
