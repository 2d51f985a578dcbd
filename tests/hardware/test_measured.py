"""What is kept of a machine between starts."""

from __future__ import annotations

from pathlib import Path

from core.hardware.measured import DeviceTrials, Measurements


def trials(folder: Path) -> DeviceTrials:
    """As the next start has them."""
    return DeviceTrials(Measurements(folder), "a card")


def test_what_broke_the_program_twice_is_not_tried_a_third_time(tmp_path: Path):
    """Once may be an app that was closed while it loaded; what ended is forgotten."""
    for broke in (False, False, True):
        assert trials(tmp_path).broke("a kernel") == broke
        trials(tmp_path).begin("a kernel")
    assert not trials(tmp_path).broke("another") and not DeviceTrials(Measurements(tmp_path), "b").broke(
        "a kernel"
    )
    trials(tmp_path).end("a kernel")
    assert not trials(tmp_path).broke("a kernel")


def test_what_failed_the_device_is_not_tried_again(tmp_path: Path):
    """There is no doubt about it."""
    trials(tmp_path).begin("a kernel")
    trials(tmp_path).fail("a kernel")
    assert trials(tmp_path).broke("a kernel")
