"""`--isa` reaches what is measured: torch, oneDNN and our libraries, in the processes that compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.lib import isa, results
from core.hardware.cpu import all_cpu_flags

# run where the figures would be taken; says on standard error what is computed with, oneDNN's own words too
TELLS = """
def tell(*given):
    import json, os, torch
    from core.backend.cpu.native.library import instruction_sets
    from core.hardware.cpu import cpu_flags
    os.dup2(2, 1)
    torch.ones(8, 8).to_mkldnn().relu()
    print(json.dumps([torch.backends.cpu.get_cpu_capability(), instruction_sets(cpu_flags())]), flush=True)
    os._exit(0)
"""
WITHIN = """
import benchmarks.speed.{program} as program
program.{first} = tell
program.main()
"""
BESIDE = """
import sys
if sys.argv[1] == "stand-in":
    tell()
from benchmarks.speed import llamacpp, peer_processes
llamacpp.PEERS["ours"] = peer_processes.Peer("json", "", None)
made = llamacpp.Contender.__init__
def stand_in(self, *given):
    made(self, *given)
    self._command = [*sys.orig_argv[:3], "stand-in"]
llamacpp.Contender.__init__ = stand_in
llamacpp.main(sys.argv[1:] + ["--gguf", "x", "--only", "ours", "--contexts", "1"])
"""
PROGRAMS = {
    "attention": WITHIN.format(program="attention", first="layer_times"),
    "decode": WITHIN.format(program="decode", first="ensure_embedded"),
    "prefill": WITHIN.format(program="prefill", first="ensure_embedded"),
    "peers": BESIDE,
}
WITH_AVX2 = pytest.mark.skipif("avx2" not in all_cpu_flags(), reason="this computer has no AVX2")


@WITH_AVX2
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.wide
def test_the_cap_reaches_the_measured_process(program: str, tmp_path):
    """A library that is left out computes with more than the table's heading says."""
    state = ["--state", str(tmp_path / "state.json")] if program != "attention" else []
    done = subprocess.run(
        [sys.executable, "-c", TELLS + PROGRAMS[program], "--isa", "avx2", *state],
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        cwd=results.REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stderr.splitlines()
    assert "onednn_verbose,v1,info,cpu,isa:Intel AVX2" in said, done.stderr
    assert ["AVX2", ["avx2"]] in [json.loads(line) for line in said if line.startswith("[")]


def test_a_result_names_the_cap_only_where_it_holds_for_all(monkeypatch, tmp_path):
    """Figures of half a cap would stand under the wrong heading."""
    for name in isa.LIMITS["avx2"]:
        monkeypatch.delenv(name, raising=False)
    whole = results.load_result(results.save_result("as-it-is", [], folder=tmp_path)).machine["isa"]
    assert whole["cap"] is None and set(whole["has"]) <= all_cpu_flags()
    for name, value in isa.LIMITS["avx2"].items():
        assert results.machine_facts()["isa"]["cap"] is None
        monkeypatch.setenv(name, value)
    assert results.machine_facts()["isa"] == {**whole, "cap": "avx2"}


def test_a_cap_is_not_taken_too_late(monkeypatch, capsys):
    """Torch has read its own when it was loaded; an option that is only parsed would cap nothing."""
    monkeypatch.setattr(isa, "all_cpu_flags", lambda: {"avx2"})
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch"))
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    with pytest.raises(AssertionError, match="loaded already"):
        isa.hold(["--isa", "avx2"])
    parser = isa.argparse.ArgumentParser()
    isa.add_option(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--isa", "avx2"])
    assert "not what this process is held to" in capsys.readouterr().err


def test_a_cpu_without_the_instructions_says_so(monkeypatch):
    """An Arm machine has no AVX2 to be held to."""
    monkeypatch.setattr(isa, "all_cpu_flags", lambda: {"asimd"})
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    with pytest.raises(SystemExit, match="has no AVX2"):
        isa.hold(["--isa", "avx2"])
