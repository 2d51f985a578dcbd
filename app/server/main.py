"""Starts and ends the app: one instance on a data folder, its page, the engine beside it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.desk.assembly import AppServices
from app.desk.import_queue import Readers
from app.host.instance import Address, Instance
from app.host.keep_awake import KeepAwake
from app.host.logs import kept_log
from app.host.secrets import forget_keys, kept_keys, make_private
from app.host.window import show
from app.server.server import PRIVATE_FOLDERS, Server, data_folder_key
from app.store import relocation
from app.store.history import History
from app.store.library import Library
from app.store.preferences import Preferences
from core import paths
from core.errors import UserError
from core.paths import ROOT, write_whole
from core.text.words import translated as _
from installer.detached import LET_GO
from installer.login import LoginEntry

if TYPE_CHECKING:
    from app.models.catalogue import Models
    from core.config import Settings

SAMPLES = ROOT / "assets" / "samples"
_AGAIN = "TRIFORCE_AGAIN_AT"  # the port of the app that begins again
log = logging.getLogger(__name__)


def run_app(
    settings: Settings,
    open_browser: bool,
    *,
    preferences: Preferences | None = None,
    files: Sequence[str] = (),
) -> int:
    """Serves the app until the person quits, or hands over to the one that already runs. Returns the exit
    code. `preferences`: the settings as the page may change them. `files`: books to open, by absolute path.
    """
    _try_data_folder()
    make_private(paths.data_dir(), (*PRIVATE_FOLDERS, "tmp"))
    instance = Instance(paths.subdir("run"))
    if not instance.acquire():
        return _hand_over(instance, settings, open_browser, files)
    try:
        with kept_log():
            given = preferences or Preferences(settings)
            server = _serve(settings, open_browser, instance, given, files)
    finally:
        instance.release()
    if server.moved:
        _begin_again(server.port)
    return 0


def _begin_again(port: int) -> None:
    """This program with its arguments as a new process, at the same address, for the tabs that are open."""
    environ = {**os.environ, _AGAIN: str(port)}
    command = [sys.executable, *sys.orig_argv[1:]]
    if os.name == "nt":  # there, a process that becomes another one seems to have ended
        subprocess.Popen(command, env=environ, creationflags=subprocess.CREATE_NO_WINDOW)
        return
    sys.stdout.flush()
    os.execve(sys.executable, command, environ)


def _serve(
    settings: Settings, open_browser: bool, instance: Instance, preferences: Preferences, files: Sequence[str]
) -> Server:
    """Serves until the person quits."""
    from app.engine.client import Runtime
    from app.models.catalogue import Models, remembered
    from core.documents import cover_safely, read_safely
    from core.documents.pdf.ocr import available

    relocation.finish_move()
    _follow_login(preferences)
    settings = remembered(preferences.settings)
    again = os.environ.pop(_AGAIN, "")
    if again.isdigit():
        settings = replace(settings, port=int(again))
    readers = Readers(read_safely, cover_safely, available)
    parts = make_services(
        Runtime(settings), models=Models(settings), readers=readers, preferences=preferences
    )
    server = Server(parts, settings, keys=kept_keys(paths.subdir("run")))
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: server.ask_to_end())
    vigil = KeepAwake(lambda: parts.at_work)
    parts.store.watch(vigil.look)
    if open_browser and not settings.api:
        server.end_with_last_tab()
    address = server.start()
    instance.announce(address)
    parts.engine.start()  # after the page is up: loading a model must not delay it
    parts.models.start()
    if os.environ.pop(LET_GO, "") and not (settings.api and not (paths.data_dir() / "api.key").exists()):
        let_go()  # before a browser is started, which would keep the window's pipe open
    if not again:
        parts.imports.files(files)
    opened_in = settings.open_in if open_browser and not again else ""
    _open(address, opened_in, _("TriForce Chat is open at {address}"))
    if settings.api:
        _tell_of_api(address)
    server.wait()
    _say(_("Keeping what was read for the next time; end it again to skip this."))
    server.stop()
    vigil.close()
    if server.quit:
        forget_keys(paths.subdir("run"))
    return server


def let_go() -> None:
    """Leaves the window that this program was started from: what is printed from now on goes nowhere."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _follow_login(preferences: Preferences) -> None:
    """Keeps the entry that starts the app at login as the settings say, now and when they change."""
    entry = LoginEntry(ROOT)

    def follow(settings: Settings) -> None:
        try:
            if settings.start_at_login:
                entry.turn_on()
            elif entry.is_on():
                entry.turn_off()
        except OSError as error:
            words = _("The entry for starting at login cannot be changed: {reason}")
            raise UserError(words.format(reason=error)) from error

    try:
        follow(preferences.settings)
    except UserError as error:
        log.warning("%s", error)
    preferences.before_change(follow)


