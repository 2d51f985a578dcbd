"""Gradio is imported without the work it does for editors, and is the same Gradio."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    """If Gradio stops or renames it, the first line fails and app.gradio_inside.py can go."""
    plain = imported("import gradio")
    lean = imported(
        "from app.gradio_inside import without_stub_files\nwith without_stub_files():\n    import gradio"
    )
    assert plain[0] > 100
    assert lean == [0, *plain[1:]]
