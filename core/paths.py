"""Where the user's data lives. One root, moved by the environment variable TRIFORCE_HOME."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP_NAME = "TriForce Chat"


def data_dir() -> Path:
    """The root of everything the app stores; created when missing."""
    override = os.environ.get("TRIFORCE_HOME")
    root = (
        Path(override).expanduser()
        if override
        else Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))
    )
    root.mkdir(parents=True, exist_ok=True)
    return root


def subdir(name: str) -> Path:
    """A folder below the root, such as "models", "books", "snapshots", "logs", "run" or "tmp"; created when
    missing.
    """
    path = data_dir() / name
    path.mkdir(parents=True, exist_ok=True)
    return path
