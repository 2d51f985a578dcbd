"""How long a load may take is what the last ones took, and then what this one takes."""

from __future__ import annotations

import pytest

from core.hardware.loading import LoadTime
from core.hardware.measured import Measurements


class Clock:
    """A clock that stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def load(folder, clock, wish: str, size: int, *, before_s=2.0, weights_s=10.0, after_s=1.0) -> None:
    one = LoadTime(Measurements(folder), wish, clock=clock)
    clock.now += before_s
    one.planned(size)
    clock.now += 60  # fetched first: that says nothing of loading
    one.reading()
    clock.now += weights_s
    one.read(1.0)
    clock.now += after_s
    one.done()


def test_the_first_load_says_nothing_until_its_weights_come(tmp_path, clock):
    one = LoadTime(Measurements(tmp_path), "", clock=clock)
    assert one.left_s() is None
    one.planned(1000)
    one.reading()
    clock.now += 9
    one.read(0.05)
    clock.now += 0.4
    one.read(0.1)
    assert one.left_s() is None, "a twentieth of the weights says little"
    clock.now += 1.6
    one.read(0.3)
    assert one.left_s() == pytest.approx(5.6), "seven tenths at the pace of a quarter"


def test_the_next_load_counts_down_from_the_beginning(tmp_path, clock):
    load(tmp_path, clock, "big", 1000)
    again = LoadTime(Measurements(tmp_path), "big", clock=clock)
    assert again.left_s() == pytest.approx(13.0)
    clock.now += 1.5
    assert again.left_s() == pytest.approx(11.5)
    again.planned(1000)
    again.reading()
    assert again.left_s() == pytest.approx(11.0)
    clock.now += 3
    again.read(0.05)
    assert again.left_s() == pytest.approx(8.0), "three seconds of imports are no pace: it said 57 s"
    clock.now += 4
    again.read(0.25)
    assert again.left_s() == pytest.approx(16.0), "slower than the last one, and it says so"
    again.read(1.0)
    assert again.left_s() == pytest.approx(1.0)
    clock.now += 3
    assert again.left_s() is None, "nothing is claimed when the time is over"


def test_another_model_takes_as_long_as_its_size_says(tmp_path, clock):
    load(tmp_path, clock, "big", 1000)
    small = LoadTime(Measurements(tmp_path), "small", clock=clock)
    assert small.left_s() is None, "which model it is nobody knows yet"
    small.planned(100)
    small.reading()
    assert small.left_s() == pytest.approx(2.0)


def test_a_load_that_breaks_off_is_not_kept(tmp_path, clock):
    one = LoadTime(Measurements(tmp_path), "big", clock=clock)
    one.planned(1000)
    one.reading()
    one.done()
    assert LoadTime(Measurements(tmp_path), "big", clock=clock).left_s() is None
