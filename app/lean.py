"""Gradio without its stub files: at every import it parses its sources to rewrite *.pyi files for editors,
half of the import's time.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

MODULE, WRITER = "gradio.component_meta", "create_or_modify_pyi"


@contextmanager
def without_stub_files() -> Iterator[None]:
    """While this lasts, gradio may be imported for the first time. A Gradio without such a function is
    imported as it is.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Finds the one module whose function must be replaced before the rest of Gradio calls it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == MODULE else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if hasattr(module, WRITER):
                    setattr(module, WRITER, lambda component_class, class_name, events: None)

            spec.loader.exec_module = exec_module
        return spec
