"""What a new version must do before an update is done: look at this machine, read a book, answer from it.

Runs in the environment, with a data folder of its own: whatever a new version does to its data, the user's
stays as the old one left it. The embedded model is linked into it where it is there already; it is not
fetched for a test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from installer.places import data_folder

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "assets" / "samples" / "the-light-on-the-holm.epub"
MODEL = "SmolLM2-135M-Instruct"
QUESTION = "Where does the story take place?"
PATIENCE_S = 900


def main() -> int:
    """0 when all of it worked."""
    with tempfile.TemporaryDirectory(prefix="triforce-") as home:
        trials = {"looks at this machine": ["doctor"], "reads a sample": ["extract", str(SAMPLE), "--json"]}
        if _with_model(Path(home)):
            asked = ["summarize", str(SAMPLE), "--question", QUESTION]
            trials["answers from it"] = [*asked, "--model", MODEL, "--max-new-tokens", "16"]
        return 0 if all(_works(what, command, home) for what, command in trials.items()) else 1


def _with_model(home: Path) -> bool:
    """Put the user's embedded model into `home`, by links where the drive has them; whether there is one."""
    model = data_folder(ROOT, Path(sys.executable)) / "models" / MODEL
    if not model.is_dir():
        return False
    shutil.copytree(model, home / "models" / MODEL, copy_function=link_or_copy)
    return True


def link_or_copy(source: str, target: str) -> None:
    """A second name for the file, or a copy where there can be none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _works(what: str, command: list[str], home: str) -> bool:
    """Whether the command ends well, and in time. Its own words are shown where it does not."""
    try:
        said = subprocess.run(
            [sys.executable, str(ROOT / "launcher.py"), *command],
            env={**os.environ, "TRIFORCE_HOME": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        late = f"not within {PATIENCE_S / 60:.0f} minutes; close other programs and update again"
        print(f"  {what}: {late}", file=sys.stderr, flush=True)
        return False
    works = said.returncode == 0
    print(f"  {what}: {'yes' if works else 'no'}", file=sys.stderr, flush=True)
    if not works:
        print(said.stdout[-2000:], file=sys.stderr)
    return works


if __name__ == "__main__":
    sys.exit(main())
