"""The sample books: what is committed is what the sources say, as a reader and as core.documents see it."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pypdfium2
import pytest
from lxml import etree

from core.documents import read_document

ASSETS = Path(__file__).resolve().parent.parent / "assets"
SOURCES = sorted((ASSETS / "samples").glob("*.md"))
FACTS = {
    book["slug"]: book
    for book in json.loads((ASSETS / "samples" / "facts.json").read_text(encoding="utf-8"))["books"]
}
XHTML = "{http://www.w3.org/1999/xhtml}"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ASSETS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


builder = _load("build_samples")


@pytest.fixture(scope="module", params=SOURCES, ids=lambda path: path.stem)
def book(request: pytest.FixtureRequest):
    """Each sample, parsed from its source."""
    return builder.read_source(request.param)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _chapter_words(book) -> list[list[str]]:
    return [
        _words(" ".join(builder.plain(paragraph) for paragraph in chapter.paragraphs))
        for chapter in book.chapters
    ]


def _epub_entries(archive: Path | bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def _pdf_chapters(pdf: Path | bytes) -> list[tuple[str, list[str]]]:
    """Outline titles and the words between them, without the printed page numbers."""
    document = pypdfium2.PdfDocument(pdf)
    starts = [(entry.get_title(), entry.get_dest().get_index()) for entry in document.get_toc()]
    pages = [
        re.sub(r"\n\d+\s*$", "", page.get_textpage().get_text_bounded().strip().replace("\r", ""))
        for page in document
    ]
    ends = [page for _, page in starts[1:]] + [len(pages)]
    return [
        (title, _words("\n".join(pages[first:end]))) for (title, first), end in zip(starts, ends, strict=True)
    ]


def test_epub_holds_the_source(book):
    """A source edited without a rebuild, or a paragraph lost by the build."""
    entries = _epub_entries(ASSETS / "samples" / f"{book.slug}.epub")
    pages = [etree.fromstring(content) for name, content in sorted(entries.items()) if "/chapter-" in name]
    assert [page.findtext(f".//{XHTML}h1") for page in pages] == [chapter.title for chapter in book.chapters]
    texts = [" ".join("".join(p.itertext()) for p in page.iter(f"{XHTML}p")) for page in pages]
    assert [_words(text) for text in texts] == _chapter_words(book)


def test_pdf_holds_the_source(book):
    """The same for the PDF: outline titles, and every chapter's words between them."""
    chapters = _pdf_chapters(ASSETS / "samples" / f"{book.slug}.pdf")
    assert [title for title, _ in chapters] == [chapter.title for chapter in book.chapters]
    for number, ((title, words), truth) in enumerate(
        zip(chapters, _chapter_words(book), strict=True), start=1
    ):
        assert words == [str(number), *_words(title), *truth], title


def test_epub_is_well_formed_for_strict_readers(book):
    """Stores refuse an EPUB whose mimetype is not first and uncompressed, or whose navigation points
    nowhere.
    """
    with zipfile.ZipFile(ASSETS / "samples" / f"{book.slug}.epub") as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        nav = etree.fromstring(archive.read("EPUB/nav.xhtml"))
        targets = [link.get("href") for link in nav.iter(f"{XHTML}a")]
        names = archive.namelist()
    assert len([target for target in targets if "chapter-" in target]) == len(book.chapters)
    assert all(f"EPUB/{target}" in names for target in targets)


def test_build_repeats_itself_and_matches_what_is_committed(book, tmp_path):
    """A build that depends on the clock, or a committed file from another source. The picture may vary by
    renderer.
    """
    first = {
        path.suffix: path.read_bytes()
        for path in builder.build(ASSETS / "samples" / f"{book.slug}.md", tmp_path)
    }
    again = {
        path.suffix: path.read_bytes()
        for path in builder.build(ASSETS / "samples" / f"{book.slug}.md", tmp_path)
    }
    assert first == again
    built, kept = _epub_entries(first[".epub"]), _epub_entries(ASSETS / "samples" / f"{book.slug}.epub")
    assert built.keys() == kept.keys()
    words_built, words_kept = (
        {n: _words(c.decode()) for n, c in e.items() if not n.endswith(".png")} for e in (built, kept)
    )
    assert words_built == words_kept
    assert _pdf_chapters(first[".pdf"]) == _pdf_chapters(ASSETS / "samples" / f"{book.slug}.pdf")


def test_rights_are_stated_in_both_files(book):
    """A sample that is passed on must carry its CC0 notice."""
    entries = _epub_entries(ASSETS / "samples" / f"{book.slug}.epub")
    assert b"CC0" in entries["EPUB/content.opf"] and b"creativecommons.org" in entries["EPUB/title.xhtml"]
    notice = (
        pypdfium2.PdfDocument(ASSETS / "samples" / f"{book.slug}.pdf")[1].get_textpage().get_text_bounded()
    )
    assert "CC0" in notice


def test_facts_are_in_the_chapters_they_name(book):
    """A question whose evidence was edited away would blame the model for our mistake."""
    facts = FACTS[book.slug]
    chapters = {chapter.title: " ".join(chapter.paragraphs).replace("*", "") for chapter in book.chapters}
    assert facts["chapters"] == len(chapters)
    whole = list(chapters.values())
    assert whole[0].startswith(facts["first_sentence"]) and whole[-1].endswith(facts["last_sentence"])
    assert {fact["position"] for fact in facts["facts"]} == {"beginning", "middle", "end"}
    for fact in facts["facts"]:
        assert fact["evidence"] in chapters[builder.typographic(fact["where"])], fact["question"]
        assert all(
            re.search(keyword, fact["answer"], re.IGNORECASE) for keyword in fact["answer_keywords"]
        ), fact["question"]
    for keyword in facts["summary_keywords"]:
        assert re.search(keyword, " ".join(whole), re.IGNORECASE), keyword


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ('"It\'s," said I, "the clock."', "“It’s,” said I, “the clock.”"),
        ("the flood of '97", "the flood of ’97"),
        ("*\"Stress\"* and ('so')", "*“Stress”* and (‘so’)"),
    ],
)
def test_typographic_quotes(typed, expected):
    """Opening and closing marks told apart; an apostrophe before a year is not an opening mark."""
    assert builder.typographic(typed) == expected


@pytest.mark.parametrize("suffix", ["epub", "pdf"])
def test_the_reader_gives_back_the_source(book, suffix):
    """Our own reader must find title, author, every chapter and every word of it, and no page number."""
    read = read_document(ASSETS / "samples" / f"{book.slug}.{suffix}")
    assert (read.title, read.author, read.format, read.warnings) == (
        book.title,
        book.meta["author"],
        suffix,
        (),
    )
    assert [section.title for section in read.chapters] == [chapter.title for chapter in book.chapters]
    for section, truth in zip(read.chapters, _chapter_words(book), strict=True):
        words = _words(read.text[section.start : section.end])
        assert words[-len(truth) :] == truth, section.title
        # the PDF numbers its chapters
        before = [word for word in words[: -len(truth)] if not word.isdigit()]
        assert before == _words(section.title), section.title
