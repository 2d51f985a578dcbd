"""What the page's choices mean to the engine."""

from __future__ import annotations

import pytest

from app.actions import make_wish


class NoBook:
    book, until, fit = None, None, "auto"


@pytest.mark.parametrize(
    ("ticked", "sampling"),
    [(True, {}), (False, {"temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.2})],
)
def test_sampling_is_the_models_own_unless_the_reader_wants_another(ticked, sampling):
    params = {
        "suits_model": ticked,
        "temperature": 0.7,
        "top_p": 0.8,
        "repetition_penalty": 1.2,
        "max_new_tokens": 64.0,
        "seed": 5,
    }
    assert make_wish((0, 0, "page"), params, NoBook()).params == {**sampling, "max_new_tokens": 64, "seed": 5}


def test_no_seed_means_another_one_every_time():
    seeds = {
        make_wish((0, 0, "page"), {"suits_model": True, "seed": 0}, NoBook()).params["seed"] for _ in range(4)
    }
    assert len(seeds) == 4 and 0 not in seeds
