"""The starters in a root of their own: no Python at all, or Debian's alone. On demand: from_nothing.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.installer.from_nothing import tell

WANTED = "TRIFORCE_TEST_ROOTS"  # 1; needs a network, 4 GB of disk and some ten minutes each
WHEELS = os.environ.get("TRIFORCE_TEST_WHEELS")  # a folder put beside the program as `wheels`


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.skipif(not os.environ.get(WANTED), reason=f"{WANTED} is not set")
@pytest.mark.parametrize("system", ["none", "debian"])
def test_from_nothing_to_a_summary_an_update_and_nothing_again(system: str):
    missing = [name for name in ("debootstrap", "patchelf") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root, and {missing}")
    assert tell(system, wheels=Path(WHEELS) if WHEELS else None)[-1].startswith("Left behind")
