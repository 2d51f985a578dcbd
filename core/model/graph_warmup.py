"""Short passes of one level, measured once on a machine and remembered: a restart does not look at a clock.
Knows no kind of cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch

from core.cache.base import SlotCache
from core.hardware.measured import Measurements
from core.model.cuda_graphs import GraphedForward, PassTimes
from core.model.llama import LlamaModel
from core.text.words import joined_sentences
from core.text.words import translated as _


def warmed_up(
    level: str,
    model: LlamaModel,
    cache: SlotCache,
    rows: Iterable[int],
    *,
    only_faster: bool,
    measured: Measurements | None,
) -> GraphedForward:
    """See GraphedForward. What `measured` knows of this model, memory, card and torch is not measured again;
    what is new goes there.
    """
    key = (
        f"{level} passes of {model.config.name}, {model.backend.dtype}, {model.config.layers} layers, "
        f"{cache.store.capacity} rows, "
        f"{model.backend.name}, torch {torch.__version__}"
    )
    known = _times(measured.get(key)) if measured else ()
    with torch.inference_mode():
        passes = GraphedForward(model, cache, rows, only_faster=only_faster, known=known)
    if measured and set(passes.times) - set(known):
        measured.put(
            key, {"times": [asdict(one) for one in passes.times], "said": warmup_note(level, passes)}
        )
    return passes


def warmup_note(level: str, passes: GraphedForward) -> str:
    """What recording a level's passes came to, in words for the panel."""
    rows = ", ".join(map(str, passes.rows))
    named = {"draft": _("draft"), "middle": _("middle")}.get(level, level)
    used = _("CUDA graphs: used for {level} passes of {rows} rows.").format(level=named, rows=rows)
    said = used if rows else _("CUDA graphs: not used for {level} passes.").format(level=named)
    if not passes.times:
        return said
    one = passes.times[0]
    times = _("One row takes {eager:.1f} ms launched by operation and {replayed:.1f} ms replayed.")
    return joined_sentences(said, times.format(eager=one.eager_ms, replayed=one.replay_ms))


def _times(found: dict[str, Any] | None) -> tuple[PassTimes, ...]:
    """Times as they were put away; none where they are not understood."""
    try:
        times = found["times"] if found else ()
        return tuple(
            PassTimes(int(one["rows"]), float(one["eager_ms"]), float(one["replay_ms"])) for one in times
        )
    except (KeyError, TypeError, ValueError):
        return ()
