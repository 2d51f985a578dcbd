"""The batch files are linted: cmd has no check of its own, and its traps show only on a user's computer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "installer" / "windows"
FILES = sorted(path.name for path in FOLDER.glob("*.bat"))
# a path that may hold spaces, unless it is the program of a line, put in quotes where it was set
PATHS = r"%(?:~dp0|(?:WORK|BROUGHT|LAUNCHER|TARGET|PROGRAM|ICON|LOCALAPPDATA|UV)%)"
# programs that can fail: their status must be looked at
PROGRAMS = r"(?:%CURL%|%SystemRoot%|%PYTHON%|\"%UV%\"|powershell|python|py|mkdir|pushd)(?:\s|\\)"


def problems(content: bytes) -> list[str]:
    """What a reviewer would object to, each with its line."""
    found: list[str] = []
    if not content.isascii():
        found.append("0: not ASCII: the console's code page decides what it says")
    if content.count(b"\n") != content.count(b"\r\n") or not content.endswith(b"\r\n"):
        found.append("0: bare line feeds: cmd misses labels")
    lines = content.decode("ascii", "replace").splitlines()
    if not lines or lines[0] != "@echo off":
        found.append("1: commands would be shown")
    labels = {line[1:].split()[0].lower(): number for number, line in enumerate(lines) if _is_label(line)}
    jumps = {(number, name.lower()) for number, line in enumerate(lines) for name in _jumps(line)}
    depth = 0
    for number, line in enumerate(lines):
        code = "" if re.match(r"\s*(?:rem\b|:)", line, re.I) else line
        if _is_label(line) and depth:
            found.append(f"{number + 1}: a label ends the block around it")
        found += [f"{number + 1}: {words}" for words in _in_line(code, lines[number + 1 :], depth)]
        bare = re.sub(r'"[^"]*"', "", code)
        if not re.match(r"\s*echo\b", bare):
            depth += bare.count("(") - bare.count(")")
        if depth < 0:
            found.append(f"{number + 1}: a block ends that was not begun")
            depth = 0
    if depth:
        found.append(f"{len(lines)}: a block does not end")
    found += [f"{number + 1}: no label {name}" for number, name in sorted(jumps) if name not in labels]
    unused = set(labels) - {name for _number, name in jumps}
    found += [f"{labels[name] + 1}: nothing goes to {name}" for name in sorted(unused)]
    for name, number in labels.items():
        called = any(f"call :{name}" in line.lower() for line in lines)
        before = next((line for line in reversed(lines[:number]) if line.strip()), "")
        if called and not re.match(r"(?:exit /b|goto) ?", before):
            found.append(f"{number + 1}: runs on into the subroutine {name}")
    return found


def _is_label(line: str) -> bool:
    return bool(re.match(r"\s*:[A-Za-z_]", line))


def _jumps(line: str) -> list[str]:
    return [] if re.match(r"\s*rem\b", line, re.I) else re.findall(r"(?:goto |call :)([A-Za-z_]\w*)", line)


def _in_line(code: str, following: list[str], depth: int) -> list[str]:
    found = []
    if len(code) > 110 or "\t" in code:
        found.append("longer than 110 characters, or a tab in it")
    if code.count('"') % 2:
        found.append("a quotation mark is open")
    if re.search(r"\bset [A-Za-z_]+=", code) and not re.search(r"\bset PYTHON=%\*$", code):
        found.append('set without quotation marks takes the blanks at the end of the line: set "NAME=value"')
    if "EnableDelayedExpansion" in code:
        found.append("a ! in a path is lost with delayed expansion")
    if not re.match(r"\s*(?:echo|set)\b", code) and re.search(PATHS, re.sub(r'"[^"]*"', '""', code)):
        found.append("a path outside quotation marks")
    if depth and re.search(r"%ERRORLEVEL%", code):
        found.append("read when the block is read, not when the line runs")
    if re.search(r"\bif errorlevel\b", code, re.I):
        found.append("misses negative statuses; compare %ERRORLEVEL%")
    looked_at = re.search(r"\|\||&&|& exit /b$", code) or "ERRORLEVEL" in next(iter(following), "")
    if re.match(PROGRAMS, code) and not looked_at:
        found.append("nobody looks at its status")
    if re.search(r"ExecutionPolicy|-enc|Invoke-Expression|\biex\b|\|\s*(?:cmd|powershell)", code, re.I):
        found.append("changes a policy, or runs what was fetched")
    if re.search(r"\b(?:curl|tar|certutil)(?:\.exe)?\s", code) and "%SystemRoot%\\System32\\" not in code:
        found.append("another program of that name may come first on the path")
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_batch_file_has_none_of_the_known_faults(name: str):
    assert problems((FOLDER / name).read_bytes()) == []


def test_there_are_the_starter_the_fetcher_and_the_menu():
    assert FILES == ["TriForceChat.bat", "add-to-menu.bat", "get-python.bat"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("set NAME=value ", "takes the blanks"),
        ("mkdir %WORK% || exit /b 1", "outside quotation marks"),
        ('mkdir "%WORK%"', "looks at its status"),
        ('%PYTHON% "%LAUNCHER%" %*', "looks at its status"),
        ("goto nowhere", "no label nowhere"),
        (":unused", "nothing goes to unused"),
        ("for %%A in (1 2) do (\n:inside\n)\ngoto inside", "ends the block"),
        ("if 1==1 (\n%X% || exit\nif %ERRORLEVEL%==0 pause\n)", "when the block is read"),
        ("if errorlevel 1 pause", "negative"),
        ('if 1==1 echo "open', "quotation mark"),
        ("if 1==1 (\npause", "does not end"),
        (")", "not begun"),
        ("setlocal EnableDelayedExpansion", "is lost"),
        ("powershell -ExecutionPolicy Bypass -File x.ps1 || exit /b 1", "policy"),
        ("curl.exe --output x https://x || exit /b 1", "another program"),
        ("call :part\n:part\nexit /b 0", "runs on into"),
        ("echo \xfc", "ASCII"),
        ("rem " + "x" * 3 + "\npause" + " " * 120, "110"),
    ],
)
def test_each_fault_would_be_found(line: str, words: str):
    """A check that finds nothing in anything is no check."""
    content = ("@echo off\n" + line + "\n").replace("\n", "\r\n").encode("latin-1")
    assert any(words in problem for problem in problems(content)), problems(content)
    assert any("line feeds" in problem for problem in problems(b"@echo off\n"))


def test_the_starter_ends_in_the_line_that_starts_the_program():
    """An update replaces the file while cmd is in it; the status of that line is the starter's."""
    lines = (FOLDER / "TriForceChat.bat").read_text().splitlines()
    assert lines[-1] == '%PYTHON% "%LAUNCHER%" %* & exit /b'
