"""What the engine's process keeps of compiled products, tried in a fresh one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.hardware.cpu import cpu_flags

GROWTH = """
import psutil
from core.backend.shared.heap import bound_products
if {bounded}:
    bound_products()
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
weight, grown = torch.zeros(512, 512, dtype=torch.bfloat16), 0
for rows in range(41, 341):
    if rows == 181:
        grown = -psutil.Process().memory_full_info().uss
    F.linear(torch.zeros(rows, 512, dtype=torch.bfloat16), weight)
print((grown + psutil.Process().memory_full_info().uss) >> 20)
"""


@pytest.mark.skipif("amx_bf16" not in cpu_flags(), reason="torch compiles few products on this CPU")
def test_texts_of_ever_other_lengths_fill_no_memory_with_compiled_products(monkeypatch):
    """The engine's process grew by four megabytes a question."""
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    ran = {
        bounded: subprocess.run(
            [sys.executable, "-c", GROWTH.format(bounded=bounded)],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        for bounded in (True, False)
    }
    bounded, free = (int(ran[kind].stdout) for kind in (True, False))
    assert 3 * bounded < free, f"{bounded} MB more over 160 lengths; without the bound {free}"


def test_the_worker_bounds_them_before_torch_comes():
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; from core import worker\n"
            "worker.watch_parent = lambda _pid: None\n"
            "worker.private_stdout = lambda: sys.stdout.buffer\n"
            "def run(self): print(os.environ['LRU_CACHE_CAPACITY'], 'torch' in sys.modules)\n"
            "worker.Worker.run = run\n"
            "worker.main(['--parent', '1'])",
        ],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.stdout.split() == ["64", "False"], said.stderr
