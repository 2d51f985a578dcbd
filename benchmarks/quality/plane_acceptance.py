"""How often the full cache would accept what a middle level proposes that reads only the upper four bits of
its 8-bit rows, beside a retrieval cache of as many bytes. The idea is QuantSpec's
(https://arxiv.org/abs/2502.10424).

A code c of 8 bits is 16 * upper + lower, upper = round(c / 16). Drafts are eight tokens long and follow a
given text, a book's or, as a control, random tokens; what was verified has its exact rows. The law is that of
rows in 8 bits with one scale each.

    python -m benchmarks.plane_acceptance --book BOOK --context 4096
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.quality.acceptance import _engine, _text_ids
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.decoding.drafters import next_logits
from core.decoding.forced import ExpectedTokens, of_draft, probs_overlap
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel
from core.model.store.embedded import ensure_embedded
from core.text.tokenizer import Tokenizer

GAMMA, CHUNK, GROUP = 8, 8, 32
SAMPLINGS = {"T 1": Sampling(1.0), "T .6, top-p .9": Sampling(0.6, 0.9)}
Rows = Callable[[torch.Tensor], torch.Tensor]  # what a cache makes of rows [..., head_dim]


def rounded(rows: torch.Tensor, *, upper: bool, group: int | None = None) -> torch.Tensor:
    """Rows [..., head_dim] as 8-bit codes with a scale for each row, or for each `group` of its numbers, give
    them back; of the codes the upper four bits alone where `upper` says so.
    """
    x = rows.float().unflatten(-1, (-1, group or rows.shape[-1]))
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    codes = (x / scale).round()
    if upper:
        codes = 16 * (codes / 16).round().clamp(-8, 7)
    return (codes * scale).flatten(-2).to(rows.dtype)


def turned(rows: torch.Tensor, make: Rows) -> torch.Tensor:
    """What `make` gives of the rows turned by a Hadamard matrix, turned back."""
    h = torch.ones(1, 1)
    while len(h) < rows.shape[-1]:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    h = h / len(h) ** 0.5
    return (make(rows.float() @ h) @ h.T).to(rows.dtype)


PLANES: dict[str, Rows] = {
    "a scale per row": lambda x: rounded(x, upper=True),
    "per group of 32": lambda x: rounded(x, upper=True, group=GROUP),
    "per row, turned": lambda x: turned(x, lambda y: rounded(y, upper=True)),
    "per group, turned": lambda x: turned(x, lambda y: rounded(y, upper=True, group=GROUP)),
}


def plane_tokens(context: int, head_dim: int) -> int:
    """As many tokens in 16 bits as the upper planes of `context` take, with one fp32 factor a row."""
    return context * (head_dim // 2 + 4) // (2 * head_dim) // CHUNK * CHUNK


@torch.inference_mode()
def accepted(model: LlamaModel, ids: Sequence[int], start: int) -> dict[str, dict[str, float]]:
    """Of ids[start:], by level and sampling: accepted / evaluated of drafts."""
    shape = model.config.kv_shape
    full = FullKVCache(shape, len(ids) + GAMMA, model.backend, block_tokens=512)
    budgets = {
        "retrieval, as many bytes": plane_tokens(start, shape.head_dim),
        "retrieval, an eighth": start // 8,
    }
    lanes = {
        name: RetrievalKVCache(full, budget=budget // CHUNK * CHUNK, chunk=CHUNK)
        for name, budget in budgets.items()
    }
    _read(model, ids[: start - 1], full, [lane.policy.tap for lane in lanes.values()])
    read = full.store.k.clone(), full.store.v.clone()
    _put(full, read, lambda x: rounded(x, upper=False))
    for lane in lanes.values():
        lane.refresh()
    exact, proposed = [], {name: [] for name in lanes}
    for so_far, drafted in _drafts(ids, start):
        for name, lane in lanes.items():
            proposed[name].append(next_logits(model, lane, so_far, drafted[:-1]))
        exact.append(next_logits(model, full, so_far, drafted[:-1]))
        full.commit(full.length)
        for lane in lanes.values():
            lane.commit(full.length)
    rows = full.store.k.clone(), full.store.v.clone()
    for name, make in PLANES.items():
        _put(full, read, make)
        full.rollback(start - 1)
        proposed[name] = list(_by_planes(model, full, rows, ids, start))
    return {name: _rates(exact, found, ids, start) for name, found in proposed.items()}


def _read(
    model: LlamaModel, ids: Sequence[int], cache: FullKVCache, taps: Sequence[Callable[..., None]]
) -> None:
    def tap(*what: object, **where: int) -> None:
        for one in taps:
            one(*what, **where)

    how = {"segment_tokens": 2048, "chunk_tokens": 1024, "should_stop": lambda: False, "tap": tap}
    for _done in model.prefill(ids, cache, **how):
        pass


def _put(cache: FullKVCache, rows: Sequence[torch.Tensor], make: Rows) -> None:
    for target, source in zip((cache.store.k, cache.store.v), rows, strict=True):
        for layer in range(len(source)):
            target[layer] = make(source[layer])


def _drafts(ids: Sequence[int], start: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    return ((ids[:at], ids[at : at + GAMMA]) for at in range(start, len(ids), GAMMA))


def _by_planes(
    model: LlamaModel, cache: FullKVCache, rows: Sequence[torch.Tensor], ids: Sequence[int], start: int
) -> Iterator[torch.Tensor]:
    """Logits of each draft; behind it the rows that were verified replace its own."""
    for so_far, drafted in _drafts(ids, start):
        first = cache.length
        yield next_logits(model, cache, so_far, drafted[:-1])
        for target, source in zip((cache.store.k, cache.store.v), rows, strict=True):
            for token in range(first, cache.length):
                place = (slice(None), token // cache.block_tokens, slice(None), token % cache.block_tokens)
                target[place] = source[place]
        cache.commit(cache.length)


def _rates(
    exact: Sequence[torch.Tensor], proposed: Sequence[torch.Tensor], ids: Sequence[int], start: int
) -> dict[str, float]:
    found = {}
    for name, sampling in SAMPLINGS.items():
        total = ExpectedTokens()
        for (so_far, drafted), p, q in zip(_drafts(ids, start), exact, proposed, strict=True):
            total += of_draft(
                probs_overlap(sampling.probs(p, so_far, drafted), sampling.probs(q, so_far, drafted))
            )
        found[name] = round(total.rate, 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book", type=Path, help="without one: random tokens")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    folder, length = ensure_embedded(), given.context + given.tokens
    engine = _engine(folder, length + 64)
    dice = torch.Generator().manual_seed(1)
    ids = torch.randint(0, engine.model.config.vocab, (length,), generator=dice).tolist()
    if given.book is not None:
        ids = _text_ids(given.book, Tokenizer.load(folder))[:length]
    print(json.dumps(accepted(engine.model, ids, given.context), indent=2))


if __name__ == "__main__":
    sys.exit(main())
