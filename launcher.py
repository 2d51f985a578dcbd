#!/usr/bin/env python3
"""Starts TriForce Chat: makes its environment on first use, then runs the app or a command in it.

    python3 launcher.py                 open the app in the browser
    python3 launcher.py COMMAND ...     summarize, chat, extract, doctor, plan, models, snapshots, tune,
                                        train-draft, serve, api-key, mcp, app (--help says what each does)
    python3 launcher.py test [...]      run the tests that touch everything once (--all: all that run in
                                        minutes; --slow: the slow ones, too; --e2e: those in a browser)
    python3 launcher.py repair          make the environment anew
    python3 launcher.py update FROM     take the newer version in this folder or archive, or go back
    python3 launcher.py uninstall       list what belongs to the program, ask, and remove it (--yes: do not
                                        ask; --data: books, conversations and models, too;
                                        --caches: caches that other programs share, too)

Standard library only. This file keeps to syntax that every Python since 2.7 can read, so that an old one gets
a sentence instead of a syntax error; everything newer lives in installer/.
"""

import glob
import os
import subprocess
import sys

OLDEST, NEWEST = (3, 10), (3, 13)
ROOT = os.path.dirname(os.path.abspath(__file__))
HOW_TO_GET_PYTHON = {
    "win32": "Install Python 3.12 from https://www.python.org/downloads/ (or: winget install "
    "Python.Python.3.12).",
    "darwin": "Install Python 3.12 from https://www.python.org/downloads/ (or: brew install python@3.12).",
}
HOW_TO_ELSEWHERE = (
    "Install Python 3.10 to 3.13 with your package manager, for example: sudo apt install "
    "python3 python3-venv"
)


def fits(version):
    """Whether a Python of this version can run the app."""
    return OLDEST <= tuple(version[:2]) <= NEWEST


def another_python():
    """The command of an installed Python that fits, or None."""
    names = ["python3.%d" % minor for minor in (12, 13, 11, 10)] + ["python3", "python"]
    candidates = [[name] for name in names]
    if sys.platform == "win32":
        candidates = [["py", "-3.%d" % minor] for minor in (12, 13, 11, 10)] + [["python"]]
    candidates += [[python] for python in brought_pythons()]
    question = "import sys; sys.exit(0 if %r <= sys.version_info[:2] <= %r else 1)" % (OLDEST, NEWEST)
    for candidate in candidates:
        try:
            with open(os.devnull, "r+") as nothing:
                if (
                    subprocess.call(
                        candidate + ["-c", question], stdin=nothing, stdout=nothing, stderr=nothing
                    )
                    == 0
                ):
                    return candidate
        except OSError:  # not installed
            continue
    return None


def brought_pythons():
    """Those that a starter in installer/ has fetched."""
    found = glob.glob(os.path.join(ROOT, ".python", "cpython-3.1*", "bin", "python3"))
    local = os.path.join(os.environ.get("LOCALAPPDATA", ""), "TriForce", "python")
    return found + glob.glob(os.path.join(local, "cpython-3.1*", "python.exe"))


def refuse_this_python():
    """Run again with a Python that fits, where there is one; else say how to get it."""
    other = another_python()
    if other is not None:
        return subprocess.call(other + [os.path.abspath(__file__)] + sys.argv[1:])
    here = ".".join(str(part) for part in sys.version_info[:3])
    remedy = HOW_TO_GET_PYTHON.get(sys.platform, HOW_TO_ELSEWHERE)
    sys.stderr.write(
        "TriForce Chat needs Python 3.10 to 3.13, 64-bit; this is Python %s.\n%s\n"
        "Or use the starter in the folder installer, which can fetch one.\n" % (here, remedy)
    )
    return 1


def main():
    """The exit status: 0 done, 1 the user's input or machine, 2 usage."""
    if not fits(sys.version_info) or sys.maxsize <= 2**32:
        return refuse_this_python()
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    try:
        from installer import start
    except ImportError:
        sys.stderr.write(
            "Files are missing beside launcher.py. Unpack the whole archive into a folder and start it "
            "there.\n"
        )
        return 1
    return start.main(ROOT, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
