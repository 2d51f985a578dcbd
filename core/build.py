"""The public door: settings in, a session out that answers questions about books.

    session = open_session(settings)
    ask = Ask("Who keeps the light?", read_document(path), params=params_of(settings))
    for event in session.ask(ask): ...

In the order of what happens: the machine is looked at, a model chosen and planned for, its engine assembled,
and a session put around it. torch is imported when the plan stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from core import paths
from core.config import Settings, use_data_dir
from core.events import Loading, Progress
from core.planning.budget import DRAFT_MODEL, KV, KV_BEFORE, WEIGHTS
from core.text.words import translated as _

if TYPE_CHECKING:
    from core.conversation.session import Session
    from core.engine import Engine
    from core.hardware.loading import LoadTime
    from core.model.store.catalogue import CatalogueEntry
    from core.model.store.evidence_heads import Heads
    from core.planning.offers import PlannedModel
    from core.planning.plan import Plan
    from core.text.tokenizer import Tokenizer

_TOLD_EVERY_S = 1.0


def open_session(settings: Settings, *, hear: Callable[[Loading], None] = lambda loading: None) -> Session:
    """A session with the model that settings and machine ask for. Raises UserError, PlanError among them.

    `hear` is told what is under way, at least every second, from another thread too. Nothing is downloaded
    but the embedded model, where that is missing.
    """
    use_data_dir(settings)
    from core.hardware.loading import LoadTime
    from core.hardware.measured import Measurements

    load = LoadTime(Measurements(paths.data_dir()), settings.model or "")
    with ProgressReporter(hear, load.left_s) as tell:
        session = _opened(settings, tell, load)
    load.done()
    return session


def _opened(settings: Settings, tell: Progress, load: LoadTime) -> Session:
    tell(_("Looking at this machine"), None)
    choice, replan = _planned(settings)
    weights = sum(line.bytes for line in choice.plan.budget if line.name in (WEIGHTS, DRAFT_MODEL))
    load.planned(weights)
    folder, draft = _folders(choice, tell)
    load.reading()
    tell(_("Loading the model"), None)

    def progress(stage: str, share: float | None) -> None:
        load.read(share or 0.0)
        tell(stage, share)

    engine, tokenizer = _loaded(settings, choice, folder, draft, replan, progress)

    from core.cache.query_recorder import AttentionHead
    from core.conversation.kept_speeds import KeptSpeeds
    from core.conversation.part_summaries import PartSummaryStore
    from core.conversation.reading import ReadingStyle
    from core.conversation.session import Session
    from core.conversation.time_estimates import TimeEstimate
    from core.hardware.measured import Measurements
    from core.model.store.model_folder import mapped_files

    mapped = {file: size for one in (folder, draft) if one for file, size in mapped_files(one).items()}
    # of several cards none has all heads, and what re-checks an answer asks the model of one
    alone = not choice.plan.devices
    heads = _heads(choice, folder) if settings.evidence_attention and alone else ()
    speeds = KeptSpeeds(Measurements(paths.data_dir()), engine.model_identity, engine.plan)
    return Session(
        engine,
        tokenizer,
        ReadingStyle.from_record(choice.entry.reading),
        allowance_bytes=allowance_bytes(engine.plan),
        notes=PartSummaryStore(paths.subdir("notes")),
        verify=settings.verify and alone,
        read_whole_s=settings.read_whole_s,
        heads=[AttentionHead(*one) for one in heads],
        mapped_files=mapped,
        expectation=TimeEstimate(engine.plan, speeds.known, learned=speeds.keep),
    )


def allowance_bytes(plan: Plan) -> int:
    """What the contexts that are kept may take together: that of a book and what the plan has beside it. 0 on
    a card: one is kept, and its passages'.
    """
    kept = {line.name: line.bytes for line in plan.budget if line.name in (KV, KV_BEFORE)}
    return sum(kept.values()) if KV_BEFORE in kept else 0


class ProgressReporter:
    """Says what is under way and how long it may take, when that changes and every second besides: a number
    that stands still looks like a program that hangs.
    """

    def __init__(self, hear: Callable[[Loading], None], left_s: Callable[[], float | None]) -> None:
        self._hear, self._left_s = hear, left_s
        self._now: tuple[str, float | None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._again, name="loading", daemon=True)

    def __call__(self, stage: str, share: float | None) -> None:
        self._now = stage, share
        self._hear(Loading(stage, share, self._left_s()))

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _again(self) -> None:
        while not self._over.wait(_TOLD_EVERY_S):
            if self._now is not None:
                self._hear(Loading(*self._now, self._left_s()))


def _planned(settings: Settings) -> tuple[PlannedModel, Callable[[int], Plan]]:
    """The model and its plan, and how to plan again with fewer layers on the device."""
    from core.hardware.probe import probe
    from core.model.store.fetch import is_downloaded
    from core.planning.offers import choose_model, plan_model
    from core.planning.stored_facts import known_in

    _look_first(settings)
    machine, known = probe(paths.data_dir()), known_in(paths.data_dir())
    choice = choose_model(machine, settings, is_downloaded=is_downloaded, known=known)

    def replan(layers: int) -> Plan:
        again = as_planned(settings, choice)
        fewer = replace(again, on_chip_layers=layers, context_tokens=choice.plan.context_tokens)
        return plan_model(machine, fewer, choice.entry, is_there=is_downloaded, known=known).plan

    return choice, replan


def as_planned(settings: Settings, choice: PlannedModel) -> Settings:
    """The settings with device and formats of a plan fixed: what is loaded and kept already stays usable."""
    plan, weights = choice.plan, settings.weights
    if not choice.entry.shape.coded_weights:  # a checkpoint of 16 bits: as it is, or as it was rounded
        weights = plan.weights_bits if plan.rounded else 16
    return replace(settings, device=plan.device, kv=8 if plan.kv_bits == 8 else 16, weights=weights)


def _look_first(settings: Settings) -> None:
    """A model file from outside is looked at under limits before this process opens it, at every load.
    Raises UserError.
    """
    from core.model.store.catalogue import gguf_at
    from core.model.store.untrusted import entry_safely

    for name in (settings.model, settings.draft_model):
        if name and (file := gguf_at(Path(name).expanduser())) is not None:
            entry_safely(file)


def _folders(choice: PlannedModel, progress: Progress) -> tuple[Path, Path | None]:
    """Where target and draft model lie."""
    from core.model.store.fetch import model_folder

    draft = model_folder(choice.draft, progress) if choice.draft else None
    rounded = choice.plan.weights_format if choice.plan.weights_kernel == "codes" else ""
    return model_folder(choice.entry, progress, weights=rounded), draft


def _heads(choice: PlannedModel, folder: Path) -> Heads:
    """The heads that say where the model looked."""
    from core.hardware.measured import Measurements
    from core.model.store.evidence_heads import chosen_heads

    return chosen_heads(choice.entry, folder, Measurements(paths.data_dir()))


def _loaded(
    settings: Settings,
    choice: PlannedModel,
    folder: Path,
    draft: Path | None,
    replan: Callable[[int], Plan],
    progress: Progress,
) -> tuple[Engine, Tokenizer]:
    from core.assembly.engines import build_engine
    from core.assembly.ranked import build_ranked
    from core.assembly.rates import keep_rates
    from core.hardware.measured import Measurements
    from core.text.tokenizer import require_same_tokens

    with ThreadPoolExecutor(1) as beside:  # its imports take a core, the weights the others
        loading = beside.submit(_tokenizer, choice.entry, folder)
        build = build_ranked if choice.plan.devices else build_engine
        engine = build(choice.plan, settings, folder, draft_dir=draft, progress=progress, replan=replan)
        tokenizer = loading.result()
    keep_rates(engine.model.backend, engine.plan, Measurements(paths.data_dir()))
    if draft is not None and choice.draft.role != "assistant":  # whose tokens are the model's by its make
        require_same_tokens(folder, draft)
    return engine, tokenizer


def _tokenizer(entry: CatalogueEntry, folder: Path) -> Tokenizer:
    """With its chat template run already: one that fails is told before anything is asked."""
    from core.model.store.untrusted import written_safely
    from core.text.chat_template import pieces_of
    from core.text.tokenizer import Tokenizer

    # the embedded model's is known by its checksum
    written = pieces_of if entry.embedded else written_safely(entry.name)
    tokenizer = Tokenizer.load(folder, frame=entry.frame, written=written)
    tokenizer.frame("")
    return tokenizer
