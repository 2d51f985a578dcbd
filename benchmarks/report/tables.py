"""Writes the generated sections of the pages: settings from config.yaml, the folders, what the planner offers
on graphics cards, and what benchmarks/results holds.

    python -m benchmarks.tables            rewrite them
    python -m benchmarks.tables --check    exit 1 and name the sections that are out of date

A section lies between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. Nothing is measured here: a figure
without a result file is on no page.
"""

from __future__ import annotations

import argparse
import bisect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Collection
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
from app.store.settings_docs import entries
from benchmarks.lib.results import Result, load_result
from benchmarks.report import measured
from benchmarks.report.isa_table import isa_table
from benchmarks.report.papers_table import papers_table
from benchmarks.report.plan_tables import FEW_BOOK_COLUMNS, book_table, kernel_table, kv_table, plan_row
from core.config import RULES, Settings
from core.hardware.facts import Hardware
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import spelt
from core.planning.offers import offers, plan_model
from core.planning.recommended import Offer, first_answer
from core.text.words import duration, size

RESULTS = REPO / "benchmarks" / "results"
PAGE_WIDTH = 126  # characters of a line

# --- settings ---


def settings_table(config: str) -> str:
    """One Markdown table per group of config.yaml: key, default, allowed values, comment."""
    lines: list[str] = []
    for group, keys in entries(config):
        lines += [
            "",
            f"**{group}**",
            "",
            "| Key | Default | Allowed | What it does |",
            "|---|---|---|---|",
            *(_settings_row(one.key, one.value, one.explained) for one in keys),
        ]
    return "\n".join(lines).strip()


def _settings_row(key: str, default: str, explained: str) -> str:
    return f"| `{key}` | `{default}` | {_cell(RULES[key].allowed)} | {_cell(explained)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- the first page ---

README_CONTEXTS = (8000, 16_000, 32_000)  # tokens; behind these the first page shows every peer
SPEED_RESULTS = {  # what stands above the table
    "peers": "",
    "peers-avx2": "Both held to AVX2, which is what most PCs have (llama.cpp built for it):",
}
SPEED_COLUMNS = {
    "prefill": "reading",
    "plain": "plain decoding",
    "TriForce": "TriForce, T 0",
    "TriForce, T 0.6": "TriForce, T 0.6",
    "TriForce, T 1": "TriForce, T 1",
}


def speed_table(results: Path) -> str:
    """Ours against each peer on a server's processor as it is, and on one that is held to AVX2."""
    found = {said: results / f"{name}.json" for name, said in SPEED_RESULTS.items()}
    parts = [
        part for said, file in found.items() if file.is_file() for part in (said, _speeds(load_result(file)))
    ]
    return "\n\n".join(part for part in parts if part) or measured.NOTHING


def _speeds(result: Result) -> str:
    """Ours against each peer behind README_CONTEXTS, and first the row of the shortest context it loses. What
    a peer does with another setting ("peer, setting") stands in measured.md alone.
    """
    (table,) = (table for table in result.tables if set(SPEED_COLUMNS) < set(table.columns))
    every = (dict(zip(table.columns, cells, strict=True)) for cells in table.rows)
    rows = [one for one in every if "," not in one["Peer"]]
    shortest = min(one["Context"] for one in rows)
    worst = min((one for one in rows if one["Context"] == shortest), key=lambda one: one["plain"])
    shown = [worst, *(one for one in rows if one["Context"] in README_CONTEXTS)]

    heading = ["Tokens before", "Beside", *SPEED_COLUMNS.values()]
    lines = [plan_row(heading), plan_row(["---:", "---", *("---:" for _ in SPEED_COLUMNS)])]
    for one in shown:
        ratios = (_ratio(one[name]) for name in SPEED_COLUMNS)
        lines.append(plan_row([f"{one['Context']:,}", one["Peer"], *ratios]))
    source = textwrap.fill(measured.provenance(result), PAGE_WIDTH, break_long_words=False)
    return "\n".join([*lines, "", f"<sub>{source}</sub>"])


def _ratio(value: float | None) -> str:
    """Two digits: more would promise what one run cannot keep."""
    return "–" if value is None else f"{value:.2g}"


