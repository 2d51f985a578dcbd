"""What `launcher.py tune` finds on this machine, kept as a result: default and choice side by side, passes
and acceptance behind them.

    python -m benchmarks.tune [--model NAME] [--context N] [--book FILE] [--save NAME]

Values that prove faster are stored for the planner, as the command does. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.lib.results import Table, save_result
from core.config import load_settings
from core.tuning.run_tuning import report_text, run_tuning, tuning_json


def main() -> int:
    """One tuning run."""
    options = _arguments()
    settings = load_settings(None, {"model": options.model, "context_tokens": options.context})
    done = run_tuning(settings, report=_progress, books=options.book or ())
    print(report_text(done))
    details = tuning_json(done)
    del details["file"], details["tuned"]["folder"]  # where this user keeps things is no result
    if options.save:
        save_result(options.save, tuning_tables(details), details)
    print(json.dumps(details))
    return 0


def tuning_tables(found: dict[str, Any]) -> list[Table]:
    """Default and choice, and what each selection was accepted."""
    rows = [
        (
            name,
            plan["retrieval_budget"],
            plan["retrieval_chunk"],
            plan["gamma"],
            plan["middle_gamma"],
            plan["assumed_acceptance"],
            plan["expected_tbt_ms"],
            found[f"{name}_tbt_ms"],
        )
        for name in ("default", "chosen")
        for plan in [found[name]]
    ]
    rows.append(("plain", *[None] * 6, found["plain_tbt_ms"]))
    verdict = "The choice is kept." if found["kept"] else "The default stays."
    both = Table(
        f"Tuning {found['default']['model']} at {found['default']['context_tokens']:,} tokens",
        (
            "Plan",
            "Budget",
            "Chunk",
            "gamma",
            "middle gamma",
            "acceptance",
            "expected TBT, ms",
            "TBT in the race, ms",
        ),
        tuple(rows),
        (
            f"{verdict} The default's acceptance is assumed, the choice's measured; they raced behind "
            f"{found['read_tokens']:,} tokens, and plain decoding with them.",
        ),
    )
    chunks = sorted({one["chunk"] for one in found["acceptance"]})
    rates = {(one["budget"], one["chunk"]): one["rate"] for one in found["acceptance"]}
    accepted = Table(
        "Acceptance of the middle level while tuning",
        ("Budget", *(f"chunks of {chunk}" for chunk in chunks)),
        tuple(
            (f"{budget:,}", *(rates.get((budget, chunk)) for chunk in chunks))
            for budget in sorted({budget for budget, _ in rates})
        ),
    )
    return [both, accepted]


def _progress(stage: str, fraction: float | None = None) -> None:
    print(stage if fraction is None else f"{stage} {100 * fraction:.0f}%", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--context", type=int)
    parser.add_argument("--book", type=Path, action="append")
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
