"""Programs that measure the product and write benchmarks/results; tables in the pages are made of those.

A program is started by its name alone, `python -m benchmarks.decode`, whatever folder it lies in; code
imports it by its place, so that no module is there twice.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

_FOLDER = Path(__file__).parent
OLD_NAMES = {
    "formats": "weight_formats",
    "kv": "kv_quantization",
    "peers": "llamacpp",
    "told": "summary_page",
}


class _ProgramFinder:
    """Finds programs for `python -m`. `quality` and `soak` are folders, too, whose `__main__` runs them."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The program of that name, whatever folder it lies in; None for what is none."""
        package, _, program = name.rpartition(".")
        if package != __name__ or program == "__main__":
            return None
        file = next(_FOLDER.glob(f"*/{OLD_NAMES.get(program, program)}.py"), None)
        return spec_from_file_location(name, file) if file else None


sys.meta_path.append(_ProgramFinder)
