"""The command line in a process of its own, with the scripted engine where one is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
SCRIPT = REPO / "tests" / "support" / "scripted_worker.py"
# a command line whose engine is the scripted one
LAUNCH = (
    f"import sys; import app.engine.client as r; r.WORKER = (sys.executable, {str(SCRIPT)!r}); "
    "r.Runtime.__init__.__kwdefaults__['worker'] = r.WORKER\n"
    "from app.cli.parser import main\nsys.exit(main())"
)


def run(
    *arguments: str, scripted: bool = False, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", LAUNCH] if scripted else [sys.executable, "-m", "app.cli"]
    return subprocess.run(
        [*start, *arguments],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO), **environ},
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def short_book(folder: Path) -> Path:
    """A short book of two chapters."""
    path = folder / "a book.md"
    text = "# A Short Book\n\n" + "".join(
        f"## Chapter {i}\n\n"
        + "".join(f"The keeper of lamp {i} went up stair {j} and lit it.\n\n" for j in range(12))
        for i in (1, 2)
    )
    path.write_text(text, encoding="utf-8")
    return path
