"""The slips of the mutation tests are of lines that are there: one that changes nothing is never noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slips import SLIPS, Slip

REPO = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: f"{slip.file}: {slip.text.strip()[:40]}")
def test_a_slip_changes_a_line_and_names_tests(slip: Slip):
    assert slip.text in (REPO / slip.file).read_text("utf-8"), f"{slip.file} was changed; say the slip anew"
    assert slip.wrong != slip.text and slip.tests
    assert [name for name in slip.tests if not (REPO / name.partition("::")[0]).exists()] == []
