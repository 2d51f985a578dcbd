"""Random blocks of every GGUF type."""

from __future__ import annotations

import numpy as np

from core.model.gguf.reader import KINDS

ROWS, COLUMNS = 7, 768


# where the fp16 factors of a block lie: random bytes there may be no finite numbers
FACTORS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


SIZES = {name: (block, nbytes) for name, block, nbytes in KINDS.values()}


def random_blocks(
    kind: str, *, rows: int = ROWS, columns: int = COLUMNS, seed: int = 0, scale: float = 0.01
) -> np.ndarray:
    """Bytes of a matrix: every code and every step as likely, factors finite and of both signs."""
    dice = np.random.default_rng(seed)
    block, nbytes = SIZES[kind]
    found = dice.integers(0, 256, (rows, columns // block, nbytes), dtype=np.uint8)
    for at in FACTORS[kind]:
        factors = dice.normal(scale=scale, size=found.shape[:2]).astype(np.float16)
        found[..., at : at + 2] = factors[..., None].view(np.uint8)
    return found.reshape(-1)
