"""What only torch can say of GPUs: names, sizes, and how fast they copy. A process of its own, which prints
JSON: no CUDA fault and none of torch's memory reaches the caller.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from core.text.words import GB
from core.text.words import translated as _

COPY_BLOCK_BYTES = 128 << 20  # the staging ring's block size


def measure_bus_here(index: int) -> dict:
    """{"h2d_gb_per_s", "d2h_gb_per_s"} by pinned copies of the staging ring's block size, best of several."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"problem": _("torch cannot be loaded: {error}").format(error=error)}
    if not torch.cuda.is_available():
        said = _("torch sees no usable CUDA GPU; it may be built without CUDA or the driver is too old")
        return {"problem": said}
    try:
        device = torch.device("cuda", index)
        host = torch.empty(COPY_BLOCK_BYTES, dtype=torch.uint8, pin_memory=True)
        on_device = torch.empty(COPY_BLOCK_BYTES, dtype=torch.uint8, device=device)
        rates = {
            "h2d_gb_per_s": _copy_rate(torch, on_device, host),
            "d2h_gb_per_s": _copy_rate(torch, host, on_device),
        }
    except RuntimeError as error:
        return {"problem": str(error).splitlines()[0]}
    return {name: round(rate, 2) for name, rate in rates.items()}


def gpus() -> dict:
    """{"gpus": every device that torch can use}."""
    try:
        import torch

        devices = [
            (index, torch.cuda.get_device_properties(index), torch.cuda.mem_get_info(index))
            for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        ]
    except (ImportError, OSError, RuntimeError) as error:
        return {"problem": str(error).splitlines()[0]}
    return {
        "gpus": [
            {
                "name": facts.name,
                "vram_bytes": total,
                "free_bytes": free,
                "compute_capability": [facts.major, facts.minor],
                "index": index,
            }
            for index, facts, (free, total) in devices
        ]
    }


def _copy_rate(torch, target, source) -> float:
    best = 0.0
    for _repeat in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _copy in range(4):
            target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        best = max(best, 4 * source.numel() / GB / (start.elapsed_time(end) / 1e3))
    return best


def _main() -> None:
    parser = argparse.ArgumentParser(prog="core.hardware.child")
    parser.add_argument("--bus", type=int, metavar="GPU")
    parser.add_argument("--gpus", action="store_true")
    asked = parser.parse_args()
    # as the driver's management library numbers them
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    sys.stdout.write(json.dumps(gpus() if asked.gpus else measure_bus_here(asked.bus or 0)) + "\n")


if __name__ == "__main__":
    _main()
