"""Measures passes and acceptance behind one text, chooses, and lets the choice race the plan."""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

import torch

from core.cache.base import TargetKVCache
from core.cache.layered_retrieval import retrieval_over
from core.config import Settings
from core.decoding import forced
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.decoding.forced import ExpectedTokens, RetrievalLane, SourceStandIn
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.engine import Engine
from core.events import Progress
from core.model.llama import LlamaModel
from core.planning import costs
from core.planning.plan import MTP, Plan
from core.planning.tuned import Times, Tuned
from core.request import Params
from core.text.words import translated as _
from core.tuning.choice import MeasuredPasses, Selection, TunedChoice, candidates, choose_tuning, level_zero
from core.tuning.passes import MIDDLE_ROWS, PASSES_SHARE, TimeLimit, draft_ms, pass_times, verify_times

if TYPE_CHECKING:
    from core.assembly.engines import TuningBench

log = logging.getLogger(__name__)

SECONDS = 110.0  # for everything behind the loading of the model
READ_SHARE, ANSWER_SHARE, FORCED_SHARE = 0.4, 0.5, 0.65  # of them, when a part ends at the latest
ANSWER_TOKENS = 64
RACE_TOKENS = 48  # per run; in a turn each runs twice
RACE_TURNS = 5  # at most, each with another seed: what one text says of drafts is much its own
LEAST_TIMED = 8  # an answer that ends before says nothing of speed
DRAFT = 8  # tokens per forced draft
LEAST_DRAFTS = 4  # of the answer's eight, however late it is,
# and then for so many selections only: the plan's chunk with several budgets
FEW_SELECTIONS = 5
# for which the acceptance that the plan assumes counts beside what was found
PRIOR_TOKENS = 8
LEAST_PROMPT = 512
LANE_TAIL = 2 * ANSWER_TOKENS
LANES_SHARE = 0.25  # of the free memory, for retrieval caches side by side
# the cache is laid out for it, so that every candidate's chunks divide its blocks
WIDEST_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """`tuned` holds the values of `chosen`; `kept` says whether they, or plain decoding, were faster than
    `default` in the race, in milliseconds per token.
    """

    default: Plan
    chosen: Plan
    tuned: Tuned
    measured: MeasuredPasses
    read_tokens: int
    default_tbt_ms: float
    chosen_tbt_ms: float
    plain_tbt_ms: float
    seconds: float

    @property
    def kept(self) -> bool:
        """A tie goes to the default, and so do a choice that the planner cannot use and a race in which no
        answer was long enough to be timed.
        """
        best = min(self.chosen_tbt_ms, self.plain_tbt_ms)
        return bool(self.chosen.tuned) and best < self.default_tbt_ms < math.inf


