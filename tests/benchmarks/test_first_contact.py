"""First contact on a machine without a card: its stand-in, steps that break, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.card import contact_steps, first_contact
from benchmarks.card.contact_report import contact_page
from benchmarks.card.contact_steps import OutcomeCounter, Sheet
from benchmarks.card.first_contact import DIED, DONE, HUNG, NO_TIME, STEPS, Step
from core.hardware.gpus import imagined_hardware

SAYS = 'import pathlib, sys; pathlib.Path(sys.argv[3]).write_text(\'{"passed": 3, "failed": 0, '
SAYS += '"skipped": 0, "failures": {}, "running": "the fourth"}\'); '


def step(name: str) -> Step:
    return next(one for one in STEPS if one.name == name)


def run(folder: Path, *steps: Step, minutes: float = 30.0) -> dict[str, dict]:
    """By name what became of them; nothing here takes as long as half an hour."""
    given = ["--stand-in", "--out", str(folder), "--minutes", str(minutes)]
    code = first_contact.main(given, steps)
    records = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    assert [record["step"] for record in records] == [one.name for one in steps]
    assert code == int(any(record["state"] != DONE for record in records))
    return {record["step"]: record for record in records}


def record(name: str, found: dict, *, state: str = DONE) -> dict:
    return {"step": name, "what": name, "state": state, "seconds": 2.0, "found": found, "last_words": []}


@pytest.mark.wide
def test_a_step_that_dies_leaves_the_others_and_what_it_had_found(tmp_path: Path):
    """A kernel that faults must not take the machine's facts, or the times of the next step, with it."""
    dies = Step("tests", "the tests", 1, ("-c", SAYS + "print('illegal access'); sys.exit(3)"))
    records = run(tmp_path, step("machine"), dies, step("llama-8b"))
    assert [record["state"] for record in records.values()] == [DONE, DIED, DONE]
    machine, tests, llama = (record["found"] for record in records.values())
    assert machine["hardware"]["ram_bytes"] > 0 and machine["torch"]["version"] and "nvidia_smi" in machine
    assert tests["passed"] == 3 and records["tests"]["last_words"] == ["illegal access"]
    assert llama["acceptance"] == "stated"
    plain, triforce = llama["behind 300 tokens"]["decoded"]["answers"]
    assert plain["tokens_per_round"] == 1 < triforce["tokens_per_round"] and plain["tbt_ms"] > 0
    assert triforce["bytes_moved"] > 0 and llama["behind 300 tokens"]["verify_ms"]
    said = (tmp_path / "report.md").read_text("utf-8")
    assert "Not sound: the tests (died)" in said and "broke off in the fourth" in said
    assert "illegal access" in said and "acceptance stated: a stand-in" in said


def test_a_step_that_hangs_is_ended(tmp_path: Path):
    """Nine minutes on a rented card, and not one of them more."""
    hangs = Step("tests", "the tests", 1, ("-c", "import time; time.sleep(900)"))
    assert run(tmp_path, hangs, minutes=0.02)["tests"]["state"] == HUNG


def test_without_time_nothing_is_started(tmp_path: Path):
    """What is left out is said to be."""
    assert run(tmp_path, step("llama-8b"), minutes=0.0)["llama-8b"]["state"] == NO_TIME


def test_every_step_has_its_program_and_its_part_of_the_page():
    """A step that is added in one place alone would be found out on the card."""
    names = [one.name for one in STEPS]
    assert names == list(contact_steps.STEPS) and sum(one.seconds for one in STEPS) == 540
    assert contact_page([record(name, {}, state=DIED) for name in names]).count("(died)") == len(names)


def test_tests_are_counted_while_they_run(tmp_path: Path):
    """Also by a module that cannot be imported, and what kills the process is named."""
    counter = OutcomeCounter(Sheet(tmp_path / "x.json"))

    def report(**facts: object) -> SimpleNamespace:
        facts = {"outcome": "passed", "when": "call", "longreprtext": "", "nodeid": "x", **facts}
        return SimpleNamespace(**facts, failed=facts["outcome"] == "failed")

    counter.pytest_collectreport(report(outcome="failed", nodeid="a.py", longreprtext="x\nno module\n"))
    for when, outcome in (("setup", "passed"), ("call", "passed"), ("setup", "skipped"), ("call", "failed")):
        counter.pytest_runtest_logreport(report(when=when, outcome=outcome, longreprtext="assert 1 == 2"))
    counter.pytest_runtest_logstart("the last")
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "failures": {"a.py": "no module", "x": "assert 1 == 2"},
        "running": "the last",
    }


def test_the_page_of_a_card():
    """What is read first: whether it is sound, the card, its bus, and the times."""
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=64).to_json()
    bus = {"pcie_measured": True, "pcie_gb_per_s": 24.9, "pcie_back_gb_per_s": 25.5}
    hardware["gpus"] = [{**hardware["gpus"][0], **bus}]
    machine = {"cpu": "a CPU", "system": "Linux", "python": "3.12", "packages": {"transformers": "5"}}
    answers = [{"tbt_ms": 27.71, "tokens_per_round": 1.0}, {"tbt_ms": 12.9, "tokens_per_round": 6.2}]
    case = {"decoded": {"answers": answers}, "on_chip_layers": 3, "layers": 32, "prefill_s": 50.0}
    found = {
        "machine": {**machine, "hardware": hardware},
        "self-test": {"findings": [{"what": "copies", "ok": False, "said": "What arrives is not it"}]},
        "llama-8b": {
            "runs_on": "a card of 24 GiB",
            "behind 8,192 tokens": {**case, "peak_bytes": 10**10},
            "behind 130,048 tokens": {"refused": "out of time"},
        },
    }
    said = contact_page([record(name, one) for name, one in found.items()])
    assert "Not sound: copies is broken" in said and "24.9 GB/s from host, 25.5 back" in said
    assert "| behind 8,192 tokens | 3 of 32 | 50.0 | 27.7 | 12.9 | 6.2 | 10.0 |" in said
    assert "behind 130,048 tokens: out of time" in said and "a card of 24 GiB" in said
