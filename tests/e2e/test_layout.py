"""At every stop of every way and at every size nothing is cut off, covered, too small to press, narrower
than its words or out of sight: tests/support/page_looks.js.
"""

from __future__ import annotations

import pytest

from tests.support.page_ways import WAYS, begins

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_is_in_its_place(way, serve, open_page, tmp_path):
    wrong = way(begins(serve, open_page), tmp_path)
    assert not wrong, "\n".join(wrong)