PCS = (
    ("none, 8 GB RAM", {"ram_gib": 8}),
    ("none, 16 GB RAM", {"ram_gib": 16}),
    ("none, 32 GB RAM", {"ram_gib": 32}),
    ("6 GB, before the RTX 30 (RTX 2060), 16 GB RAM", {"gpu": "RTX 2060", "ram_gib": 16}),
    ("6 GB (RTX 4050 Laptop), 16 GB RAM", {"gpu": "RTX 4050 Laptop", "ram_gib": 16}),
    ("8 GB (RTX 4060)", {"gpu": "RTX 4060", "ram_gib": 32}),
    ("12 GB (RTX 4070)", {"gpu": "RTX 4070", "ram_gib": 32}),
    ("16 GB (RTX 4080)", {"gpu": "RTX 4080", "ram_gib": 32}),
    ("24 GB (RTX 4090)", {"gpu": "RTX 4090", "ram_gib": 64}),
    ("32 GB (RTX 5090)", {"gpu": "RTX 5090", "ram_gib": 64}),
)
PC_COLUMNS = (
    "Card",
    "Model",
    "Weights",
    "Context",
    "KV cache",
    "Stays on the card",
    "First answer",
    "Between tokens",
    "100,000 tokens read in",
)


def pc_table() -> str:
    """The model that is recommended for each of PCS, and what its plan expects."""
    lines = [plan_row(PC_COLUMNS), plan_row(["---"] * len(PC_COLUMNS))]
    for name, parts in PCS:
        machine = imagined_hardware(**parts)
        offer = next(offer for offer in offers(machine, Settings()) if offer.recommended)
        expected = offer.plan
        on_card = f"{expected.on_chip_layers} of {expected.layers} layers on the card"
        weights = expected.weights_format or f"{offer.entry.shape.code_bits} bits"
        first = duration(first_answer(expected).seconds)
        cells = (
            name,
            spelt(offer.entry.of or offer.entry.name),
            f"{weights}, {size(offer.entry.download_bytes)}",
            f"{expected.context_tokens:,}",
            on_card if expected.device == "cuda" else "RAM",
            _stays_on_card(machine, offer) if expected.device == "cuda" else "",
            first,
            f"{expected.expected_tbt_ms:.0f} ms",
            duration(expected.expected_book_s),
        )
        lines.append(plan_row(cells))
    return "\n".join(lines)


