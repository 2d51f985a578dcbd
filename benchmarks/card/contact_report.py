"""The page of benchmarks.card.first_contact: what its steps found, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from core.text.words import GB

Record = dict[str, Any]  # of a step, as benchmarks.card.first_contact keeps it


def contact_page(records: Sequence[Record]) -> str:
    """Markdown; of the steps so far."""
    parts = ["# First contact", _verdict(records), _steps(records)]
    parts += [lines for record in records if (lines := _PARTS[record["step"]](record["found"]))]
    parts += [_last_words(record) for record in records if record["last_words"]]
    return "\n\n".join(parts) + "\n"


def _verdict(records: Sequence[Record]) -> str:
    bad = [f"{record['what']} ({record['state']})" for record in records if record["state"] != "done"]
    found = {record["step"]: record["found"] for record in records}
    for step, by in (("tests-by-library", "the library's kernels"), ("tests", "ours")):
        if failed := found.get(step, {}).get("failed"):
            bad.append(f"{failed} tests failed by {by}")
    drills = [one for one in found.get("full-device", {}).values() if isinstance(one, dict)]
    if not all(one["computes"] and one["understood"] is not False for one in drills):
        bad.append("a full device is not survived")
    tools = found.get("sanitizer", {}).items()
    bad += [f"{tool} found something" for tool, one in tools if isinstance(one, dict) and one["exit_code"]]
    bad += [f"{one['what']} is broken" for one in _findings(found.get("self-test", {})) if one["ok"] is False]
    return f"**Not sound: {'; '.join(bad)}.**" if bad else "**All steps ended well.**"


def _steps(records: Sequence[Record]) -> str:
    return _table(("Step", "", "s"), [(one["what"], one["state"], one["seconds"]) for one in records])


def _machine(found: Record) -> str:
    if "hardware" not in found:
        return ""
    hardware, torch = found["hardware"], found.get("torch", {})
    lines = [
        f"{found['cpu']}, {hardware['physical_cores']} cores, {hardware['ram_bytes'] / GB:.0f} GB of RAM, "
        f"{hardware['ram_available_bytes'] / GB:.0f} available; {found['system']}, Python {found['python']}",
        f"torch {torch.get('version')}, CUDA {torch.get('cuda')}, "
        f"transformers {found['packages']['transformers']}",
    ]
    lines += [_card(gpu) for gpu in hardware["gpus"]] or ["no CUDA GPU"]
    lines += hardware["problems"]
    return "\n".join(("## Machine", "", *(f"- {line}" for line in lines)))


def _card(gpu: dict[str, Any]) -> str:
    bus = "bus not measured"
    if gpu["pcie_measured"]:
        back = gpu["pcie_back_gb_per_s"]
        bus = f"{gpu['pcie_gb_per_s']:.1f} GB/s from host" + (f", {back:.1f} back" if back else "")
    free, total = gpu["free_bytes"] / GB, gpu["vram_bytes"] / GB
    return f"{gpu['name']}, driver {gpu['driver']}, {total:.1f} GB, {free:.1f} free, {bus}"


def _self_test(found: Record) -> str:
    marks = {True: "works", False: "BROKEN", None: "not here"}
    rows = [(one["what"], marks[one["ok"]], one["said"]) for one in _findings(found)]
    return "## Self-test\n\n" + _table(("What", "", "Found"), rows) if rows else ""


def _findings(found: Record) -> list[dict[str, Any]]:
    return found.get("findings", [])


def _tests(found: Record, *, title: str) -> str:
    if "passed" not in found:
        return ""
    said = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
    if "exit_code" not in found:
        said += f"; broke off in {found.get('running')}"
    failures = [f"- {name}: {why}" for name, why in found["failures"].items()]
    return "\n".join((f"## {title}", "", said, *failures))


def _kernels(found: Record) -> str:
    parts = []
    tables = {
        "attention": "Attention, GB/s of keys and values",
        "products": "Products, GB/s",
        "states": "Layers with a state, GB/s of states that are read and written",
    }
    for name, title in tables.items():
        if name in found:
            parts += ["", f"## {title}", "", _rates(found[name])]
    return "\n".join(parts[1:]) if parts else _refused("Attention and products", found)


def _rates(found: list[dict[str, Any]]) -> str:
    """A line for each kind and length, a column for each number of rows."""
    rows = sorted({one["rows"] for one in found})
    lines: dict[tuple[str, str], dict[int, float]] = {}
    for one in found:
        tokens = f"{one['tokens']:,}" if "tokens" in one else ""
        lines.setdefault((one["kind"], tokens), {})[one["rows"]] = one["gb_per_s"]
    table = [(*name, *(rates.get(n) for n in rows)) for name, rates in lines.items()]
    return _table(("", "tokens", *(f"{n} rows" for n in rows)), table)


def _llama(found: Record, *, title: str) -> str:
    cases = {name: case for name, case in found.items() if isinstance(case, dict)}
    rows = [_case(name, case) for name, case in cases.items() if "decoded" in case]
    refused = [f"- {name}: {case['refused']}" for name, case in cases.items() if "refused" in case]
    refused += [f"- {found['refused']}"] if "refused" in found else []
    if not rows and not refused:
        return ""
    head = (
        *("", "layers on chip", "tokens read a second", "GB over the bus in reading"),
        *("a pass, ms", "recorded, ms", "middle pass, ms", "recorded, ms"),
        *("plain, ms", "TriForce, ms", "tokens a round", "peak, GB"),
    )
    table = [_table(head, rows), ""] if rows else []
    heading = f"## {title}, random weights, acceptance stated"
    if found.get("stand_in"):
        heading += ": a stand-in of a few rows, on the CPU"
    return "\n".join((heading, "", *table, *refused))


def _case(name: str, case: dict[str, Any]) -> tuple[Any, ...]:
    plain, triforce = case["decoded"]["answers"]
    verification, middle = (
        (case.get("graphs", {}).get(level) or [{"eager_ms": None, "replay_ms": None}])[0]
        for level in ("verification", "middle")
    )
    read = "prefill_s" in case
    return (
        name,
        f"{case['on_chip_layers']} of {case['layers']}",
        case["context"] / case["prefill_s"] if read else None,
        case["prefill_bytes_moved"] / GB if read else None,
        _of(case["verify_ms"], 1) if read else None,
        verification["replay_ms"],
        middle["eager_ms"],
        middle["replay_ms"],
        plain["tbt_ms"],
        triforce["tbt_ms"],
        triforce["tokens_per_round"],
        case["peak_bytes"] / GB,
    )


def _of(by_rows: Record, rows: int) -> Any:
    return by_rows.get(str(rows), by_rows.get(rows))  # JSON makes words of numbers


def _full(found: Record) -> str:
    drills = [(name, one) for name, one in found.items() if isinstance(one, dict)]
    rows = [
        (name, one["pieces"], one["said"], one["understood"], one["left_bytes"], one["computes"])
        for name, one in drills
    ]
    head = ("", "pieces until it refused", "said", "understood", "bytes left", "computes")
    return "## A full device\n\n" + _table(head, rows) if rows else _refused("A full device", found)


def _sanitizer(found: Record) -> str:
    lines = [f"- {tool}: code {one['exit_code']}" for tool, one in found.items() if isinstance(one, dict)]
    return "\n".join(("## compute-sanitizer", "", *lines)) if lines else _refused("compute-sanitizer", found)


def _refused(title: str, found: Record) -> str:
    return f"## {title}\n\n{found['refused']}" if "refused" in found else ""


def _last_words(record: Record) -> str:
    return "\n".join((f"## Last words of {record['what']}", "", "```", *record["last_words"], "```"))


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else "" if value is None else str(value)


_PARTS = {
    "machine": _machine,
    "self-test": _self_test,
    "tests-by-library": partial(_tests, title="Tests by the library's kernels"),
    "tests": partial(_tests, title="Tests by our kernels"),
    "kernels": _kernels,
    "llama-8b": partial(_llama, title="Llama-3.1-8B"),
    "llama-7b": partial(_llama, title="LWM-7B"),
    "full-device": _full,
    "sanitizer": _sanitizer,
}
