"""Damaged files of every kind: whatever happens, the reader answers with a Document or with one sentence."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.documents import Document, Limits, read_document, read_safely
from core.errors import DocumentError
from tests.documents.minimal_pdf import pdf_of

SEEDS = {
    "txt": "books/the-time-machine.txt", "epub": "hostile/epub-malformed-xhtml.epub", "epub3": "hostile/epub-path-traversal.epub",
    "xxe": "hostile/epub-xxe.epub", "pdf": "hostile/pdf-two-columns.pdf", "locked": "hostile/pdf-open-password.pdf",
    "scan": "hostile/pdf-empty-user-password-rc4.pdf", "docx": "hostile/docx-renamed.pdf", "utf16": "hostile/txt-utf16le-bom.txt",
}
Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[:rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 10, 200))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def lose(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 2000):]


def repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    piece = data[start:start + rng.randrange(1, 400)]
    return data[:start] + piece * rng.randrange(2, 200) + data[start:]


def numbers(data: bytes, rng: random.Random) -> bytes:
    """Digits into other digits: lengths, offsets and counts that lie."""
    changed = bytearray(data)
    places = [index for index, byte in enumerate(data) if 48 <= byte <= 57]
    for index in rng.sample(places, min(len(places), rng.choice((1, 5, 50)))):
        changed[index] = 48 + rng.randrange(10)
    return bytes(changed)


def nest(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + rng.choice((b"<div>", b"<<", b"[", b"(", b"<b><i>", b"&#x", b"<!--")) * 5000 + data[start:]


DAMAGES: tuple[Damage, ...] = (cut, flip, lose, repeat, numbers, nest)


def zip_repacked(data: bytes, rng: random.Random, damage: Damage) -> bytes:
    """Damage inside the archive: the container stays whole, so that the parsers behind it meet the damage."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        names = [name for name in source.namelist() if source.getinfo(name).file_size > 8]
        victim = rng.choice(names)
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, damage(content, rng) if name == victim else content)
    return buffer.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    damage = rng.choice(DAMAGES)
    if data[:2] == b"PK" and rng.random() < 0.8:
        return zip_repacked(data, rng, damage)
    return damage(data, rng)


@pytest.mark.parametrize("kind", SEEDS)
def test_damaged_files_end_in_a_document_or_a_sentence(kind: str, shared_data: Path, tmp_path: Path):
    """In this process, so that a crash or an exception of another kind shows itself."""
    data = (shared_data / SEEDS[kind]).read_bytes()[:200_000]
    suffix = {"docx": ".docx"}.get(kind, Path(SEEDS[kind]).suffix)
    for seed in range(25):
        path = tmp_path / f"{kind}-{seed}{suffix}"
        path.write_bytes(damaged(data, random.Random(f"{kind}{seed}")))
        started = time.process_time()          # the machine may be busy with other things
        try:
            document = read_document(path)
            check(document)
        except DocumentError as error:
            assert str(error) and "\n" not in str(error)
        assert time.process_time() - started < 10, seed
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEDS)
def test_long_fuzz_through_the_child(kind: str, shared_data: Path, tmp_path: Path):
    """On demand: what a user would meet, crash of a parser included."""
    data = (shared_data / SEEDS[kind]).read_bytes()
    until = time.monotonic() + 60
    seed = 0
    while time.monotonic() < until:
        seed += 1
        path = tmp_path / f"{kind}{Path(SEEDS[kind]).suffix}"
        path.write_bytes(damaged(data, random.Random(f"long{kind}{seed}")))
        try:
            check(read_safely(path, limits=Limits(memory_bytes=1 << 30, time_s=30)))
        except DocumentError as error:
            assert "\n" not in str(error) and "its parser failed" not in str(error), seed


def check(document: Document) -> None:
    """Sections cover the text in order, pages are ordered and named."""
    assert document.sections and document.sections[0].start == 0 and document.sections[-1].end == len(document.text)
    for left, right in zip(document.sections, document.sections[1:], strict=False):
        assert left.end == right.start and left.start < left.end
    assert list(document.page_starts) == sorted(document.page_starts)
    assert len(document.page_labels) in (0, len(document.page_starts))
    assert not any(char in document.text for char in "\x00\ufffe\ud800")
    document.text.encode("utf-8")


@pytest.mark.parametrize("objects", [
    ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 3/Kids[2 0 R 2 0 R]>>"],
    ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 2000000000/Kids[]>>"],
    ["<</Type/Catalog/Pages 2 0 R/Outlines 3 0 R>>", "<</Type/Pages/Count 0/Kids[]>>",
     "<</First 4 0 R/Last 4 0 R>>", "<</Title(a)/Next 4 0 R/First 4 0 R/Parent 3 0 R>>"],
    ["<</Type/Catalog/Pages 1 0 R>>"],
    ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 1/Kids[3 0 R]>>",
     "<</Type/Page/Parent 2 0 R/MediaBox[0 0 1e30 1e30]/Contents 4 0 R>>", "<</Length 99999999>>stream\nBT ET\nendstream"],
], ids=["circular pages", "giant page count", "circular outline", "catalogue as pages", "absurd sizes"])
def test_absurd_page_trees_end_in_a_sentence(objects: list[str], tmp_path: Path):
    path = tmp_path / "absurd.pdf"
    path.write_bytes(pdf_of(objects))
    with pytest.raises(DocumentError) as caught:
        read_safely(path, limits=Limits(time_s=60, memory_bytes=1 << 30))
    assert "given up" not in str(caught.value)