def _stays_on_card(machine: Hardware, offer: Offer) -> str:
    """The longest context, in steps of 1,024 tokens, whose KV cache lies on the card with the weights."""
    steps = range(1, offer.plan.context_tokens // 1024 + 1)
    longest = bisect.bisect_left(steps, True, key=lambda step: not _is_on_card(machine, offer, 1024 * step))
    return f"to {1024 * longest:,} tokens"


def _is_on_card(machine: Hardware, offer: Offer, tokens: int) -> bool:
    made = plan_model(machine, Settings(context_tokens=tokens), offer.entry).plan
    return made.on_chip_layers == made.layers


FOLDERS = {
    ".ci": "what must pass on every change",
    ".github": "the form for problems",
    "app": "the page and the command line; the only package that imports Gradio",
    "app/api": "the interface for other programs",
    "app/cli": "the command line",
    "app/desk": "what is done with books, questions and models, and what stands on the page; no HTML",
    "app/engine": "the engine's process, seen from the app",
    "app/host": "the computer: one instance, secrets, logs, sleep, windows",
    "app/mcp": "the books for assistants, over MCP",
    "app/models": "the models to choose from, and their files",
    "app/render": "text and conversations as HTML",
    "app/server": "the page's server, behind its guard",
    "app/store": "what is kept on disk",
    "app/templates": "the page's HTML",
    "app/web": "the page: values in, HTML out",
    "assets": "what comes with the program, and the scripts that build it",
    "assets/css": "the style of the page",
    "assets/fonts": "the typeface Literata, with its licence",
    "assets/icons": "the mark",
    "assets/js": "what the page does by itself: files dropped, keys, themes",
    "assets/locale": "words for people, to be translated",
    "assets/models": "the embedded model's adapter and its draft model",
    "assets/samples": "two sample books, and questions about them",
    "benchmarks": "programs that measure",
    "benchmarks/card": "the first minutes on a CUDA card: what works, how fast it is",
    "benchmarks/lib": "what the programs share",
    "benchmarks/quality": "acceptance, answers, summaries, formats, books",
    "benchmarks/report": "pages and tables made of what was measured",
    "benchmarks/results": "what they measured, as JSON",
    "benchmarks/soak": "whether anything grows that has no bound",
    "benchmarks/speed": "time and bandwidth, beside other programs",
    "core": "the runtime: no Gradio, no printing",
    "core/assembly": "puts backend, model, caches and decoder of a plan together",
    "core/backend": "the device: attention, products, memory, copies",
    "core/cache": "KV caches: full, offloaded, retrieval, streaming, on disk",
    "core/conversation": "what is read for a question, asked of the engine, shown to the reader",
    "core/decoding": "drafts, one rule that verifies them, the round",
    "core/documents": "any supported file to a Document",
    "core/evidence": "where in the book an answer comes from",
    "core/hardware": "what this machine is",
    "core/model": "the Llama family, its files, the catalogue, downloads",
    "core/planning": "what fits where and how fast it will be",
    "core/sandbox": "processes with limits for files and programs of others",
    "core/selftest": "what a device is tried with before it is trusted",
    "core/text": "tokens, prompts, the words of the program",
    "core/training": "trains a draft model",
    "core/tuning": "measures what speculation costs and yields here",
    "docs": "for users and engineers",
    "docs/decisions": "one page per decision",
    "docs/examples": "books summarised, for a look at what comes out",
    "docs/images": "drawings for these pages",
    "docs/screenshots": "the app, taken by take.py",
    "examples": "the runtime without the app",
    "installer": "makes the environment; starters for each system",
    "tests": "mirror core and app",
    "tools": "makes what is delivered: teaches the embedded model to read",
}
DEEP = ("app", "assets", "benchmarks", "core", "docs")  # folders whose own folders are in the tree


def tracked_folders() -> list[str]:
    """The project's folders, and those in DEEP, sorted."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True)
    found = {tuple(path.split("/")[:-1][:2]) for path in listed.stdout.splitlines()} - {()}
    tops = {folder[0] for folder in found}
    return sorted(tops | {"/".join(folder) for folder in found if folder[0] in DEEP})


def tree(folders: Collection[str]) -> str:
    """A line for each folder: its name, below the one it lies in, and what FOLDERS says of it."""
    assert set(folders) <= set(FOLDERS), f"no line in FOLDERS: {set(folders) - set(FOLDERS)}"
    names = ["  " * folder.count("/") + folder.split("/")[-1] + "/" for folder in folders]
    width = max(map(len, names)) + 2
    lines = [f"{name:<{width}}{FOLDERS[folder]}" for name, folder in zip(names, folders, strict=True)]
    return "```\n" + "\n".join(lines) + "\n```"


# --- the pages ---

PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "book": lambda: book_table(FEW_BOOK_COLUMNS),
        "speed": lambda: speed_table(RESULTS),
        "tree": lambda: tree(tracked_folders()),
    },
    "docs/measured.md": {
        "papers": papers_table,
        "isa": lambda: isa_table(RESULTS),
        "measured": lambda: measured.section(RESULTS),
    },
    "docs/models.md": {"pcs": pc_table, "book": book_table, "kv": kv_table, "kernels": kernel_table},
    "docs/settings.md": {
        "settings": lambda: settings_table((REPO / "config.yaml").read_text(encoding="utf-8"))
    },
}


def filled(text: str, name: str, content: str) -> str:
    """`text` with the section `name` replaced. A missing marker is our own mistake."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    assert text.count(begin) == text.count(end) == 1, f"the page needs exactly one {begin} and {end}"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def stale(names: Collection[str] = ()) -> list[str]:
    """The sections, of all or of `names`, that differ from what would be written: "page: section" each."""
    found = []
    for page, sections in PAGES.items():
        text = (REPO / page).read_text(encoding="utf-8")
        found += [
            f"{page}: {name}"
            for name, content in sections.items()
            if (not names or name in names) and filled(text, name, content()) != text
        ]
    return found


def main() -> int:
    """Rewrite or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        out_of_date = stale()
        for section in out_of_date:
            print(f"{section} is out of date; run python -m benchmarks.tables")
        return bool(out_of_date)
    for page, sections in PAGES.items():
        text = (REPO / page).read_text(encoding="utf-8")
        for name, content in sections.items():
            text = filled(text, name, content())
        (REPO / page).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
