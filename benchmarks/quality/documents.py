"""Opens every file of the test data as the app does and says which ones are not read as they should be.

    python -m benchmarks.documents [--data FOLDER]
    python -m benchmarks.documents --measure [--data FOLDER] [--save documents]

The first compares with what the folder expects (tests/support/document_expectations.py) and prints files,
right, wrong and why. The second measures: seconds, and how many words differ from the truth after a trip
through print. It typesets EPUBs of the test data into PDFs in several styles (tests/support/typeset.py), so
the truth is known to the word. Both need the test requirements and the data (TRIFORCE_TEST_DATA, else
../shared/data beside the repository).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
from benchmarks.lib.results import Table, save_result
from benchmarks.lib.wer import word_error
from core.documents import Document, read_document, read_safely
from tests.support.document_expectations import FOLDERS, expectations, wrong
from tests.support.typeset import Style, annotated, typeset

WIDE = Style(columns=2, width=595, height=842)
STYLES = {
    "one column, hyphens, running heads": Style(),
    "footnotes": Style(notes_every=4),
    "two columns": WIDE,
    "two columns, drawn row by row": replace(WIDE, row_by_row=True),
    "drop capitals": Style(drop_capitals=True),
    "ligatures": Style(ligatures=True),
}
LONG = Style(notes_every=9, size=11.5, leading=14.5)  # a long novel in this style has over 650 pages
THICK_WORDS = 900_000
Chapters = list[tuple[str, list[str]]]


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """What opening one file took. `seconds` and `child_cpu_s` through the child process, as the app does it;
    `cpu_s` in this process.
    """

    name: str
    pages: int
    words: int
    chapters: int
    seconds: float
    child_cpu_s: float
    cpu_s: float


def opening(name: str, path: Path) -> OpenedFile:
    """Open the file both ways."""
    started, before = time.perf_counter(), _children_s()
    document = read_safely(path)
    seconds, child_cpu_s = time.perf_counter() - started, _children_s() - before
    cpu = time.process_time()
    read_document(path)
    return OpenedFile(
        name,
        len(document.page_starts),
        document.words,
        len(document.chapters),
        seconds,
        child_cpu_s,
        time.process_time() - cpu,
    )


def _children_s() -> float:
    """The computing that ended child processes did."""
    times = os.times()
    return times.children_user + times.children_system


def chapters_of(document: Document) -> Chapters:
    """Titles and paragraphs, as a printer would get them."""
    result = []
    for section in document.chapters:
        blocks = document.text[section.start : section.end].strip().split("\n\n")
        result.append((section.title, [" ".join(block.split()) for block in blocks[1:]]))
    return result


def printed(book: Document, chapters: Chapters, style: Style, path: Path) -> int:
    """Typeset the book into `path`; the number of pages."""
    number, marked = 1, []
    for title, paragraphs in chapters:
        paragraphs, number = annotated(paragraphs, style.notes_every, number)
        marked.append((title, paragraphs))
    data, pages = typeset(book.title, book.author, marked, style)
    path.write_bytes(data)
    return pages


def repeated_chapters(chapters: Chapters, words: int) -> Chapters:
    """The chapters again and again, numbered, until there are so many words."""
    result: Chapters = []
    while sum(len(part.split()) for _title, parts in result for part in parts) < words:
        volume = len(result) // len(chapters) + 1
        result += [(f"{title} ({volume})", parts) for title, parts in chapters]
    return result


def bound(title: str, chapters: Chapters, path: Path) -> None:
    """The chapters as an EPUB, a file each, with a table of contents."""
    numbers = range(len(chapters))
    space = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
    page = f"<html {space}><body>{{}}</body></html>"
    kind = 'media-type="application/xhtml+xml"'
    spine = "".join(f'<itemref idref="i{n}"/>' for n in numbers)
    items = "".join(f'<item id="i{n}" href="{n}.xhtml" {kind}/>' for n in numbers)
    links = "".join(f'<li><a href="{n}.xhtml">{escape(chapters[n][0])}</a></li>' for n in numbers)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></metadata>'
        f'<manifest>{items}<item id="nav" href="nav.xhtml" properties="nav" {kind}/></manifest>'
        f"<spine>{spine}</spine></package>"
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("book.opf", package)
        archive.writestr("nav.xhtml", page.format(f'<nav epub:type="toc"><ol>{links}</ol></nav>'))
        for number, (name, parts) in enumerate(chapters):
            body = "".join(f"<p>{escape(part)}</p>" for part in parts)
            archive.writestr(f"{number}.xhtml", page.format(f"<h2>{escape(name)}</h2>{body}"))


def error_after_print(chapters: Chapters, path: Path) -> tuple[float, int]:
    """(share of words that differ, chapters found) when the PDF is read back. Footnotes are left aside."""
    document = read_document(path)
    errors = words = 0.0
    for (title, paragraphs), section in zip(chapters, document.chapters, strict=False):
        truth = f"{title} {' '.join(paragraphs)}"
        blocks = document.text[section.start : section.end].split("\n\n")
        rate, _ = word_error(truth, "\n".join(block for block in blocks if not block.startswith("[")))
        errors += rate * len(truth.split())
        words += len(truth.split())
    return errors / words, len(document.chapters)


def measure_all(data: Path, folder: Path) -> tuple[list[Table], dict]:
    """All tables and the raw figures."""
    novel = read_document(data / "books" / "the-war-of-the-worlds.epub")
    chapters = chapters_of(novel)
    quality = []
    for name, style in STYLES.items():
        pages = printed(novel, chapters, style, folder / "printed.pdf")
        rate, found = error_after_print(chapters, folder / "printed.pdf")
        quality.append(
            {
                "style": name,
                "pages": pages,
                "chapters_found": found,
                "chapters": len(chapters),
                "word_error": rate,
            }
        )
        print(
            f"{name:38} {pages:4} pages  {found}/{len(chapters)} chapters  {100 * rate:.3f} % of words differ"
        )
    long_book = read_document(data / "books" / "moby-dick.epub")
    printed(long_book, chapters_of(long_book), LONG, folder / "long.pdf")
    thick = repeated_chapters(chapters_of(long_book), THICK_WORDS)
    bound("A thick book", thick, folder / "thick.epub")
    printed(long_book, thick[: len(thick) * 2 // 5], LONG, folder / "thick.pdf")
    files = {
        "A thick EPUB": folder / "thick.epub",
        "A thick typeset PDF": folder / "thick.pdf",
        "Moby Dick, typeset PDF": folder / "long.pdf",
        "Moby Dick, EPUB": data / "books" / "moby-dick.epub",
        "Viking Tales, PDF with pictures": data / "books" / "viking-tales.pdf",
        "The Time Machine, TXT": data / "books" / "the-time-machine.txt",
    }
    openings = [opening(name, path) for name, path in files.items()]
    for item in openings:
        print(
            f"{item.name:38} {item.pages:4} pages  {item.words:7,} words  {item.seconds:6.2f} s  "
            f"({item.child_cpu_s:.2f} s of one core)"
        )
    tables = [
        Table(
            "Opening a book",
            ("File", "Pages", "Words", "Chapters", "CPU seconds", "of these the reader"),
            tuple((o.name, o.pages or None, o.words, o.chapters, o.child_cpu_s, o.cpu_s) for o in openings),
            (f"CPU seconds: of the app's own child process, start included{_busy()}.",),
        ),
        Table(
            "Words that differ after a trip through print",
            ("Typeset as", "Pages", "Chapters found", "Words wrong, %"),
            tuple(
                (q["style"], q["pages"], f"{q['chapters_found']} of {q['chapters']}", 100 * q["word_error"])
                for q in quality
            ),
            (
                f"{novel.title}, {sum(len(' '.join(p).split()) for _, p in chapters):,} words, set as PDF "
                "and read back.",
            ),
        ),
    ]
    return tables, {"openings": [asdict(item) for item in openings], "quality": quality}


def _busy() -> str:
    """How busy the machine was: wall-clock figures mean little without it."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f", with {os.getloadavg()[0]:.0f} programs running on {os.cpu_count()} cores"


