"""Tuning this machine for the model of the settings: what is measured with, and where the values go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from core import paths
from core.assembly.engines import build_bench
from core.config import Settings
from core.conversation.reading import ReadingStyle
from core.documents import read_document
from core.errors import PlanError, UserError
from core.events import Progress
from core.hardware.facts import Hardware
from core.hardware.measured import Measurements
from core.hardware.probe import probe
from core.model.store.evidence_heads import keep_heads
from core.model.store.fetch import is_downloaded, model_folder
from core.model.store.manifest import fingerprint
from core.model.store.untrusted import written_safely
from core.paths import ROOT
from core.planning import stored_facts
from core.planning.offers import PlannedModel, choose_model, plan_model
from core.planning.plan import Plan
from core.planning.tuned import Tuned, machine_of
from core.request import Params
from core.text.tokenizer import Tokenizer
from core.text.words import duration
from core.text.words import translated as _
from core.tuning.heads import RankedHeads, find_heads
from core.tuning.tuner import Outcome, Tuner

BUSY = 0.25  # of the processors; times taken beside other work say little
LOOK_S = 1.0
SAMPLES = ROOT / "assets" / "samples"
TEXTS = ("the-light-on-the-holm.md", "the-thursday-clock.md")
# unless the user set one: a greedy answer may go round in circles, and a circle is easily drafted
LEAST_TEMPERATURE = 0.6


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """What became of it: the file that holds the values now, or None; `dropped`: older values were not the
    faster ones either.

    `busy`: the share of the processors that other programs took before it began. Above BUSY nothing is kept
    but `heads`, which are no matter of time.
    """

    outcome: Outcome
    file: Path | None
    dropped: bool
    busy: float = 0.0
    heads: RankedHeads | None = None


def run_tuning(
    settings: Settings,
    *,
    report: Progress,
    books: Sequence[Path] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> TuningRecord:
    """Measures and stores. `books` are read in place of the samples. Interrupted, it leaves everything as it
    was. Raises UserError.
    """
    if len(settings.devices or ()) > 1:
        said = _("tune measures one graphics card, and devices names several. Set it to auto, or name one.")
        raise UserError(said)
    report(_("Looking at this machine"), None)
    busy = psutil.cpu_percent(interval=LOOK_S) / 100
    machine = probe(paths.data_dir())  # what an earlier run found must not count as the default
    choice = choose_model(machine, settings, is_downloaded=is_downloaded)
    rounded = choice.plan.weights_format if choice.plan.weights_kernel == "codes" else ""
    folder = model_folder(choice.entry, report, weights=rounded)
    draft = model_folder(choice.draft, report) if choice.draft else None
    report(_("Loading the model"), None)
    bench = build_bench(choice.plan, settings, folder, draft_dir=draft, progress=report)
    tokenizer = Tokenizer.load(folder, frame=choice.entry.frame, written=written_safely(choice.entry.name))
    style = ReadingStyle.from_record(choice.entry.reading)
    tuner = Tuner(
        bench,
        choice.plan,
        settings,
        _params(settings, style),
        replan=partial(_replanned, machine, settings, choice),
        label=_labels(machine, folder),
        clock=clock,
        report=report,
    )
    texts = [read_document(path).text for path in books or [SAMPLES / name for name in TEXTS]]
    outcome = tuner.run(_prompt(tokenizer, style, texts))
    heads = find_heads(bench.engine(choice.plan), tokenizer, style, "\n\n".join(texts), report=report)
    if heads.heads:
        keep_heads(folder, Measurements(paths.data_dir()), heads.heads)
    return replace(stored(outcome, paths.data_dir(), busy=busy), heads=heads)


def _replanned(machine: Hardware, settings: Settings, choice: PlannedModel, tuned: Tuned) -> Plan:
    """The plan that the planner will make with these values; the chosen one where they do not fit."""
    same = replace(settings, context_tokens=choice.plan.context_tokens)
    try:
        return plan_model(machine, same, choice.entry, known=stored_facts.StoredFacts((tuned,))).plan
    except PlanError:
        return choice.plan


def _labels(machine: Hardware, folder: Path) -> Callable[..., Tuned]:
    """Makes Tuned values of what is measured here today with the model in `folder`."""
    return partial(
        Tuned,
        machine=machine_of(machine),
        folder=str(folder),
        fingerprint=fingerprint(folder),
        version=stored_facts.tuning_version(),
        date=date.today().isoformat(),
    )


def _prompt(tokenizer: Tokenizer, style: ReadingStyle, texts: Sequence[str]) -> list[int]:
    """What is read and written on, from its frame on."""
    return [*tokenizer.frame(style.system).opening, *tokenizer.encode("\n\n".join(texts))]


def stored(outcome: Outcome, data_folder: Path, *, busy: float = 0.0) -> TuningRecord:
    """Keeps the values when they won the race; when they lost, what an earlier run kept goes too. On a busy
    machine all stays as it was.
    """
    if busy > BUSY:
        return TuningRecord(outcome, None, False, busy)
    if outcome.kept:
        return TuningRecord(outcome, stored_facts.store_tuned(data_folder, outcome.tuned), False)
    return TuningRecord(outcome, None, stored_facts.forget_tuned(data_folder, outcome.tuned))


def _params(settings: Settings, style: ReadingStyle) -> Params:
    """As the app answers, a little livelier where the user did not say."""
    given = {
        name: getattr(style, name) if getattr(settings, name) is None else getattr(settings, name)
        for name in ("temperature", "top_p", "repetition_penalty")
    }
    if settings.temperature is None:
        given["temperature"] = max(given["temperature"], LEAST_TEMPERATURE)
    return Params(**given, seed=settings.seed or 0, mode="triforce")


def tuning_json(done: TuningRecord) -> dict[str, Any]:
    """Plain values of everything that was measured and decided."""
    outcome, measured = done.outcome, done.outcome.measured
    return {
        "kept": done.file is not None,
        "busy": done.busy,
        "heads": [list(one) for one in done.heads.heads] if done.heads else [],
        "file": str(done.file) if done.file else None,
        "tuned": {name: _timed(value) for name, value in outcome.tuned.to_json().items()},
        "default": outcome.default.to_json(),
        "chosen": outcome.chosen.to_json(),
        "read_tokens": outcome.read_tokens,
        "default_tbt_ms": _timed(outcome.default_tbt_ms),
        "chosen_tbt_ms": _timed(outcome.chosen_tbt_ms),
        "plain_tbt_ms": _timed(outcome.plain_tbt_ms),
        "seconds": outcome.seconds,
        "verify_ms": measured.verify_ms,
        "middle_ms": dict(measured.middle_ms),
        "draft_ms": measured.draft_ms,
        "draft_acceptance": measured.draft_acceptance,
        "acceptance": [
            {"budget": one.budget, "chunk": one.chunk, "rate": rate}
            for one, rate in sorted(measured.acceptance.items())
        ],
    }


def _timed(value: object) -> object:
    """JSON has no infinite number: None stands for a time that could not be taken."""
    return None if value == math.inf else value


def report_text(done: TuningRecord) -> str:
    """The end report: before and after, and what was kept."""
    rows = "\n".join(f"  {name:<34}{before:>16}{after:>16}" for name, before, after in _rows(done.outcome))
    return "\n\n".join(filter(None, (_headline(done.outcome), rows, _verdict(done), _looks(done.heads))))


def _headline(outcome: Outcome) -> str:
    said = _(
        "{model} on {device}, {context} tokens of context; tuned in {time} behind {read} tokens, with "
        "{count} selections."
    )
    return said.format(
        model=outcome.default.model,
        device=outcome.default.device,
        context=f"{outcome.default.context_tokens:,}",
        time=duration(outcome.seconds),
        read=f"{outcome.read_tokens:,}",
        count=len(outcome.measured.acceptance),
    )


def _rows(outcome: Outcome) -> list[tuple[str, str, str]]:
    assumed, measured = _("{rate:.2f} assumed"), _("{rate:.2f} measured")
    before, after = outcome.default, outcome.chosen
    return [
        ("", _("default"), _("found")),
        (_("retrieval budget, tokens"), f"{before.retrieval_budget:,}", f"{after.retrieval_budget:,}"),
        (_("retrieval chunk, tokens"), f"{before.retrieval_chunk}", f"{after.retrieval_chunk}"),
        (_("gamma, outer and middle"), *(f"{plan.gamma}, {plan.middle_gamma}" for plan in (before, after))),
        (
            _("acceptance of the middle level"),
            assumed.format(rate=before.assumed_acceptance),
            measured.format(rate=after.assumed_acceptance),
        ),
        (_("expected time between tokens"), *(f"{plan.expected_tbt_ms:.1f} ms" for plan in (before, after))),
        (
            _("time between tokens in the race"),
            *(_ms(taken) for taken in (outcome.default_tbt_ms, outcome.chosen_tbt_ms)),
        ),
        (_("of plain decoding"), "", _ms(outcome.plain_tbt_ms)),
    ]


def _ms(taken: float) -> str:
    return f"{taken:.1f} ms" if math.isfinite(taken) else "–"


def _looks(found: RankedHeads | None) -> str:
    if found is None:
        return ""
    if not found.heads:
        return _("No attention head looks where an answer stands, so marks go by words.")
    said = _(
        "Where an answer stands is looked at by {heads} (layer, head), for marks; the best finds {share:.0%}."
    )
    heads = ", ".join(f"({one.layer}, {one.head})" for one in found.heads)
    return said.format(heads=heads, share=found.right[0] / found.questions)


def _verdict(done: TuningRecord) -> str:
    if done.busy > BUSY:
        return _(
            "Other programs took {share:.0%} of the processors, so these times say little and nothing is "
            "kept. Tune again when the machine is quiet."
        ).format(share=done.busy)
    if done.file is not None:
        said = _(
            "The found values were faster and are kept in {file}. Settings of yours still win over them."
        )
        if done.outcome.tuned.plain:
            said = _(
                "Plain decoding was faster than any drafts, so that is what runs from now on (kept in "
                "{file}). Set gamma to have drafts all the same."
            )
        return said.format(file=done.file)
    if done.dropped:
        return _("The default was no slower, so it stays; the values of an earlier run are dropped.")
    return _("The default was no slower, so it stays.")
