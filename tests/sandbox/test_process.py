"""A function in a process with limits: what it returns, says and raises arrives; what breaks a limit is
named.
"""

from __future__ import annotations

import sys
import time

import pytest

from core.errors import PasswordNeeded, UserError
from core.sandbox.process import (
    CallCancelled,
    CallCrashed,
    Limits,
    MemoryExceeded,
    SandboxError,
    TimeExceeded,
    run_isolated,
)

CALLS = "tests.sandbox.calls"


def test_result_and_progress_arrive():
    said = []
    found = run_isolated(
        f"{CALLS}:doubled", {"number": 21}, limits=Limits(), progress=lambda *step: said.append(step)
    )
    assert (found, said) == ({"number": 42, "heard": True}, [("doubling", 0.5)])


def test_bytes_arrive_as_they_are():
    """More than any pipe holds at once, and none of it is read as a message."""
    text, times = '\n{"error": "UserError"}\n', 10_000
    found = run_isolated(f"{CALLS}:repeated", {"text": text, "times": times}, limits=Limits())
    assert found == text.encode() * times


def test_a_function_that_reports_nothing_is_given_no_progress():
    assert run_isolated(f"{CALLS}:doubled", {"number": 1}, limits=Limits()) == {"number": 2, "heard": False}


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [("known", PasswordNeeded, "a password is needed"), ("unknown", UserError, "of a kind unknown here")],
)
def test_an_error_for_people_is_raised_here_by_its_kind(how: str, kind: type[UserError], said: str):
    """A kind of another module arrives as the nearest of core.errors: the parent imports nothing for it."""
    with pytest.raises(kind, match=said) as caught:
        run_isolated(f"{CALLS}:fails", {"how": how}, limits=Limits())
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("how", "kind"),
    [("memory", MemoryExceeded), ("crash", CallCrashed), ("bug", CallCrashed), ("time", TimeExceeded)],
)
def test_what_keeps_a_call_from_returning_is_named(how: str, kind: type[SandboxError]):
    limits = Limits(time_s=0.0) if how == "time" else Limits()
    with pytest.raises(kind):
        run_isolated(f"{CALLS}:fails", {"how": how}, limits=limits)


def test_a_call_that_is_cancelled_ends():
    started = time.monotonic()
    with pytest.raises(CallCancelled):
        run_isolated(
            f"{CALLS}:fails",
            {"how": "time"},
            limits=Limits(),
            should_stop=lambda: time.monotonic() - started > 0.3,
        )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address-space limits hold on Linux")
@pytest.mark.parametrize("enforced", [True, False])
def test_the_kernel_limits_what_is_not_only_watched(enforced: bool):
    """An OCR engine maps far more memory than it uses: a limit on what is mapped would end every scan."""
    limits = Limits(memory_bytes=1 << 30, enforced=enforced)
    space = run_isolated(f"{CALLS}:address_space", {}, limits=limits)
    assert (space == 1 << 30) == enforced