class Tuner:
    """One run. `replan(tuned)` plans with such values; `label` makes a Tuned of what is measured."""

    def __init__(
        self,
        bench: TuningBench,
        plan: Plan,
        settings: Settings,
        params: Params,
        *,
        replan: Callable[[Tuned], Plan],
        label: Callable[..., Tuned],
        clock: Callable[[], float],
        report: Progress,
        seconds: float = SECONDS,
    ) -> None:
        self._bench, self._plan, self._settings, self._params = bench, plan, settings, params
        self._replan, self._label, self._tell = replan, label, report
        self._limit = TimeLimit(seconds, clock)

    def run(self, text: Sequence[int]) -> Outcome:
        """Reads as much of `text` as there is time and room for, and lets the model write on: an answer may
        end after a few words, which says nothing of speed.
        """
        engine = self._bench.engine(replace(self._plan, retrieval_chunk=WIDEST_CHUNK))
        context = engine.new_context(self._plan.context_tokens)
        with torch.inference_mode():
            prompt = self._read(engine, context, text)
            self._report(_("Answering"), READ_SHARE)
            answer, levels, _ms = self._answer(
                self._bench.engine(self._plan), context, prompt, tokens=ANSWER_TOKENS, share=ANSWER_SHARE
            )
            acceptance, middle_ms = self._forced(engine.model, context, [*prompt, *answer], len(prompt))
            self._report(_("Passes over a full context"), FORCED_SHARE)
            measured = MeasuredPasses(
                verify_ms=verify_times(engine.model, context.cache, self._plan.context_tokens, self._limit),
                middle_ms=middle_ms,
                draft_ms=draft_ms(self._bench.draft_pass, self._limit) if self._bench.draft_pass else 0.0,
                acceptance=acceptance,
                draft_acceptance=level_zero(levels, self._plan.middle_gamma) or costs.ACCEPTANCE_NGRAM,
            )
            choice = choose_tuning(measured, self._settings)
            tuned = self._tuned(choice, measured)
            default_ms, chosen_ms, plain_ms = self._race(self._replan(tuned), context, prompt)
        tuned = replace(
            tuned,
            tbt_ms=round(min(chosen_ms, plain_ms), 3),
            default_tbt_ms=round(default_ms, 3),
            plain=plain_ms < min(chosen_ms, default_ms),
        )
        chosen = self._replan(tuned)
        return Outcome(
            default=self._plan,
            chosen=chosen,
            tuned=tuned,
            measured=measured,
            read_tokens=len(prompt),
            default_tbt_ms=default_ms,
            chosen_tbt_ms=chosen_ms,
            plain_tbt_ms=plain_ms,
            seconds=self._limit.used() * self._limit.seconds,
        )

    # ---- the parts, in their order -------------------------------------------------------------------------

    def _read(self, engine: Engine, context: Context, text: Sequence[int]) -> list[int]:
        """Prefills segment by segment while there is time. Returns the prompt."""
        plan, spare = self._plan, ANSWER_TOKENS + 2 * DRAFT
        expected = plan.context_tokens * self._limit.seconds * READ_SHARE / max(plan.expected_prefill_s, 1e-9)
        most = min(len(text), plan.context_tokens - spare, max(LEAST_PROMPT, int(expected)))
        done, reading = 0, _("Reading {count} tokens").format(count=f"{most:,}")
        while done < most and (not done or self._limit.used() < READ_SHARE):
            done = min(most, done + plan.prefill_segment_tokens)
            self._report(reading, READ_SHARE * done / most)
            deque(engine.generate(context, text[:done], Params(max_new_tokens=1, mode="autoregressive")), 0)
        return list(text[:done])

    def _answer(
        self,
        engine: Engine,
        context: Context,
        prompt: Sequence[int],
        *,
        tokens: int,
        share: float,
        seed: int = 0,
    ) -> tuple[list[int], list[str], float]:
        """An answer that ends by `share` of the time, who proposed each token, and milliseconds per token.

        The first round warms up and is not timed. Infinite when too few tokens follow it.
        """
        answer: list[int] = []
        levels: list[str] = []
        warm, started, ended = 0, 0.0, 0.0
        # so that the end of the prompt is seen anew, which the first selection needs
        context.keep_prefix_of(prompt[:-1])
        events = engine.generate(
            context,
            prompt,
            replace(self._params, max_new_tokens=tokens, seed=self._params.seed ^ seed),
            should_stop=lambda: len(answer) - warm >= LEAST_TIMED and self._limit.used() > share,
        )
        for event in events:
            if isinstance(event, Round):
                answer += event.tokens
                levels += event.levels
                ended = self._limit.clock()
                if not warm:
                    warm, started = len(answer), ended
        timed = len(answer) - warm
        return answer, levels, 1e3 * (ended - started) / timed if timed >= LEAST_TIMED else math.inf

    def _forced(
        self, model: LlamaModel, context: Context, ids: list[int], start: int
    ) -> tuple[dict[Selection, float], dict[int, Times]]:
        """p of every candidate along the answer, and the passes over each budget."""
        sampling = Sampling(
            self._params.temperature, self._params.top_p, self._params.repetition_penalty, start
        )
        acceptance: dict[Selection, float] = {}
        middle_ms: dict[int, Times] = {}
        tried = candidates(self._plan, self._settings)[
            : None if self._limit.used() < ANSWER_SHARE else FEW_SELECTIONS
        ]
        for group in self._groups(model, tried):
            if acceptance and self._limit.used() > FORCED_SHARE:
                break
            self._report(_("Acceptance by budget and chunk"), self._limit.used())
            try:
                lanes = [self._lane(context.cache, selection) for selection in group]
                forced.select_first(
                    model, context.cache, ids[:start], lanes, chunk_tokens=self._plan.prefill_chunk_tokens
                )
                found = forced.force(
                    model,
                    context.cache,
                    ids,
                    start,
                    lanes,
                    [sampling],
                    gamma=DRAFT,
                    going_on=self._for_a_while(),
                )
                for selection, lane, (expected,) in zip(group, lanes, found, strict=True):
                    acceptance[selection] = self._with_prior(expected)
                    if selection.budget not in middle_ms:
                        middle_ms[selection.budget] = pass_times(
                            model.drafting,
                            lane.cache,
                            ids[: max(MIDDLE_ROWS)],
                            rows=MIDDLE_ROWS,
                            limit=self._limit,
                        )
            except RuntimeError as error:
                if not model.backend.out_of_memory(error):
                    raise
                log.warning("no room for %s: %s", group, error)
                model.backend.release()
        return {one: rate for one, rate in acceptance.items() if one.budget in middle_ms}, middle_ms

    def _for_a_while(self) -> Callable[[], bool]:
        """Whether to go on, asked after every forced draft."""
        drafts = itertools.count(1)
        return lambda: next(drafts) < LEAST_DRAFTS or self._limit.used() < FORCED_SHARE

    def _with_prior(self, found: ExpectedTokens) -> float:
        """An answer cut short would otherwise say that everything is accepted, or nothing."""
        return (found.accepted + PRIOR_TOKENS * self._plan.assumed_acceptance) / (
            found.evaluated + PRIOR_TOKENS
        )

    def _groups(self, model: LlamaModel, selections: list[Selection]) -> Iterator[list[Selection]]:
        """Which go side by side: as many as a part of the free memory holds, at least one."""
        shape = model.config.kv_shape.of_full
        token_bytes = shape.layers * shape.token_bytes(model.backend.storage)
        room = model.backend.memory().free_bytes * LANES_SHARE / token_bytes
        group: list[Selection] = []
        for selection in selections:
            if group and sum(one.budget + LANE_TAIL for one in (*group, selection)) > room:
                yield group
                group = []
            group.append(selection)
        yield group

    def _lane(self, source: TargetKVCache, selection: Selection) -> RetrievalLane:
        cache = retrieval_over(source, budget=selection.budget, chunk=selection.chunk, tail_tokens=LANE_TAIL)
        watch = SourceStandIn()
        return RetrievalLane(cache, RetrievalRefresh(watch, cache), watch)

    def _tuned(self, choice: TunedChoice, measured: MeasuredPasses) -> Tuned:
        plan, selection = self._plan, choice.selection
        return self._label(
            model=plan.model,
            device=plan.device,
            dtype=plan.dtype,
            kv_rows=plan.kv_rows,
            kernel=plan.weights_kernel,
            threads=plan.threads,
            context_tokens=plan.context_tokens,
            on_chip_layers=plan.on_chip_layers,
            draft_model=MTP if plan.drafter == MTP else plan.draft_model,
            retrieval_budget=selection.budget,
            retrieval_chunk=selection.chunk,
            gamma=choice.lengths.gamma,
            middle_gamma=choice.lengths.middle_gamma,
            acceptance=round(measured.acceptance[selection], 4),
            draft_acceptance=round(measured.draft_acceptance, 4),
            verify_ms=measured.verify_ms,
            middle_ms=measured.middle_ms[selection.budget],
            draft_ms=measured.draft_ms,
            cpu_share=plan.cpu_share,
            cpu_share_plain=plan.cpu_share_plain,
            tbt_ms=0.0,
            default_tbt_ms=0.0,
        )

    def _race(self, chosen: Plan, context: Context, prompt: Sequence[int]) -> tuple[float, float, float]:
        """Milliseconds per token of the default, of the chosen plan and of plain decoding: there and back, so
        that a drift of the machine hits all, turn after turn while there is time for another.
        """
        plain = replace(self._plan, plain=True)
        runners = (self._plan, chosen, plain)
        order = (*enumerate(runners), *reversed(tuple(enumerate(runners))))
        taken: list[list[float]] = [[] for _runner in runners]
        began = self._limit.used()
        for turn in range(RACE_TURNS):
            if turn and self._limit.used() + (self._limit.used() - began) / turn > 1:
                break
            for runner, plan in order:
                self._report(_("Against the default"), max(PASSES_SHARE, self._limit.used()))
                share = self._limit.used() + (1 - PASSES_SHARE) / len(order)
                ms = self._answer(
                    self._bench.engine(plan), context, prompt, tokens=RACE_TOKENS, share=share, seed=turn
                )[2]
                taken[runner].append(ms)
        return tuple(_mean(times) for times in taken)

    def _report(self, stage: str, fraction: float) -> None:
        self._tell(stage, min(1.0, fraction))


def _mean(times: Sequence[float]) -> float:
    """Of the answers that were long enough to be timed; infinite when none was."""
    timed = [ms for ms in times if math.isfinite(ms)]
    return mean(timed) if timed else math.inf
