"""The small packages that a bare machine lacks beside torch and transformers, as wheels in one folder.

    python -m benchmarks.wheels FOLDER [--python 3.12] [--platform manylinux2014_x86_64]

There: `pip install --no-index --no-deps FOLDER/*.whl`, then benchmarks.card.first_contact and `pytest
tests/gpu` need no network. torch, transformers, safetensors and numpy, with what those bring, must be there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FILES = ("requirements.txt", "requirements-test.txt")
OURS = ("platformdirs", "psutil", "nvidia-ml-py")
PYTEST = ("pytest", "pluggy", "iniconfig", "pygments")


def wanted_wheels() -> list[str]:
    """Both, each as requirements*.txt ask for it, where they do."""
    lines = [line.split("#")[0].strip() for file in FILES for line in (REPO / file).read_text().splitlines()]
    asked = {re.split(r"[\s<>=!\[;]", line)[0]: line for line in lines}
    return [asked.get(name, name) for name in OURS + PYTEST]


def fetch_wheels(folder: Path, *, python: str | None = None, platform: str | None = None) -> list[Path]:
    """Downloads them into `folder`, for this Python and system where no other is named. Returns the wheels.
    Raises CalledProcessError where pip fails.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    if python is not None:
        command += ["--python-version", python]
    if platform is not None:
        command += ["--platform", platform]
    subprocess.run([*command, "--dest", str(folder), *wanted_wheels()], check=True)
    return sorted(folder.glob("*.whl"))


def main(arguments: list[str] | None = None) -> int:
    """Fetches and lists them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", help="the other machine's, such as 3.12; this one's")
    parser.add_argument("--platform", help="the other machine's, as wheels name it; this one's")
    options = parser.parse_args(arguments)
    for wheel in fetch_wheels(options.folder, python=options.python, platform=options.platform):
        print(f"{wheel.stat().st_size / 1000:8,.0f} kB  {wheel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
