"""Files that Windows refuses for a moment: what is waited for, and what is not."""

from __future__ import annotations

import errno

import pytest

from installer import held


def refusal(number: int) -> PermissionError:
    """The error by which Windows refuses a file, on any system."""
    error = PermissionError(errno.EACCES, "Zugriff verweigert")
    error.winerror = number
    return error


class Refused:
    """Does what is asked for after it has been refused some times."""

    def __init__(self, times: int, error: OSError) -> None:
        self.times, self.error, self.done = times, error, 0

    def __call__(self) -> None:
        if self.times > 0:
            self.times -= 1
            raise self.error
        self.done += 1


@pytest.mark.parametrize("number", [5, 32, 33, 1224])
def test_a_held_file_is_waited_for(number: int):
    action, pauses = Refused(3, refusal(number)), []
    held.patiently(action, sleep=pauses.append)
    assert action.done == 1 and pauses == list(held.PAUSES_S)


def test_one_that_stays_held_is_an_error():
    action, pauses = Refused(4, refusal(32)), []
    with pytest.raises(PermissionError):
        held.patiently(action, sleep=pauses.append)
    assert action.done == 0 and pauses == list(held.PAUSES_S)


@pytest.mark.parametrize("error", [refusal(112), PermissionError(errno.EACCES, "no"), FileNotFoundError("x")])
def test_another_error_is_not_waited_for(error: OSError):
    """A full disk, a folder of somebody else's and a missing file stay what they are."""
    pauses: list[float] = []
    with pytest.raises(OSError) as raised:
        held.patiently(Refused(1, error), sleep=pauses.append)
    assert raised.value is error and pauses == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ERROR: [WinError 5] Access is denied: 'c10.dll'", True),
        ("failed to rename file: Accès refusé. (os error 5)", True),
        ("[WinError 32] Der Prozess kann nicht auf die Datei zugreifen", True),
        ("failed to byte-compile (os error 1224)", True),
        ("[WinError 53] The network path was not found", False),
        ("[Errno 13] Permission denied", False),
    ],
)
def test_a_programs_words_are_known_by_the_number(words: str, told: bool):
    """The sentence is in the user's language."""
    assert held.is_told(words) is told
