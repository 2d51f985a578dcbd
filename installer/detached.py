"""The app without a window of its own: started, listened to until its page is there, then let go.

Until then everything it says is shown here, so that a reason for not starting is seen; its log has the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

LET_GO = "TRIFORCE_LET_GO"  # tells the app to leave this window as soon as its page is there
_LOOK_S = 0.05
_LAST_WORDS_S = 1.0


def wants_detached(arguments: list[str]) -> bool:
    """Whether this start came from a double click, and is the app's."""
    if not os.environ.get("TRIFORCE_SHIM") or (arguments and not os.path.isfile(arguments[0])):
        return False
    if os.name == "nt" or sys.platform == "darwin":
        return True
    return bool(os.environ.get("TRIFORCE_SETUP_WINDOW"))  # elsewhere there is a window for the setup alone


def run_detached(command: list[str], *, environ: dict[str, str]) -> int:
    """0 once the app serves its page, or has handed over to one that does; else the status it ended with."""
    process = subprocess.Popen(
        command,
        env={**environ, LET_GO: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **_apart(),
    )
    said = threading.Thread(target=_show, args=(process,), daemon=True)
    said.start()
    while said.is_alive() and process.poll() is None:
        time.sleep(_LOOK_S)
    try:
        status = process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:  # it has closed its end and goes on without us
        return 0
    said.join(_LAST_WORDS_S)
    return status


def _show(process: subprocess.Popen[bytes]) -> None:
    for line in process.stdout:
        sys.stdout.write(line.decode("utf-8", errors="replace"))
        sys.stdout.flush()


def _apart() -> dict[str, object]:
    if os.name != "nt":
        return {"start_new_session": True}
    return {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}
