"""Waiting for a model in a browser: what is done, how long it takes, and a way back."""

from __future__ import annotations

import pytest

from core.events import Loading
from tests.app.fake_runtime import FakeRuntime
from tests.e2e.test_accessible import problems
from tests.e2e.test_asking import shot

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("width", [1280, 390])
def test_a_model_that_loads_says_how_long_and_can_be_called_off(serve, open_page, width):
    fake = FakeRuntime()
    page = open_page(serve(fake), width=width)
    page.wait_for_selector(".engine-ready")
    fake.loading, fake.before = Loading("Loading the model", 0.42, 83.0), fake.model_name
    fake.state = "loading"
    page.wait_for_selector(".engine-loading [data-act=cancel-loading]", state="visible")
    assert "42%" in page.inner_text(".engine") and "about 83 s left" in page.inner_text(".engine")
    assert problems(page) == []
    shot(page, f"loading-{width}")
    page.click("[data-act=cancel-loading]")
    page.wait_for_selector(".engine-ready")
