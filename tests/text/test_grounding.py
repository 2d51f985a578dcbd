"""A summary that keeps to its text scores high; one that invents or merely copies does not."""

from __future__ import annotations

from core.text.grounding import grounding

PASSAGE = (
    "Old Harald climbed the lighthouse stair every evening. He lit the lamp, and he counted the boats that "
    "came home. "
    "On Thursday one boat was missing, so he rang the bell until the village woke and the men rowed out into "
    "the fog."
)


def test_a_faithful_summary_is_supported():
    found = grounding(
        "Harald lights the lamp and counts boats. One boat is missing; he rings the bell.", PASSAGE
    )
    assert found.supported >= 0.75 and found.strangers == () and found.copied < 0.2 and found.score >= 0.75


def test_invented_names_are_strangers_and_cost():
    found = grounding("A sailor meets Alex and his friend Sarah. Harald talks with Alex in London.", PASSAGE)
    assert found.strangers == ("Alex", "Sarah", "London")
    assert found.score < found.supported - 0.4


def test_a_name_in_another_case_is_no_stranger():
    assert grounding("Then the Boats of the Village came.", PASSAGE).strangers == ()


def test_talk_about_writing_is_not_supported():
    assert (
        grounding(
            "This passage describes a classic literary device with vivid sensory detail.", PASSAGE
        ).supported
        < 0.2
    )


def test_a_copy_of_the_passage_is_no_summary():
    copy = grounding(PASSAGE, PASSAGE)
    assert copy.copied > 0.95 and copy.supported == 1.0 and copy.score < 0.6


def test_an_empty_summary_scores_nothing():
    assert grounding("", PASSAGE).score == 0.0
