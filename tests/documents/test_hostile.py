"""Every awkward file ends as its expectation says: the right text or one clear sentence, never a crash, a
hang or a leak.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.cli import parser
from core.documents import ReadingCancelled, read_safely
from core.errors import DocumentError, PasswordNeeded
from core.sandbox.process import Limits
from tests.support import document_expectations

FILES = (
    "pdf-open-password.pdf",
    "pdf-empty-user-password-rc4.pdf",
    "pdf-scan-no-text.pdf",
    "pdf-no-outline-ligatures.pdf",
    "pdf-two-columns.pdf",
    "pdf-broken-xref.pdf",
    "docx-renamed.pdf",
    "zero-bytes.epub",
    "epub-no-toc.epub",
    "epub-obfuscated-fonts.epub",
    "epub-malformed-xhtml.epub",
    "epub-is-a-jpeg.epub",
    "epub-path-traversal.epub",
    "epub-zip-bomb.epub",
    "epub-xxe.epub",
    "txt-utf16le-bom.txt",
    "txt-windows-1252.txt",
    "binary-renamed.txt",
)
HARD = (
    "epub-a-cover-image-named-chapters.epub",
    "epub-c-part-image-pages-nested.epub",
    "epub3-parts-chapters-with-intro-sections.epub",
    "pdf-outline-part-same-page.pdf",
    "pdf-rot-b-compensated.pdf",
    "pdf-rot-c-3-sideways-pages.pdf",
    "pdf-no-tounicode.pdf",
    "gdoc-no-tounicode.pdf",
    "pdf-two-columns-hyphenated.pdf",
    "docx-bold-manual-headings.docx",
    "zh-2-paras.txt",
    "txt-shiftjis-kokoro.txt",
    "txt-utf16le-nobom-russian.txt",
    "txt-crlf-72-noblank-indent.txt",
    "txt-formfeeds-pagenumbers.txt",
    "epub-hidden-svg-mathml-tables-br.epub",
    "mhtml-saved-page.mhtml",
    "book.fb2",
    "book.fb2.zip",
    "book-in-a.zip",
    "dracula.txt",
    "sherlock.txt",
)
BOOKS = ("moby-dick.epub", "the-time-machine.txt", "the-war-of-the-worlds.epub", "viking-tales.pdf")


@pytest.fixture(scope="session")
def expectations(shared_data: Path) -> dict[str, dict]:
    return document_expectations.expectations(shared_data / "hostile")


@pytest.mark.parametrize("name", FILES)
def test_hostile_file_behaves_as_expected(name: str, shared_data: Path, expectations: dict[str, dict]):
    assert document_expectations.wrong(shared_data / "hostile" / name, expectations[name]) == []


@pytest.mark.parametrize("name", HARD)
def test_hard_file_opens_whole(name: str, shared_data: Path):
    """Whole words and the chapters a reader would count, in books as people have them."""
    wanted = document_expectations.expectations(shared_data / "hard")[name]
    assert document_expectations.wrong(shared_data / "hard" / name, wanted) == []


@pytest.mark.parametrize(
    "name", [*(f"hostile/{name}" for name in FILES), *(f"books/{name}" for name in BOOKS)]
)
@pytest.mark.wide
def test_extract_says_of_every_shared_file_what_it_is(
    name: str, shared_data: Path, expectations: dict[str, dict], capsys: pytest.CaptureFixture[str]
):
    """`extract FILE --json`, as a person types it: facts and exit code 0, or one sentence and exit code 1."""
    wanted = expectations.get(Path(name).name, {"expect": "text"})
    status = parser.main(["extract", str(shared_data / name), "--json"])
    said = capsys.readouterr()
    if wanted["expect"] == "error":
        assert (
            status == 1
            and said.out == ""
            and re.search(wanted["error_regex"], said.err, re.I)
            and said.err.count("\n") == 1
        )
    else:
        facts = json.loads(said.out)
        assert status == 0 and facts["words"] > 0 and facts["chapters"] and facts["title"]
        assert len(facts["chapters"]) == wanted.get("chapters", len(facts["chapters"]))


def test_every_shared_file_is_in_the_table(expectations: dict[str, dict], shared_data: Path):
    assert set(FILES) == set(expectations)
    assert set(HARD) == set(document_expectations.expectations(shared_data / "hard"))


def test_password_opens_what_asks_for_one(shared_data: Path):
    path = shared_data / "hostile" / "pdf-open-password.pdf"
    with pytest.raises(PasswordNeeded):
        read_safely(path)
    with pytest.raises(PasswordNeeded):
        read_safely(path, password="wrong")
    assert "Lorem ipsum dolor sit amet" in document_expectations.flat(
        read_safely(path, password="openpassword").text
    )


def test_traversal_writes_nothing(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    read_safely(shared_data / "hostile" / "epub-path-traversal.epub")
    for folder in (tmp_path, *tmp_path.parents, Path(__file__).resolve().parents[2]):
        assert not list(folder.glob("epub-traversal-canary*"))


def test_zip_bomb_costs_neither_memory_nor_time(shared_data: Path):
    started = time.monotonic()
    with pytest.raises(DocumentError):
        read_safely(
            shared_data / "hostile" / "epub-zip-bomb.epub", limits=Limits(memory_bytes=500 << 20, time_s=30)
        )
    assert time.monotonic() - started < 30  # unpacked it would be 2 GiB


def text_file(folder: Path, content: bytes) -> Path:
    path = folder / "book.txt"
    path.write_bytes(content)
    return path


def test_slow_file_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A parser that hangs must not hang the app."""
    hang_in_child(tmp_path, monkeypatch)
    with pytest.raises(DocumentError, match="given up"):
        read_safely(text_file(tmp_path, b"A book."), limits=Limits(time_s=1.0))


