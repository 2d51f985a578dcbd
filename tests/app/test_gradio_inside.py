"""Gradio is imported without the work it does for editors, and is the same Gradio."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.server import gradio_internals

pytestmark = pytest.mark.wide

REPO = Path(__file__).resolve().parent.parent.parent
SCRIPT = """
import sys
sys.path.insert(0, {repo!r})
import ast
parsed = []
whole = ast.get_source_segment
ast.get_source_segment = lambda *given, **options: parsed.append(1) or whole(*given, **options)
{imports}
blocks = gradio.Blocks()
with blocks:
    box = gradio.Textbox()
    box.change(lambda text: text, box, box)
print(len(parsed), len(sys.meta_path), len(blocks.fns))
"""


def imported(statement: str) -> list[int]:
    """(stubs parsed, import hooks, functions of a small page) after a first import"""
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(repo=str(REPO), imports=statement)],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return [int(word) for word in said.stdout.split()]


def test_no_stub_file_is_made_and_the_rest_is_gradio():
    """If Gradio stops or renames it, the first line fails and without_stub_files can go."""
    plain = imported("import gradio")
    lean = imported(
        "from app.server.gradio_internals import without_stub_files\n"
        "with without_stub_files():\n    import gradio"
    )
    assert plain[0] > 100
    assert lean == [0, *plain[1:]]


def test_the_gradio_that_is_installed_is_the_one_this_was_written_for():
    """What it says here is what to look at in the new Gradio; the app runs meanwhile, only slower."""
    assert gradio_internals.broken() == []


def test_a_gradio_without_these_parts_is_named_and_used_as_it_is(monkeypatch):
    """A new Gradio must cost speed at most, and somebody must hear of it."""
    gradio = pytest.importorskip("gradio")
    from gradio import component_meta, http_server, queueing

    class Bare:
        def launch(self) -> None: ...

    monkeypatch.delattr(component_meta, gradio_internals.WRITER)
    monkeypatch.setattr(gradio, "Blocks", Bare)
    monkeypatch.setattr(http_server, "Server", object)
    monkeypatch.setattr(queueing, "Queue", object)
    wrong = gradio_internals.broken()
    assert len(wrong) == 4 and all(line.startswith(f"Gradio {gradio.__version__}: ") for line in wrong)
    assert gradio_internals.launch_options() == {}
    gradio_internals.calm_server()
    gradio_internals.end_queue(Bare())
