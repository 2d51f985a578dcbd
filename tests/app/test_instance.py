"""One app per data folder, found again by a second start, on a port nobody else uses."""

from __future__ import annotations

import errno
import socket
import stat
import subprocess
import sys

import pytest

from app.host import secrets
from app.host.instance import Address, Instance, free_port, kept_port


def test_a_second_start_finds_the_first_and_the_lock_ends_with_it(tmp_path):
    first, second = Instance(tmp_path), Instance(tmp_path)
    assert first.acquire() and not second.acquire()
    assert second.running() is None, "the first one is still starting"
    first.announce(Address(7860, "secret", 1))
    assert second.running() == Address(7860, "secret", 1)
    first.release()
    assert second.acquire() and second.running() is None
    second.release()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files private by its own rules")
def test_the_address_file_is_private(tmp_path):
    """It holds the secret that opens the page."""
    instance = Instance(tmp_path)
    instance.acquire()
    instance.announce(Address(7860, "secret", 1))
    assert stat.S_IMODE((tmp_path / "app.json").stat().st_mode) == 0o600
    instance.release()


def test_a_disk_without_room_keeps_no_page_away(tmp_path, monkeypatch):
    """The start ended in sixty lines of Python, and the page says what could be deleted."""

    def full(*_given) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(secrets, "write_private", full)
    instance = Instance(tmp_path)
    assert instance.acquire()
    instance.announce(Address(7860, "secret", 1))
    assert secrets.NAME.fullmatch(secrets.kept_keys(tmp_path).name)
    instance.release()


def test_a_killed_app_leaves_no_lock_and_no_address(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; from app.host.instance import Address, Instance\n"
        "one = Instance(Path(sys.argv[1])); assert one.acquire(); one.announce(Address(1, 'x', "
        "os.getpid()))\n"
        "print('up', flush=True); os.kill(os.getpid(), getattr(signal, 'SIGKILL', signal.SIGTERM))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.strip() == "up", ended.stderr
    after = Instance(tmp_path)
    assert after.acquire() and after.running() is None
    after.release()


def test_a_port_in_use_is_left_alone():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert free_port(taken) != taken


def test_one_port_is_kept_where_the_wished_one_was_taken_once(tmp_path):
    """A bookmark and another program's address led nowhere after the next start."""
    file = tmp_path / "port.json"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        wished = other.getsockname()[1]
        found = kept_port(wished, file)
        assert found != wished and kept_port(wished, file) == found
    assert kept_port(wished, file) == found, "the wished one is free again, but nobody looks there"
    with socket.socket() as other:
        other.bind(("127.0.0.1", found))
        other.listen()
        assert kept_port(wished, file) == wished
    assert kept_port(wished, file) == wished


@pytest.mark.parametrize("kept", ["", "[]", '{"7860": "x"}', '{"7860": 99999999}'])
def test_a_damaged_record_of_the_port_is_passed_over(tmp_path, kept):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        wished = other.getsockname()[1]
    (tmp_path / "port.json").write_text(kept.replace("7860", str(wished)))
    assert kept_port(wished, tmp_path / "port.json") == wished


def test_any_port_is_not_kept(tmp_path):
    assert kept_port(0, tmp_path / "port.json") and not (tmp_path / "port.json").exists()


def test_a_port_that_the_system_keeps_for_itself_is_left_alone(monkeypatch):
    """Hyper-V reserves ranges of ports on Windows, on which nobody listens: binding is refused (10013)."""
    bind = socket.socket.bind

    def reserved(self: socket.socket, address: tuple[str, int]) -> None:
        if address[1] == 7860:
            raise PermissionError(errno.EACCES, "WinError 10013")
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", reserved)
    assert free_port(7860) not in (0, 7860)
