"""The first ten minutes on a card: what it is, what works on it, how fast it is. A page, and JSON behind it.

    python -m benchmarks.first_contact [--out FOLDER] [--minutes 9] [--cap-gib 24] [--ram-gib N]
        [--stand-in]

Each step (benchmarks/card/contact_steps.py) is a process of its own: one that dies or hangs leaves the
others, and what it had found by then. Needs torch, transformers, safetensors and numpy, and the small
packages of benchmarks/card/wheels.py; no app, no model's files, no network. --stand-in runs it on the CPU
with a few rows, to test this program.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.card.contact_report import contact_page
from core.paths import write_whole

REPO = Path(__file__).resolve().parents[2]
MINUTES = 9.0  # that the seconds of the steps add up to
LAST_WORDS = 30  # lines of what a broken step said
DONE, DIED, HUNG, NO_TIME = "done", "died", "hung", "no time was left"
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One of them. `seconds`, with those of all before it, is when it must have ended; `program`: what Python
    is started with.
    """

    name: str
    what: str
    seconds: float
    program: tuple[str, ...] = ("-m", "benchmarks.card.contact_steps")


STEPS = (
    Step("machine", "versions, memory, bus", 30),
    Step("self-test", "the device's self-test", 60),
    Step("tests-by-library", "pytest tests/gpu by the library's kernels", 75),
    Step("tests", "pytest tests/gpu by ours", 75),
    Step("kernels", "attention and products by themselves", 60),
    Step("llama-8b", "Llama-3.1-8B in random numbers", 150),
    Step("llama-7b", "LWM-7B in random numbers, its KV cache beyond the card", 120),
    Step("full-device", "a full device", 30),
    Step("sanitizer", "compute-sanitizer", 60),
)


def main(arguments: list[str] | None = None, steps: tuple[Step, ...] = STEPS) -> int:
    """Runs the steps and writes the page. Returns 1 where one of them did not end well."""
    options = _arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    started, seconds, records = time.monotonic(), 0.0, []
    for number, step in enumerate(steps, 1):
        seconds += step.seconds
        left = started + 60 * options.minutes * seconds / sum(one.seconds for one in steps) - time.monotonic()
        records.append(_run(step, options.out / f"{number}-{step.name}.json", left, options))
        print(f"{step.what}: {records[-1]['state']} after {records[-1]['seconds']:.0f} s", flush=True)
        write_whole(options.out / "report.md", contact_page(records))
    print(f"{options.out / 'report.md'}; to report a fault, send the whole folder")
    return int(any(record["state"] != DONE for record in records))


def _run(step: Step, file: Path, left_s: float, options: argparse.Namespace) -> dict[str, Any]:
    """What became of a step, as its file says it, too."""
    file.unlink(missing_ok=True)
    log, started = file.with_suffix(".log"), time.monotonic()
    state = NO_TIME
    if left_s > _LEAST_S:
        with log.open("wb") as said:
            state = _state(_start(step, file, left_s, options, said), left_s)
    record = {
        "step": step.name,
        "what": step.what,
        "state": state,
        "seconds": round(time.monotonic() - started, 1),
        "found": _found(file),
        "last_words": [] if state in (DONE, NO_TIME) else _end_of(log),
    }
    write_whole(file, json.dumps(record, indent=1, ensure_ascii=False))
    return record


def _start(
    step: Step, file: Path, left_s: float, options: argparse.Namespace, said: Any
) -> subprocess.Popen[bytes]:
    given = ["--file", str(file), "--seconds", f"{left_s:.1f}", "--cap-gib", str(options.cap_gib)]
    if options.ram_gib is not None:
        given += ["--ram-gib", str(options.ram_gib)]
    if options.stand_in:
        given.append("--stand-in")
    return subprocess.Popen(
        [sys.executable, *step.program, step.name, *given],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        cwd=REPO,
        env={**os.environ, "TRIFORCE_HOME": str(options.out / "home"), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )


def _state(child: subprocess.Popen[bytes], left_s: float) -> str:
    try:
        return DONE if child.wait(left_s) == 0 else DIED
    except subprocess.TimeoutExpired:
        _kill(child)
        return HUNG


def _kill(child: subprocess.Popen[bytes]) -> None:
    """With the processes that it has started."""
    if os.name == "posix":
        os.killpg(child.pid, signal.SIGKILL)
    else:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False)
    child.wait()


def _found(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _end_of(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:]


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("first-contact"), help="folder of the results")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all steps together")
    parser.add_argument("--cap-gib", type=float, default=24.0, help="the card that a larger one stands for")
    parser.add_argument("--ram-gib", type=float, help="memory beside the card, where too little is told")
    parser.add_argument("--stand-in", action="store_true", help="on the CPU, with nothing worth measuring")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