def test_cancel_ends_the_child_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hang_in_child(tmp_path, monkeypatch)
    before = {child.pid for child in psutil.Process().children()}
    started = time.monotonic()
    with pytest.raises(ReadingCancelled):
        read_safely(text_file(tmp_path, b"A book."), should_stop=lambda: time.monotonic() - started > 0.3)
    assert {child.pid for child in psutil.Process().children()} <= before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address-space limits hold on Linux")
def test_hungry_file_meets_the_memory_limit(tmp_path: Path):
    with pytest.raises(DocumentError, match="memory"):
        read_safely(text_file(tmp_path, b"word " * (12 << 20)), limits=Limits(memory_bytes=200 << 20))


def test_a_book_whose_last_bytes_are_missing_is_no_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A child that is killed while it writes leaves half a line."""
    written = """import os, sys
os.write(1, b'{"bytes": 100}\\n{"title": "half a bo')
os._exit(9)"""
    plant(tmp_path, monkeypatch, written)
    with pytest.raises(DocumentError, match="damaged"):
        read_safely(text_file(tmp_path, b"A book."))


def test_crashed_parser_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plant(tmp_path, monkeypatch, "import os\nos.abort()")
    with pytest.raises(DocumentError, match="damaged"):
        read_safely(text_file(tmp_path, b"A book."))


@pytest.mark.parametrize(
    "attempt",
    [
        "open('written', 'w')",
        "__import__('socket').create_connection(('127.0.0.1', 9), 1)",
        "__import__('subprocess').run(['true'])",
        "__import__('os').remove('core')",
    ],
)
def test_child_can_neither_write_nor_call_out(attempt: str):
    """Defence in depth: even code run by a parser's flaw finds these doors shut."""
    import subprocess

    code = f"import sys; from core.sandbox.child import _refuse; sys.addaudithook(_refuse); {attempt}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True
    )
    assert done.returncode == 1 and "not allowed in a process with limits" in done.stderr


def hang_in_child(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(folder, monkeypatch, "import time\ntime.sleep(60)")


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Makes the child's first third-party import run `code`, as a parser with a flaw would."""
    package = folder / "planted"
    package.mkdir()
    (package / "charset_normalizer.py").write_text(code, "utf-8")
    (package / "sitecustomize.py").write_text(
        "import sys\nif 'core.sandbox.child' in ' '.join(sys.orig_argv):\n    import charset_normalizer\n",
        "utf-8",
    )
    from core.sandbox import process

    start = process.subprocess.Popen

    def planted(*args, env, **kwargs):
        return start(
            *args, env={**env, "PYTHONPATH": os.pathsep.join([str(package), env["PYTHONPATH"]])}, **kwargs
        )

    monkeypatch.setattr(process.subprocess, "Popen", planted)
