"""What pip's lines mean: in a few words while it runs, as cause and remedy when it has failed."""

from __future__ import annotations

import re
from pathlib import Path

CAUSES = (
    (
        ("no space left", "errno 28", "not enough space", "winerror 112"),
        "the disk is full",
        "Free some space and start again; the setup goes on where it stopped.",
    ),
    (
        ("sslerror", "certificate_verify_failed"),
        "the secure connection failed",
        "Check this computer's clock; behind a company proxy give pip its certificate: pip config set "
        "global.cert FILE",
    ),
    (
        (
            "name resolution",
            "getaddrinfo",
            "newconnectionerror",
            "connection refused",
            "timed out",
            "proxyerror",
            "incompleteread",
            "network is unreachable",
            "connectionreset",
            "remotedisconnected",
            "connection broken",
        ),
        "the package index could not be reached",
        "Connect to the internet and start again; the setup goes on where it stopped. Behind a proxy set "
        "HTTPS_PROXY.",
    ),
    (
        (
            "permission denied",
            "access is denied",
            "winerror 5",
            "winerror 32",
            "winerror 33",
            "winerror 1224",
        ),
        "a file could not be written",
        "Close other windows of the app, wait until a virus scanner is done with it, make the folder "
        "writable, and start again; the setup goes on where it stopped.",
    ),
    (
        ("no matching distribution",),
        "the package index has no fitting version",
        "Use 64-bit Python 3.10 to 3.13; with an own package index (pip config list) check that it is "
        "complete.",
    ),
)


def describe_pip(lines: list[str], scratch_bytes: int) -> str:
    """The last of pip's lines that means something and the bytes below its scratch folder, in a few words."""
    for line in reversed(lines[-40:]):
        if match := re.match(
            r"\s*Downloading (?:https?://\S*/)?(\S+?)(?:\.metadata)? \(([\d.]+) ([kMG]B)\)", line
        ):
            name, size, unit = match.groups()
            total = float(size) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
            of = f", {min(scratch_bytes, total) / 1e6:.0f} of {total / 1e6:.0f} MB" if total > 5e6 else ""
            return f"downloading {name.split('-')[0]}{of}"
        if match := re.match(r"\s*(?:Collecting|Using cached|Processing) (\S+)", line):
            return f"preparing {re.split(r'[<>=!~;(-]', Path(match[1]).name)[0]}"
        if line.startswith("Installing collected packages"):
            return f"unpacking {line.count(',') + 1} packages"
    return "starting"


def explain(title: str, lines: list[str], log: Path) -> str:
    """What went wrong in one paragraph: cause, remedy, pip's own last words, where the rest is."""
    text = "\n".join(lines[-80:]).lower()
    errors = [line.strip() for line in lines if line.strip().startswith("ERROR")]
    said = (errors or lines or ["nothing"])[-1]
    for words, cause, remedy in CAUSES:
        if any(word in text for word in words):
            return f"{title} failed: {cause}. {remedy}\npip said: {said}\nThe whole log: {log}"
    return (
        f"{title} failed. Start again; if it fails again: launcher.py repair\npip said: {said}\nThe whole "
        f"log: {log}"
    )
