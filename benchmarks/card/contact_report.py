"""The page of benchmarks.card.first_contact: what its steps found, for a person."""

from __future__ import annotations

from collections.abc import Sequence
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
    if failed := found.get("tests", {}).get("failed"):
        bad.append(f"{failed} tests failed")
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


def _tests(found: Record) -> str:
    if "passed" not in found:
        return ""
    said = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
    if "exit_code" not in found:
        said += f"; broke off in {found.get('running')}"
    failures = [f"- {name}: {why}" for name, why in found["failures"].items()]
    return "\n".join(("## Tests", "", said, *failures))


def _llama(found: Record) -> str:
    cases = {name: case for name, case in found.items() if isinstance(case, dict)}
    rows = [_case(name, case) for name, case in cases.items() if "decoded" in case]
    refused = [f"- {name}: {case['refused']}" for name, case in cases.items() if "refused" in case]
    refused += [f"- {found['refused']}"] if "refused" in found else []
    if not rows and not refused:
        return ""
    head = ("", "layers on chip", "reading, s", "plain, ms", "TriForce, ms", "tokens a round", "peak, GB")
    table = [_table(head, rows), ""] if rows else []
    title = "## Llama-3.1-8B, random weights, acceptance stated"
    if "runs_on" in found:
        title += f": {found['runs_on']}"
    return "\n".join((title, "", *table, *refused))


def _case(name: str, case: dict[str, Any]) -> tuple[Any, ...]:
    plain, triforce = case["decoded"]["answers"]
    return (
        name,
        f"{case['on_chip_layers']} of {case['layers']}",
        case["prefill_s"],
        plain["tbt_ms"],
        triforce["tbt_ms"],
        triforce["tokens_per_round"],
        case["peak_bytes"] / GB,
    )


def _last_words(record: Record) -> str:
    return "\n".join((f"## Last words of {record['what']}", "", "```", *record["last_words"], "```"))


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else "" if value is None else str(value)


_PARTS = {"machine": _machine, "self-test": _self_test, "tests": _tests, "llama-8b": _llama}
