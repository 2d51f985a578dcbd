"""What was measured of this machine, kept between starts. Knows nothing of what is measured. No torch."""

from __future__ import annotations

import json
import logging
import platform
import time
from pathlib import Path

from core.paths import write_whole

log = logging.getLogger(__name__)

FILE = "measured.json"
PAGE_LOCKED = "page-locked memory"  # {"bytes": so many were locked when the system refused more}
CPU_RATES = "speed of the CPU"  # facts.CpuRates
_BROKE = 2  # times that something was begun and not ended
CPU = "CPU"  # Backend.name of the CPU; a card's is the driver's for it


def kernels_on(device: str) -> str:
    """By which is kept what did not serve there: {"refused": compiled kernels that failed their trial}."""
    return f"compiled kernels on {device}"


def trials_on(device: str) -> str:
    """By which is kept what was begun there and never ended: {"begun": {what: times}}."""
    return f"kernel trials on {device}"


class Measurements:
    """Measurements of this machine in a JSON file in the data folder. A damaged or foreign file is empty."""

    def __init__(self, folder: Path, *, again: bool = False) -> None:
        self._path, self._again = folder / FILE, again
        self._machine = f"{platform.node()}/{platform.system()}/{platform.machine()}"

    def _read(self) -> dict:
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) and values.get("machine") == self._machine else {}

    def get(self, key: str) -> dict | None:
        """An earlier measurement, or None when there is none or it is to be made again."""
        value = None if self._again else self._read().get(key)
        return value if isinstance(value, dict) and "problem" not in value else None

    def said(self) -> tuple[str, ...]:
        """What was put away together with a sentence about it: what it is, and the sentence."""
        return tuple(
            f"{key}: {found['said']}"
            for key, found in self._read().items()
            if isinstance(found, dict) and "said" in found
        )

    def forget(self, key: str) -> None:
        """Drop a measurement, if there is one."""
        values = self._read()
        if values.pop(key, None) is not None:
            self._write(values)

    def forget_kernels(self, device: str) -> None:
        """Drop what is known of the compiled kernels there: they are tried again."""
        self.forget(kernels_on(device))
        self.forget(trials_on(device))

    def put(self, key: str, value: dict) -> None:
        """Keep a measurement; a folder that cannot be written only costs the next start a measurement."""
        self._write(
            {**self._read(), "machine": self._machine, key: {**value, "measured_at": int(time.time())}}
        )

    def _write(self, values: dict) -> None:
        try:
            write_whole(self._path, json.dumps(values, indent=1))
        except OSError as error:
            log.warning("measurement not kept in %s: %s", self._path, error)


class DeviceTrials:
    """What is tried on a device, and may take the process with it.

    Once begun and not ended may be an app that was closed meanwhile; twice is a program that broke off.
    """

    def __init__(self, measured: Measurements, device: str) -> None:
        self._measured, self._key = measured, trials_on(device)

    def broke(self, what: str) -> bool:
        """Whether it is not to be tried any more."""
        return self._begun().get(what, 0) >= _BROKE

    def begin(self, what: str) -> None:
        """Before it is tried."""
        self._put(what, self._begun().get(what, 0) + 1)

    def fail(self, what: str) -> None:
        """When the device failed for good meanwhile."""
        self._put(what, _BROKE)

    def end(self, what: str) -> None:
        """When it came out of it, whatever was found."""
        self._put(what, 0)

    def _begun(self) -> dict[str, int]:
        return (self._measured.get(self._key) or {}).get("begun", {})

    def _put(self, what: str, times: int) -> None:
        begun = {**self._begun(), what: times}
        self._measured.put(self._key, {"begun": {name: n for name, n in begun.items() if n}})
