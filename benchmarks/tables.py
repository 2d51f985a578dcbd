"""Writes the generated sections of the pages: settings from config.yaml, the annotated tree, and what
benchmarks/results holds.

    python benchmarks/tables.py            rewrite them
    python benchmarks/tables.py --check    exit 1 and name the sections that are out of date

A section lies between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. Nothing is measured here: a figure
without a result file is on no page.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
# started as a file: the repository is on the path, and not this folder
if not __package__:
    sys.path[0] = str(REPO)

from benchmarks import measured  # noqa: E402 (the path above makes the repository importable)
from core.config import RULES  # noqa: E402

RESULTS = REPO / "benchmarks" / "results"

# --- settings ---


def settings_table(config: str) -> str:
    """One Markdown table per group of config.yaml: key, default, allowed values and the comment above the
    key.
    """
    lines: list[str] = []
    comment: list[str] = []
    explained = ""
    for line in config.splitlines():
        if group := re.fullmatch(r"# -{2,} (.+?) -{2,}", line):
            lines += [
                "",
                f"**{group[1]}**",
                "",
                "| Key | Default | Allowed | What it does |",
                "|---|---|---|---|",
            ]
            comment = []
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif match := re.fullmatch(r"(\w+): (.+)", line):
            explained, comment = " ".join(comment) or explained, []
            lines.append(_settings_row(match[1], match[2], explained))
        elif not line:
            comment = []
    return "\n".join(lines).strip()


def _settings_row(key: str, default: str, explained: str) -> str:
    rule = RULES[key]
    allowed = f"auto or {rule.allowed}" if rule.auto else rule.allowed
    return f"| `{key}` | `{default}` | {_cell(allowed)} | {_cell(explained)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- tree ---

FOLDER_NOTES = {
    ".ci": "what continuous integration runs",
    "app": "the only package that imports Gradio",
    "app/assets": "style sheets and scripts of the page",
    "assets": "icons, sample books and a draft model, with the scripts that build them",
    "assets/css": "the style of the page: colours, layout, conversation, panel",
    "assets/fonts": "the typeface Literata, with its licence",
    "assets/js": "what the page does by itself: dropping files, themes, keys",
    "assets/icons": "the mark as SVG, PNG and ICO, built by build_icons.py",
    "assets/models": "draft models that come with the program",
    "assets/models/smollm2-135m-draft": "drafts for the embedded model: weights, card, curves of its training",
    "assets/samples": "sample books: Markdown sources, built EPUB, PDF and cover, and questions about them",
    "benchmarks": "measures, prints and stores results",
    "benchmarks/results": "measured figures as JSON, with machine, versions and date",
    "core": "the runtime: no Gradio, no printing",
    "docs": "for users and engineers",
    "docs/decisions": "one page per decision",
    "docs/images": "drawings for these pages",
    "docs/screenshots": "the app, taken by take.py from the real thing",
    "installer": "makes the environment; thin starters for each system",
    "tests": "mirror core and app; data of their own or skipped with a reason",
    "tests/e2e": "the app in a real browser",
}
FILE_NOTES = {
    ".ci/run": "environment, linter, tests: what must pass on every change",
    ".gitattributes": "line ends and binary files",
    ".gitignore": "what git leaves out",
    "LICENSE": "Apache License 2.0",
    "README.md": "this page",
    "requirements.txt": "what the app needs",
    "requirements-test.txt": "what the tests need on top",
    "requirements-ocr.txt": "optional: what reading scanned pages needs",
    "pyproject.toml": "project facts, linter and test settings",
    "config.yaml": "the user's settings, every key explained",
}
COLLAPSED = (
    "assets/fonts",
    "assets/icons",
    "assets/models",
    "assets/samples",
    "benchmarks/results",
    "docs/images",
    "docs/screenshots",
)


def tracked_files() -> list[str]:
    """Paths of all files that belong to the project, sorted, folders first within each level."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return sorted(listed, key=_folders_last)


def _folders_last(path: str) -> tuple[tuple[int, str], ...]:
    *folders, name = path.split("/")
    return (*((1, folder) for folder in folders), (0, name))


def tree(paths: list[str]) -> str:
    """An annotated tree: folders from FOLDER_NOTES or their package's docstring, files from what they say of
    themselves.
    """
    rows: list[tuple[str, str]] = []
    shown: set[str] = set()
    for path in paths:
        folders = path.split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            folder = "/".join(folders[:depth])
            if folder not in shown and not _inside_collapsed(folder):
                shown.add(folder)
                rows.append(("  " * (depth - 1) + folders[depth - 1] + "/", _folder_note(folder)))
        if not path.endswith("__init__.py") and not _inside_collapsed(path):
            rows.append(("  " * len(folders) + path.split("/")[-1], _file_note(path)))
    width = max(len(name) for name, _ in rows) + 2
    return "```\n" + "\n".join(f"{name:<{width}}{note}".rstrip() for name, note in rows) + "\n```"


def _inside_collapsed(path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in COLLAPSED)


def _folder_note(folder: str) -> str:
    package = REPO / folder / "__init__.py"
    return FOLDER_NOTES.get(folder) or (_docstring(package) if package.exists() else "")


def _file_note(path: str) -> str:
    if path in FILE_NOTES:
        return FILE_NOTES[path]
    file = REPO / path
    if file.suffix == ".py":
        return _docstring(file)
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".md":
        heading = re.search(r"^# (.+)$", text, re.MULTILINE)
        return heading[1] if heading else ""
    remark = re.search(r"^(?:#|//|rem|/\*|<#)(?!!) *(\w.+?)(?: \*/)?$", text, re.MULTILINE)
    return _first_sentence(remark[1]) if remark else ""


def _docstring(file: Path) -> str:
    return _first_sentence(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")


def _first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[\w)`\"])\. ", paragraph)[0].rstrip(".")


# --- the pages ---

PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"headlines": lambda: measured.headlines(RESULTS), "tree": lambda: tree(tracked_files())},
    "docs/measured.md": {"measured": lambda: measured.section(RESULTS)},
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
            print(f"{section} is out of date; run python benchmarks/tables.py")
        return bool(out_of_date)
    for page, sections in PAGES.items():
        text = (REPO / page).read_text(encoding="utf-8")
        for name, content in sections.items():
            text = filled(text, name, content())
        (REPO / page).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
