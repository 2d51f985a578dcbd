"""All that the app touches inside Gradio, where no public name reaches. `broken` says in words what a new
Gradio changed; the app then goes on without it, only slower.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import inspect
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gradio as gr

log = logging.getLogger(__name__)
MODULE, WRITER = "gradio.component_meta", "create_or_modify_pyi"
# launch() would ask the page for itself, over HTTP, before it returns
LAUNCH = {"_frontend": False}
TICK_S = 1.0  # between two looks whether the server is to end


def broken() -> list[str]:
    """What this module expects of Gradio and does not find, one sentence each; empty when all is well."""
    import gradio
    from gradio import component_meta, http_server, queueing

    wrong = []
    if not hasattr(component_meta, WRITER):
        wrong.append(
            f"there is no {MODULE}.{WRITER} any more: look whether importing it still writes stub files"
        )
    if not set(LAUNCH) <= set(inspect.signature(gradio.Blocks.launch).parameters):
        wrong.append("Blocks.launch() takes no _frontend: the start waits until the page answered itself")
    if not (hasattr(http_server.Server, "main_loop") and hasattr(http_server.Server, "on_tick")):
        wrong.append("the server's loop has another form: it wakes ten times a second while nothing happens")
    if not callable(getattr(queueing.Queue, "close", None)):
        wrong.append("the queue cannot be closed: it wakes a thousand times a second while nothing happens")
    return [f"Gradio {gradio.__version__}: {words}" for words in wrong]


def launch_options() -> dict[str, Any]:
    """The options of Blocks.launch that have no public name, as far as this Gradio knows them."""
    import gradio

    known = inspect.signature(gradio.Blocks.launch).parameters
    return {name: value for name, value in LAUNCH.items() if name in known}


def calm_server() -> None:
    """Lets servers that are launched from now on look less often whether they are to end."""
    from gradio.http_server import Server

    async def main_loop(server: Server) -> None:
        while not await server.on_tick(0):
            await asyncio.sleep(TICK_S)

    if hasattr(Server, "on_tick"):
        Server.main_loop = main_loop


def end_queue(blocks: gr.Blocks) -> None:
    """Ends a launched page's queue: no event uses it, and it polls. One that cannot be ended goes on."""
    queue = getattr(blocks, "_queue", None)
    if hasattr(queue, "close"):
        queue.close()


@contextmanager
def without_stub_files() -> Iterator[None]:
    """While this lasts, gradio may be imported for the first time without rewriting *.pyi files for editors.

    It parses its sources for that, half of the import's time. A Gradio without it is imported as it is.
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
