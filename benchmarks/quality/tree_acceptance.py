"""What trees of drafts would gain where a full pass waits for the bus: of the tokens that the full cache
rejects, how many a second and a third candidate of the middle level would mend.

    python -m benchmarks.tree_acceptance --books FILE FILE [--contexts 4096] [--tokens 96] [--save NAME]

Along a given text the laws of full and retrieval cache are computed, as benchmarks.acceptance does.
Candidates are drawn without replacement and tried one after the other, each against what the ones before left
of the target's law (multi-round rejection: https://arxiv.org/abs/2305.09781,
https://arxiv.org/abs/2402.12374), so the law stays the target's. The planner's arithmetic then says what that
share would make of LWM on an RTX 4090, whose acceptance is the published one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.backend.cpu.threads import bound_spinning

bound_spinning()

import torch

from benchmarks.lib.results import Table, save_result
from benchmarks.quality import acceptance
from core.config import Settings
from core.decoding import forced
from core.decoding.drafters import next_logits
from core.decoding.sampling import Sampling
from core.engine import Engine
from core.events import Acceptance
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import find
from core.model.store.embedded import ensure_embedded
from core.planning.planner import make_plan
from core.text.tokenizer import Tokenizer

CANDIDATES = 3  # at most, at one place
BUDGETS = (256, 1024)
_LEAST = 1e-3  # a candidate that is drawn and rejected less often mends nothing here
NODES = (39, 63, 127, 255)  # beside the newest token: what a kernel takes, one tile, two and four


@dataclass(frozen=True, slots=True)
class TreeRow:
    """Drafts over one retrieval budget: expected acceptance with 1, 2, .. candidates at each place."""

    context: int
    temperature: float
    budget: int
    rates: tuple[float, ...]

    def mended(self, candidates: int) -> float:
        """The share of what one candidate loses that so many do not."""
        return (self.rates[candidates - 1] - self.rates[0]) / max(1e-9, 1 - self.rates[0])


def accepted_with(p: torch.Tensor, q: torch.Tensor, candidates: int) -> list[float]:
    """The chance that one of the first 1, 2, .. `candidates` draws from q [vocab], without replacement, is
    accepted for p [vocab], by multi-round rejection.
    """
    first = float(torch.minimum(p, q).sum().clamp(max=1.0))
    rates = [first] * candidates
    if candidates == 1 or first >= 1 - _LEAST:
        return rates
    residual = (p - q).clamp(min=0)
    residual /= residual.sum()
    lost = (q - p).clamp(min=0)  # drawn and rejected
    for token in (lost > _LEAST).nonzero()[:, 0].tolist():
        rest = q.clone()
        rest[token] = 0.0
        if (left := float(rest.sum())) <= _LEAST:
            continue
        more = accepted_with(residual, rest / left, candidates - 1)
        for at, rate in enumerate(more, start=1):
            rates[at] += float(lost[token]) * rate
    return rates


def measured(
    engine: Engine, ids: list[int], start: int, samplings: Sequence[Sampling], budget: int
) -> list[list[forced.ExpectedTokens]]:
    """[sampling][candidates - 1] along ids[start:], in drafts of acceptance.GAMMA tokens, over a context of
    their own.
    """
    cache = engine.new_context(len(ids) + 512).cache
    setup = acceptance.RetrievalSetup("mass", budget, acceptance.CHUNK, acceptance.DEFAULT_REFRESH)
    lane = acceptance._lane(engine, cache, None, setup)
    engine.model.forward(ids[:1], cache)
    cache.commit(1)
    forced.select_first(engine.model, cache, ids[:start], [lane], chunk_tokens=acceptance.CHUNK_TOKENS)
    sums = [[forced.ExpectedTokens()] * CANDIDATES for _ in samplings]
    for first in range(start, len(ids), acceptance.GAMMA):
        so_far, drafted = ids[:first], ids[first : first + acceptance.GAMMA]
        lane.refresh.before_round()
        proposed = next_logits(engine.model.drafting, lane.cache, so_far, drafted[:-1])
        cache.observer = lane.watch.observer
        exact = next_logits(engine.model, cache, so_far, drafted[:-1])
        cache.observer = None
        cache.commit(len(so_far) + len(drafted) - 1)
        for of_one, sampling in zip(sums, samplings, strict=True):
            laws = (sampling.probs(logits, so_far, drafted) for logits in (exact, proposed))
            rates = [accepted_with(p, q, CANDIDATES) for p, q in zip(*laws, strict=True)]
            for at in range(CANDIDATES):
                of_one[at] += forced.of_draft([rate[at] for rate in rates])
        lane.cache.commit(cache.length)
        lane.refresh.after_round(Acceptance(sums[0][0].accepted, sums[0][0].evaluated))
    return sums


def tokens_of_tree(rate: float, mended: float, *, nodes: int, depth: int) -> float:
    """Expected tokens of a round that drafts the likeliest `nodes` of a tree: at every place a candidate that
    is accepted with `rate`, and a second that mends such a share of the rest. With 0 it is a chain.
    """
    open_nodes, expected = [(-rate, 1), (-(1 - rate) * mended, 1)], 1.0
    for _node in range(nodes):
        if not open_nodes:
            break
        reached, at = heapq.heappop(open_nodes)
        expected -= reached
        if at < depth:
            heapq.heappush(open_nodes, (reached * rate, at + 1))
            heapq.heappush(open_nodes, (reached * (1 - rate) * mended, at + 1))
    return expected


def promised(mended: float, nodes: int) -> tuple[float, float]:
    """Milliseconds a token of LWM behind 131,072 tokens on an RTX 4090 with 64 GB: by the plan, and with
    trees of so many nodes of the depth that serves best. A verification and a level of a draft take as long
    as in the plan, however many rows they have.
    """
    machine, settings = (
        imagined_hardware(gpu="RTX 4090", ram_gib=64),
        Settings(context_tokens=131_072, cpu_share="none"),
    )
    plan = make_plan(
        machine, settings, target=find("LWM-Text-Chat-128K").shape, draft=find("llama-68m").shape
    )
    rate, verify_ms, chain_ms = plan.assumed_acceptance, plan.expected_plain_tbt_ms, plan.expected_tbt_ms
    tokens = tokens_of_tree(rate, 0.0, nodes=plan.gamma, depth=plan.gamma)
    level_ms = (chain_ms * tokens - verify_ms) / plan.gamma
    trees = (
        (verify_ms + level_ms * depth) / tokens_of_tree(rate, mended, nodes=nodes, depth=depth)
        for depth in range(1, nodes + 1)
    )
    return chain_ms, min(trees)


def tree_tables(rows: Sequence[TreeRow]) -> list[Table]:
    """Acceptance by candidates, and what the planner makes of it."""
    names = ["1 candidate", *(f"{count} candidates" for count in range(2, CANDIDATES + 1))]
    lines = [
        (f"{row.context:,} tokens, budget {row.budget:,}, T = {row.temperature:g}", *row.rates)
        for row in rows
    ]
    mean = sum(row.mended(2) for row in rows) / len(rows)
    plans = [
        (
            f"{share:.2f} mended{which}, {nodes} drafted tokens",
            *(found := promised(share, nodes)),
            found[0] / found[1],
        )
        for share, which in ((mean, " (measured)"), (1.0, " (at most)"))
        for nodes in NODES
    ]
    note = f"Drafts of {acceptance.GAMMA}; acceptance at each place with so many candidates there."
    bound = "More rows than a plan's count as free, which they are not beyond 64 (ROW_TILE)."
    return [
        Table("Acceptance of trees of drafts", ("Retrieval cache", *names), tuple(lines), (note,)),
        Table(
            "LWM on an RTX 4090 with trees, by the planner",
            ("Second candidates", "chains, ms", "trees, ms", "times"),
            tuple(plans),
            (bound,),
        ),
    ]


def main() -> int:
    """Every book at every context, along its own next words."""
    options = _arguments()
    folder = ensure_embedded()
    tokenizer, rows = Tokenizer.load(folder), []
    engine = acceptance._engine(folder, max(options.contexts) + options.tokens + 512)
    for context in options.contexts:
        for budget in (one for one in BUDGETS if one <= context // 2):
            samplings = [
                Sampling(one, acceptance.TOP_P if one else 1.0, 1.0, context) for one in (0.6, 0.0, 1.0)
            ]
            sums = [[forced.ExpectedTokens()] * CANDIDATES for _ in samplings]
            for book in options.books:
                ids = acceptance._text_ids(book, tokenizer)
                some = ids[len(ids) // 3 :][: context + options.tokens]
                with torch.inference_mode():
                    found = measured(engine, some, context, samplings, budget)
                sums = [[a + b for a, b in zip(*both, strict=True)] for both in zip(sums, found, strict=True)]
            for sampling, of_one in zip(samplings, sums, strict=True):
                rows.append(TreeRow(context, sampling.temperature, budget, tuple(one.rate for one in of_one)))
                print(rows[-1], flush=True)
    made = tree_tables(rows)
    if options.save:
        save_result(options.save, made, {"tokens": options.tokens, "candidates": CANDIDATES})
    print(json.dumps([[table.title, table.rows] for table in made]))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--books", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--contexts", type=lambda text: [int(part) for part in text.split(",")], default=[4096]
    )
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
