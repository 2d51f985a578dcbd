"""OCR is installed by a button, with its size; how far it is; a failure is said and the file waits.

The package index is a folder with two small wheels, and what is installed goes to a folder of the test's own.
"""

from __future__ import annotations

import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.desk import ocr_install
from app.web.messages import offer_html
from core.errors import ScannedPages, UserError
from tests.support.fake_runtime import wait_until
from tests.support.said import worded_by


def wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}/__init__.py", "")
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """The stand-in for the package index; pip asks nobody else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_TARGET": str(tmp_path / "installed"),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.mark.wide
def test_what_the_requirements_name_is_installed_and_told(index, tmp_path):
    wheel(index, "rapidocr", "3.4.0")
    wheel(index, "onnxruntime", "1.22.0")
    told: list[str] = []
    ocr_install.install(lambda stage, fraction: told.append(stage), lambda: False)
    assert (tmp_path / "installed" / "rapidocr").is_dir() and (
        tmp_path / "installed" / "onnxruntime"
    ).is_dir()
    assert told[0].startswith("Looking") and told[-1].startswith("Installing")


def test_what_cannot_be_had_is_said(index, tmp_path):
    wheel(index, "rapidocr", "3.4.0")
    with pytest.raises(UserError, match="could not be installed: .*onnxruntime"):
        ocr_install.install(lambda *_: None, lambda: False)
    assert not (tmp_path / "installed").exists()


@pytest.mark.wide
def test_what_pip_keeps_is_the_programs_own_and_goes(index, tmp_path, monkeypatch):
    """It went to the cache that all programs of a user share, where `uninstall` finds nothing of ours."""
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    monkeypatch.setattr(ocr_install, "CACHE", tmp_path / "cache")
    given, real = [], ocr_install.subprocess.Popen

    def noted(command, **how):
        given.append(how["env"]["PIP_CACHE_DIR"])
        (tmp_path / "cache").mkdir(exist_ok=True)
        return real(command, **how)

    monkeypatch.setattr(ocr_install.subprocess, "Popen", noted)
    with pytest.raises(UserError):
        ocr_install.install(lambda *_: None, lambda: False)
    assert (tmp_path / "cache").is_dir(), "the next try begins anew"
    wheel(index, "rapidocr", "3.4.0")
    wheel(index, "onnxruntime", "1.22.0")
    ocr_install.install(lambda *_: None, lambda: False)
    assert given == [str(tmp_path / "cache")] * 2 and not (tmp_path / "cache").exists()


def test_a_stop_ends_it(index, tmp_path):
    wheel(index, "rapidocr", "3.4.0")
    wheel(index, "onnxruntime", "1.22.0")
    ocr_install.install(lambda *_: None, lambda: True)
    assert not (tmp_path / "installed").exists()


def test_a_stop_ends_what_says_nothing(monkeypatch):
    """A stop was heard with the next line of pip's; while it builds or unpacks, none comes for minutes."""
    real, begun = ocr_install.subprocess.Popen, []

    def silent(command, **how):
        begun.append(real([command[0], "-c", "import time; time.sleep(60)"], **how))
        return begun[0]

    monkeypatch.setattr(ocr_install.subprocess, "Popen", silent)
    stop = threading.Event()
    installing = threading.Thread(target=ocr_install.install, args=(lambda *_: None, stop.is_set))
    installing.start()
    wait_until(lambda: begun)
    stop.set()
    installing.join(20)
    ended_by_the_stop = not installing.is_alive()
    begun[0].kill()
    installing.join()
    assert ended_by_the_stop


def test_how_far_a_download_is(monkeypatch):
    """As pip prints it where it is asked for raw progress."""
    said = "Collecting rapidocr\n  Downloading rapidocr-3.4.2-py3-none-any.whl (15.1 MB)\nProgress 0 of 200\n"
    said += "Progress 50 of 200\nInstalling collected packages: rapidocr\n"
    script = f"import sys; sys.stdout.write({said!r})"
    real = ocr_install.subprocess.Popen
    monkeypatch.setattr(
        ocr_install.subprocess, "Popen", lambda command, **how: real([command[0], "-c", script], **how)
    )
    told: list[tuple] = []
    ocr_install.install(lambda *how_far: told.append(how_far), lambda: False)
    assert ("Downloading rapidocr (15.1 MB)", 0.25) in told and told[-1][1] is None
    assert worded_by(ocr_install.install, told[-1][0])


@pytest.fixture
def scan(make_desk, engine, book, tmp_path):
    """A scan that waits for OCR to be installed: (desk, the upload, what was installed)."""
    installed: list[bool] = []

    def read(path, *, ocr=False, **_how):
        if not ocr:
            raise ScannedPages("8 of 8 pages of old.pdf are pictures and need OCR.")
        return book

    desk = make_desk(engine, read=read, can_ocr=False)
    desk.imports._readers = replace(desk.imports._readers, can_ocr=lambda: bool(installed))
    path = tmp_path / "uploads" / "old.pdf"
    path.write_text("anything")
    desk.imports.upload(str(path), "old.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.offer)
    return desk, path, installed


def test_a_scan_is_read_once_ocr_is_installed(scan, book):
    desk, path, installed = scan
    html = offer_html(desk.state.opening)
    assert "8 of 8 pages" in html and 'data-act="install-ocr"' in html and "data-confirm" in html
    desk.actions.dispatch({"act": "read-pictures"})
    assert desk.state.opening.offer, "nothing could read them yet"
    desk.imports._readers = replace(
        desk.imports._readers,
        install_ocr=lambda progress, stop: (progress("Downloading", 0.5), installed.append(True)),
    )
    desk.actions.dispatch({"act": "install-ocr"})
    wait_until(lambda: desk.books.current == book and desk.state.opening is None)
    assert not path.exists()


def test_where_it_fails_the_reason_is_said_and_the_file_waits(scan):
    desk, path, _installed = scan

    def fail(_progress, _stop) -> None:
        raise UserError("OCR could not be installed: no network.")

    desk.imports._readers = replace(desk.imports._readers, install_ocr=fail)
    desk.actions.dispatch({"act": "install-ocr"})
    wait_until(lambda: desk.state.notice and desk.state.opening.offer)
    assert "no network" in desk.state.notice.text and path.exists() and desk.state.opening.installs
    desk.imports.cancel()
    assert desk.state.opening is None and not path.exists()
