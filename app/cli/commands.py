"""Commands that do not answer: extract, doctor, plan, snapshots, tune, train-draft, serve and app.

What needs torch or gradio is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.terminal import read_book, say, status
from core import paths
from core.config import Settings
from core.text.words import translated as _

if TYPE_CHECKING:
    from core.hardware.facts import Hardware


def extract(given: argparse.Namespace, settings: Settings) -> int:
    """What the program reads from a file."""
    from core.conversation.reading import book_chapters
    from core.documents.word_count import count_words

    book = read_book(given.file, given.password, ocr=given.ocr, whole_page=given.whole_page)
    if given.text:
        sys.stdout.write(book.text if book.text.endswith("\n") else book.text + "\n")
        return 0
    chapters = [
        {
            "title": " ".join(section.title.split()),
            "words": count_words(book.text[section.start : section.end]),
        }
        for section in book_chapters(book)
    ]
    facts = {
        "title": book.title,
        "author": book.author,
        "format": book.format,
        "words": book.words,
        "chapters": chapters,
        "warnings": list(book.warnings),
    }
    say(json.dumps(facts, ensure_ascii=False) if given.json else _as_text(facts))
    return 0


def _as_text(facts: dict[str, Any]) -> str:
    title = facts["title"] or _("Untitled")
    if facts["author"]:
        title = _("{title}, by {author}").format(title=title, author=facts["author"])
    size = _("{format}, {words:,} words, {chapters} chapters")
    lines = [title, size.format(**{**facts, "chapters": len(facts["chapters"])}), ""]
    for number, chapter in enumerate(facts["chapters"], 1):
        words = _("({words:,} words)").format(words=chapter["words"])
        name = chapter["title"] or _("Untitled")
        lines.append(f"{number:>4}  {name}  {words}")
    if facts["warnings"]:
        lines.append("")
    lines += [_("Note: {warning}").format(warning=warning) for warning in facts["warnings"]]
    return "\n".join(lines)


def doctor(given: argparse.Namespace, settings: Settings) -> int:
    """The health report. A problem it finds is its result, not an error."""
    from app.host.logs import folder
    from core.hardware.measured import Measurements
    from core.hardware.probe import probe
    from core.model.store.fetch import is_downloaded
    from core.planning.doctor import doctor_report, format_doctor
    from core.planning.stored_facts import known_in

    machine = probe(paths.data_dir(), again=given.measure, retry_kernels=given.retry)
    report = doctor_report(machine, settings, is_downloaded=is_downloaded, known=known_in(paths.data_dir()))
    report["snapshots"] = _snapshot_facts(settings)
    report["measured"] = Measurements(paths.data_dir()).said()
    report["log"] = str(folder())
    if not given.json:
        say(format_doctor(report))
    if given.gpu:
        report["tried"], report["verdict"] = _tried(machine, settings, tell=not given.json)
    if given.json:
        say(json.dumps(report, default=_plain))
    return 0


def _tried(machine: Hardware, settings: Settings, *, tell: bool) -> tuple[list[dict[str, Any]], str]:
    """What works on the card, told line by line, and the verdict; on the CPU where there is none."""
    from core.selftest.device import check_device, devices, format_findings, verdict

    if tell:
        say("\n" + _("Tried"))
    found = []
    for one in check_device(*devices(machine, settings)):
        found.append(one)
        if tell:
            say(format_findings([one]))
    if tell:
        say("\n" + verdict(found))
    return [one.to_json() for one in found], verdict(found)


def show_plan(given: argparse.Namespace, settings: Settings) -> int:
    """The plan for this machine, or for one with other parts."""
    from core.model.store.catalogue import find
    from core.model.store.fetch import is_downloaded
    from core.planning.offers import choose_model, plan_model
    from core.planning.stored_facts import known_in
    from core.planning.wording import format_plan

    machine, settings = imagined_machine(given), imagined_settings(given, settings)
    known = known_in(paths.data_dir())
    if settings.model is not None:
        made = plan_model(machine, settings, find(settings.model), known=known).plan
    else:
        made = choose_model(machine, settings, is_downloaded=is_downloaded, known=known).plan
    say(json.dumps(made.to_json(), default=_plain) if given.json else format_plan(made))
    return 0


def imagined_machine(given: argparse.Namespace) -> Hardware:
    """This machine, with the parts exchanged that the options of `plan` and `models` name."""
    from core.hardware.gpus import imagine
    from core.hardware.probe import probe

    imagined = (given.gpu, given.gpus, given.vram, given.ram, given.pcie, given.os)
    other = any(value is not None for value in imagined)
    return imagine(
        probe(paths.data_dir(), measure=not other),
        gpu=given.gpu,
        cards=given.gpus,
        vram_gib=given.vram,
        ram_gib=given.ram,
        pcie_gb_per_s=given.pcie,
        system=given.os,
    )


def imagined_settings(given: argparse.Namespace, settings: Settings) -> Settings:
    """The settings, and a model divided among all cards of a machine that was imagined with several."""
    if (given.gpus or 1) < 2 or settings.devices is not None:
        return settings
    return replace(settings, devices=tuple(range(given.gpus)))


def snapshots(given: argparse.Namespace, settings: Settings) -> int:
    """What is kept of books that were read, or the end of it."""
    from core.cache.disk import SnapshotFolder
    from core.planning.wording import snapshot_line

    if given.action == "clear":
        SnapshotFolder(paths.subdir("snapshots")).clear()
    facts = _snapshot_facts(settings)
    say(json.dumps(facts) if given.json else snapshot_line(facts))
    return 0


def _snapshot_facts(settings: Settings) -> dict[str, Any]:
    from core.cache.disk import SnapshotFolder, quota_bytes

    folder = paths.subdir("snapshots")
    return {
        "folder": str(folder),
        **asdict(SnapshotFolder(folder).usage()),
        "quota_bytes": quota_bytes(settings.snapshot_quota_gb, folder),
    }


def tune_model(given: argparse.Namespace, settings: Settings) -> int:
    """Lengths of speculation that are faster on this machine than those of the plan, if there are any."""
    from core.backend.cpu.threads import bound_spinning

    bound_spinning()
    from core.tuning.run_tuning import report_text, tuning_json
    from core.tuning.run_tuning import run_tuning as tune_here

    try:
        done = tune_here(
            settings, report=status, books=[Path(path).expanduser() for path in given.book or ()]
        )
    finally:
        status("")
    say(json.dumps(tuning_json(done), default=_plain) if given.json else report_text(done))
    return 0


def train_draft(given: argparse.Namespace, settings: Settings) -> int:
    """A draft model for another model, trained on the user's books. Stopped, it goes on when it is started
    again.
    """
    from core.conversation.reading import ReadingStyle
    from core.hardware.probe import probe
    from core.model.store.catalogue import EMBEDDED, find
    from core.model.store.fetch import model_folder
    from core.planning.fitting import site_of
    from core.training.recipe import Recipe
    from core.training.train import site, train

    entry = find(settings.model or EMBEDDED)
    chosen = {
        name: getattr(given, name)
        for name in ("tokens", "epochs", "layers", "head_tokens")
        if getattr(given, name) is not None
    }
    recipe = Recipe(target=entry.name, seed=settings.seed or 0, **chosen)
    where = site_of(probe(paths.data_dir(), measure=False), settings)
    try:
        folder = train(
            recipe,
            model_folder(entry, status),
            [Path(path).expanduser() for path in given.data],
            ReadingStyle.from_record(entry.reading),
            out=Path(given.out).expanduser(),
            site=site(where.device, where.computes, threads=where.threads),
            report=status,
            start=Path(given.start).expanduser() if given.start else None,
        )
    finally:
        status("")
    trained = (folder / "model.safetensors").is_file()
    words = _(
        "The target has read and written; {folder} holds no draft yet. Start again with --epochs to train "
        "one."
    )
    if trained:
        words = _("The draft model is in {folder}. Use it by draft_model: {folder} in config.yaml.")
    say(words.format(folder=folder))
    return 0


def start_server(given: argparse.Namespace, settings: Settings) -> int:
    """The app, without opening a browser."""
    from app.server.main import run_app

    return run_app(settings, open_browser=False, preferences=given.preferences)


def new_api_key(given: argparse.Namespace, settings: Settings) -> int:
    """A new key for other programs, shown once."""
    from app.server.main import data_folder_key

    sys.stdout.write(data_folder_key().renew() + "\n")
    return 0


def open_app(given: argparse.Namespace, settings: Settings) -> int:
    """The app, opened in the browser unless the settings say otherwise."""
    from app.server.main import run_app

    files = [str(Path(file).expanduser().absolute()) for file in given.file]
    return run_app(settings, open_browser=settings.open_browser, preferences=given.preferences, files=files)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