def _try_data_folder() -> None:
    """Raises UserError where the app could keep nothing."""
    try:
        for name in (*PRIVATE_FOLDERS, "tmp"):
            write_whole(paths.subdir(name) / ".try", b"")
            (paths.subdir(name) / ".try").unlink()
    except OSError as error:
        folder = paths.moved_to() or paths.named_dir()
        words = _(
            "The data folder {folder} cannot be written to: {reason}. Make it writable and see that its disk "
            "has room, or name another one with data_dir in config.yaml."
        )
        raise UserError(words.format(folder=folder, reason=error.strerror or error)) from error


def _tell_of_api(address: Address) -> None:
    """Where other programs find it, and the key when it is new: it is not shown again."""
    _say(_("Other programs: http://127.0.0.1:{port}/v1").format(port=address.port))
    if key := data_folder_key().ensure():
        _say(_("Their key, shown this once: {key}").format(key=key))


def _hand_over(instance: Instance, settings: Settings, open_browser: bool, files: Sequence[str]) -> int:
    """Shows the app that already runs on this data folder, and hands the files over. A page that is open
    shows them: no other one is opened for each of them.
    """
    for _attempt in range(300):  # the other one may be starting at this very moment
        address = instance.running()
        if address and _alive(address):
            seen = bool(files) and address.told("/open", json.dumps(list(files))) == "shown"
            way = settings.open_in if open_browser and not seen else ""
            _open(address, way, _("TriForce Chat is already open at {address}"))
            return 0
        time.sleep(0.1)
    sys.stderr.write(
        _("TriForce Chat runs already but does not answer. End it in the task manager, then start it again.")
        + "\n"
    )
    return 1


def _open(address: Address, way: str, words: str) -> None:
    """Says where the page is, and shows it, unless `way` is empty: each address has a code of its own."""
    _say(words.format(address=fresh_url(address)))
    _say(_("The address opens it once, within a minute; start again for another."))
    if way:
        show(lambda: fresh_url(address), way)


def fresh_url(address: Address) -> str:
    """An address that lets one browser in. Raises OSError when the app does not answer."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{address.port}/code",
        method="POST",
        headers={"Authorization": f"Bearer {address.secret}"},
    )
    with _opener().open(asked, timeout=5) as answer:
        return f"http://127.0.0.1:{address.port}/enter#{answer.read().decode()}"


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _alive(address: Address) -> bool:
    try:
        with _opener().open(f"http://127.0.0.1:{address.port}/healthz", timeout=2) as answer:
            return answer.read() == b"ok"
    except OSError:
        return False


def make_services(
    engine: object, *, models: Models, readers: Readers, preferences: Preferences | None = None
) -> AppServices:
    """All that the page acts on, on the user's data folder. Uploads that an earlier run left behind are
    deleted.
    """
    uploads = paths.subdir("tmp")
    for left in uploads.iterdir():
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    parts = AppServices(
        engine,
        Library(paths.subdir("books")),
        History(paths.data_dir() / "conversations.db"),
        models=models,
        readers=readers,
        uploads=uploads,
        samples=sample_books(),
        preferences=preferences,
    )
    parts.resume()
    return parts


def sample_books() -> tuple[Path, ...]:
    """The app's own books, each once: as EPUB where there is one."""
    found: dict[str, Path] = {}
    for suffix in (".epub", ".pdf", ".txt"):
        for path in sorted(SAMPLES.glob(f"*{suffix}")):
            found.setdefault(path.stem, path)
    return tuple(found.values())
