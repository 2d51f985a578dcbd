"""Who waits gives up where nobody is at work, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.at_work import PROC
from tests.support.fake_runtime import wait_until

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="the system does not say which threads run")
COMPUTES = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"


def test_what_computes_is_waited_for():
    """A computation of a second was given up on a machine that needed a minute for it."""
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPUTES!r}])"
    with subprocess.Popen([sys.executable, "-c", start]) as child:
        wait_until(lambda: child.poll() is not None, idle_s=0.4)
    assert child.returncode == 0


def test_what_never_comes_is_given_up():
    """A wait in vain took five minutes."""
    with pytest.raises(AssertionError, match="waited in vain"):
        wait_until(lambda: False, idle_s=0.4)
