"""A PC without 16-bit products, for tests: what torch and the compiled kernels use is limited to AVX2, and
the machine says that it has no more. Run as a program; prints what it found as JSON.

    ATEN_CPU_CAPABILITY=avx2 python -m tests.support.avx2_engine FOLDER
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from core.assembly.engines import build_engine
from core.backend.cpu.native import attention, layers, products
from core.config import Settings
from core.conversation.verification import verify_answer
from core.decoding.decoder import Round
from core.engine import Engine
from core.hardware import cpu
from core.hardware.probe import probe
from core.model.gguf.folder import opened
from core.model.shapes import ModelShape
from core.planning.planner import make_plan
from core.request import Params
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import MIXED, wide
from tests.support.modes import GRID_MODES

FLAGS = "fpu sse4_2 avx avx2 fma f16c bmi1 bmi2 movbe abm"
IDS = torch.randint(0, 300, (131,), generator=torch.Generator().manual_seed(1)).tolist()


def answers(engine: Engine, tokens: int) -> tuple[dict[str, list[int]], dict[str, float]]:
    """Every mode's greedy answer, and how far behind the likeliest its worst token is in a plain pass."""
    found, gaps = {}, {}
    for mode in GRID_MODES:
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=tokens, mode=mode)
        context = engine.new_context(engine.context_tokens)
        events = engine.generate(context, IDS, params)
        found[mode] = [token for one in events if isinstance(one, Round) for token in one.tokens]
        gaps[mode] = verify_answer(engine.model, context, IDS + found[mode], len(IDS), params).largest_gap
    return found, gaps


def counted(kind: type, verb: str) -> list[tuple[str, int]]:
    """Calls of a compiled kernel from now on: its instruction set, and rows."""
    calls, run = [], getattr(kind, verb)

    def call(self: object, x: torch.Tensor, *args: object, **given: object) -> object:
        calls.append((self.instructions, x.shape[0]))
        return run(self, x, *args, **given)

    setattr(kind, verb, call)
    return calls


def main(root: Path) -> None:
    """Plans, builds and asks: a checkpoint of numbers and a GGUF of codes, each with a draft model."""
    cpu.CPUINFO = root / "cpuinfo"
    cpu.CPUINFO.write_text(f"processor\t: 0\nmodel name\t: A PC\nflags\t\t: {FLAGS}\n\n")
    numbers, draft = root / "numbers", root / "draft"
    reference = wide().bfloat16()
    reference.save_pretrained(numbers)
    wide(tied=True).bfloat16().save_pretrained(draft)
    coded, eight = (
        opened(write_gguf(root / f"{name}.gguf", wide(), kinds))
        for name, kinds in (("model", MIXED), ("eight", "Q8_0"))
    )
    attended = counted(attention.NativeAttention, "attend")
    multiplied = counted(products.NativeProducts, "multiply")
    passed = counted(layers.NativeModel, "__call__")
    found = {"capability": torch.backends.cpu.get_cpu_capability()}
    for (name, folder), kv in product(
        (("numbers", numbers), ("codes", coded), ("8-bit codes", eight)), (16, 8)
    ):
        shape = ModelShape.from_hf_config(json.loads((folder / "config.json").read_text()), name=name)
        if name != "numbers":
            weights = sum(one.numel() for one in reference.parameters() if one.ndim == 2)
            kind, bits = ("Q4_K_M", 4) if folder == coded else ("Q8_0", 8)
            shape = replace(shape, format=kind, code_bits=bits, coded_weights=weights, coded_bytes=weights)
        settings = Settings(
            device="cpu", context_tokens=448, snapshot_quota_gb=0, threads=2, gamma=4, middle_gamma=3, kv=kv
        )
        made = make_plan(probe(root), settings, target=shape, draft=shape)
        engine = build_engine(made, settings, folder, draft_dir=draft)
        cache = engine.new_context(448).cache
        attended.clear(), multiplied.clear(), passed.clear()
        said, gaps = answers(engine, 16)
        found[name if kv == 16 else f"{name}, 8-bit KV"] = {
            "plan": made.to_json(),
            "kv_bytes_per_token": cache.nbytes / cache.capacity,
            "answers": said,
            "gaps": gaps,
            "attended": sorted(set(attended)),
            "multiplied": sorted(set(multiplied)),
            "passed": sorted(set(passed)),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
