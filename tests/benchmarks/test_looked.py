"""What the benchmark of looks counts as right."""

from __future__ import annotations

from benchmarks.looked import Tally, _units


def test_a_passage_is_right_that_has_a_part_of_a_right_section():
    """Passages are longer than sections: a gold section must not be missed, nor its neighbour counted."""
    sections = [" ".join(f"word{at}x{i}." for i in range(150)) for at in range(5)]
    text, (own, passages), (of_sections, of_passages) = _units({"sections": sections})
    assert [text[one.start : one.end] for one in own] == sections
    assert of_sections == [{at} for at in range(5)]
    for passage, owners in zip(passages, of_passages, strict=True):
        inside = {at for at in range(5) if f"word{at}x" in text[passage.start : passage.end]}
        assert owners == inside
    assert set().union(*of_passages) == set(range(5)) and max(map(len, of_passages)) > 1


def test_three_are_counted_and_a_tie_goes_to_the_first():
    tally = Tally()
    for right in ({0}, {1}, {3}):
        tally.add([0.5, 0.5, 0.1, 0.0], right)
    assert (tally.asked, tally.first, tally.three) == (3, 1, 2)
