"""The attention heads that look where an answer stands: the catalogue's, or those that were found here. No
torch.
"""

from __future__ import annotations

from pathlib import Path

from core.hardware.measured import Measurements
from core.model.store.catalogue import CatalogueEntry
from core.model.store.manifest import fingerprint

Heads = tuple[tuple[int, int], ...]  # (layer, head), counted from 0


def chosen_heads(entry: CatalogueEntry, folder: Path, measured: Measurements) -> Heads:
    """Those that `keep_heads` kept for the files in `folder`, else the catalogue's; none where neither
    knows any.
    """
    kept = measured.get(_key(folder))
    found = entry.heads if kept is None else kept["heads"]
    return tuple((layer, head) for layer, head in found)


def keep_heads(folder: Path, measured: Measurements, heads: Heads) -> None:
    """What was found for this model, in place of the catalogue's, also where it is nothing."""
    measured.put(_key(folder), {"heads": [list(one) for one in heads]})


def _key(folder: Path) -> str:
    return f"heads of {fingerprint(folder)}"
