"""What the teacher leaves: distributions, on disk one file per shard, written whole or not at all. Knows
nothing of what is in the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from core.paths import whole_file

TEACHER_TEMPERATURES = (0.6, 1.0)  # at which the draft is compared with the target
KEPT = 64  # likeliest tokens stored of each distribution
_MIXED = 4  # shards in memory at a time


@dataclass(frozen=True, slots=True)
class TargetProbs:
    """Texts and what the target says after each of their tokens, over the draft's vocabulary alone,
    renormalised to it.

    `rest` is the probability at each of TEACHER_TEMPERATURES of what is not among the `KEPT` likeliest.
    """

    ids: torch.Tensor  # int32 [rows, n]
    # int32 [rows, n, kept], indices into the head's vocabulary, likeliest first
    top: torch.Tensor
    logits: torch.Tensor  # float16 [rows, n, kept], log-probabilities at temperature 1
    rest: torch.Tensor  # float16 [rows, n, temperatures]


class Shards:
    """Distributions by number in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, number: int) -> bool:
        return self._path(number).is_file()

    def save(self, number: int, distributions: TargetProbs) -> None:
        """Writes one shard under its name at the end only."""
        with whole_file(self._path(number)) as part:
            save_file({field.name: getattr(distributions, field.name) for field in fields(TargetProbs)}, part)

    def load(self, number: int) -> TargetProbs:
        """One shard."""
        return TargetProbs(**load_file(self._path(number)))

    def _path(self, number: int) -> Path:
        return self._folder / f"laws-{number:05}.safetensors"


def batches(
    shards: Shards, numbers: Sequence[int], *, rows: int, seed: int, skip: int = 0
) -> Iterator[TargetProbs]:
    """One epoch: all rows of the shards in an order that `seed` gives, `rows` at a time, without the first
    `skip` batches.

    Rows of a few shards at a time are mixed, so that memory stays small.
    """
    dice = torch.Generator().manual_seed(seed)
    order = [numbers[i] for i in torch.randperm(len(numbers), generator=dice)]
    done = 0
    for start in range(0, len(order), _MIXED):
        distributions = joined_shards([shards.load(number) for number in order[start : start + _MIXED]])
        shuffled = torch.randperm(len(distributions.ids), generator=dice)
        for index in shuffled.split(rows):
            if done >= skip:
                yield TargetProbs(
                    *(getattr(distributions, field.name)[index] for field in fields(TargetProbs))
                )
            done += 1


def joined_shards(parts: Sequence[TargetProbs]) -> TargetProbs:
    """Several shards as one."""
    return TargetProbs(
        *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(TargetProbs))
    )
