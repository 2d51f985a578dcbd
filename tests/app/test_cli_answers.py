"""Answers on the command line, by the scripted engine: text as it comes, JSON line, Ctrl-C, a chat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command_line import LAUNCH, REPO, run, short_book

KEYS = {
    "exact_for",
    "text",
    "prompt_tokens",
    "reused_tokens",
    "snapshot_tokens",
    "new_tokens",
    "finish_reason",
    "prefill_s",
    "ttft_s",
    "tbt_ms",
    "tokens_per_s",
    "acceptance",
    "proposed",
    "tokens_per_round",
    "rounds",
    "longest_wait_ms",
    "mode",
    "model",
    "plan",
    "peak_memory_bytes",
    "verified",
}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return short_book(tmp_path)


def test_summarize_streams_and_ends_with_one_json_line(book: Path):
    done = run("summarize", str(book), "--question", "Who?", "--chapters", "1", "--json", scripted=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    figures = json.loads(lines[-1])
    assert set(figures) == KEYS
    assert figures["exact_for"] == "fake, 32-bit weights, 32-bit KV cache"
    assert set(figures["tbt_ms"]) == {"mean", "p50", "p95"} and set(figures["acceptance"]) == {
        "draft",
        "retrieval",
    }
    assert figures["finish_reason"] == "stop" and figures["plan"]["reading"]["parts"]
    assert lines[0].strip() == figures["text"] == "You asked 'Who?'."
    assert "Not read: Chapter 2." in done.stderr
    assert "○ Not sure that this is right: “You asked 'Who?'.”" in done.stderr


@pytest.mark.wide
def test_reading_in_parts_names_them(book: Path):
    done = run("summarize", str(book), "--reading-mode", "chunked", scripted=True)
    assert done.returncode == 0, done.stderr
    assert "[1/" in done.stdout and "The whole book\n" in done.stdout
    assert "Traceback" not in done.stderr


def test_passages_up_to_a_chapter(book: Path):
    """The scripted engine answers with words of no book: nothing bears that out."""
    asked = ("summarize", str(book), "--question", "Who lit lamp 2?", "--reading-mode", "retrieval")
    done = run(*asked, "--until", "1", scripted=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "No answer was found. Nearest passages:"
    assert lines[2] == "Chapter 1:" and lines[3].startswith("> The keeper of lamp 1")
    assert "lamp 2 went" not in done.stdout and "Chapter 2" not in done.stdout + done.stderr
    assert "Read for this answer: a passage of Chapter 1" in done.stderr
    refused = run(*asked, "--until", "9", scripted=True)
    assert refused.returncode == 1 and "this book has 2" in refused.stderr


@pytest.mark.wide
def test_book_that_does_not_fit_is_refused_with_the_numbers(book: Path, tmp_path: Path):
    book.write_text(book.read_text(encoding="utf-8") * 20, encoding="utf-8")
    done = run("summarize", str(book), "--reading-mode", "full", scripted=True)
    assert done.returncode == 1
    assert "--reading-mode chunked" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_the_answer_so_far(book: Path, tmp_path: Path):
    """The first Ctrl-C ends the answer, not the program: what was written stays, with its JSON line."""
    out = tmp_path / "out"
    with out.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, "summarize", str(book), "--question", "Who?", "--json"],
            cwd=REPO,
            stdout=stream,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(REPO), "SCRIPT_SLOW": "0.05"},
        )
        while not out.stat().st_size and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 130, error
    assert json.loads(out.read_text(encoding="utf-8").splitlines()[-1])["finish_reason"] == "user"
    assert "Traceback" not in error


@pytest.mark.wide
def test_chat_keeps_the_conversation(book: Path):
    done = run("chat", str(book), scripted=True, stdin="Who?\n/again\nAnd then?\n/chapters two\n/quit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nYou asked 'Who?'.") == 2
    # the prompt of the second question holds the first answer
    assert "You asked 'Who?'. And then?" in done.stdout
    assert "no range of chapters" in done.stderr