def check_documents(data: Path, names: list[str]) -> dict:
    """Open the files of every folder, or those with one of `names` in their name; print what is wrong."""
    files, failed = 0, {}
    for folder in (data / name for name in FOLDERS):
        for name, wanted in expectations(folder).items():
            if names and not any(part in name for part in names):
                continue
            files += 1
            started = time.perf_counter()
            reasons = wrong(folder / name, wanted)
            print(f"{'WRONG' if reasons else 'right'}  {time.perf_counter() - started:5.1f} s  {name}")
            for reason in reasons:
                print(f"       {reason[:300]}")
            failed |= {f"{folder.name}/{name}": reasons} if reasons else {}
    print(f"{files} files, {files - len(failed)} right, {len(failed)} wrong")
    return {"files": files, "right": files - len(failed), "wrong": failed}


def main() -> None:
    """Check, or measure and store; the last line is JSON. Ends with 1 when a file is read wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TRIFORCE_TEST_DATA") or REPO.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="files whose name holds a PART")
    parser.add_argument("--measure", action="store_true", help="time and quality instead")
    parser.add_argument("--save", metavar="NAME", help="measure, and write benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    if not (arguments.measure or arguments.save):
        result = check_documents(arguments.data, arguments.only)
        print(json.dumps(result))
        sys.exit(1 if result["wrong"] else 0)
    with tempfile.TemporaryDirectory() as folder:
        tables, details = measure_all(arguments.data, Path(folder))
    if arguments.save:
        save_result(arguments.save, tables, details)
    print(json.dumps(details))


if __name__ == "__main__":
    main()
