"""A stand-in for the Hugging Face hub on this machine: one repository under every name, with faults on
demand.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def safetensors(nbytes: int) -> bytes:
    """A whole safetensors file with one tensor of `nbytes` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}}).encode()
    body = (hashlib.sha256(str(nbytes).encode()).digest() * (nbytes // 32 + 1))[:nbytes]
    return struct.pack("<Q", len(header)) + header + body


WEIGHTS = safetensors(3_000_000)
REPOSITORY = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b'{"model": {}}',
    "tokenizer_config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "modeling_llama.py": b"raise SystemExit",
    "onnx/model.onnx": b"onnx",
    "README.md": b"read me",
}


@dataclass
class Hub:
    """A repository served over HTTP the way the hub does, with faults on demand."""

    files: dict[str, bytes]
    break_after: int | None = None  # every GET without a Range ends after so many bytes
    refuse_ranges: bool = False  # and every GET with one fails
    damage: str | None = None  # this file's bytes are not what the listing says
    status: int | None = None  # the listing answers with this
    error_code: str = ""
    refused: tuple[str, ...] = ()  # repositories whose name holds one of these are not there
    pace_s: float = 0.0  # for each 64 KB of a file
    requests: list[str] = field(default_factory=list)

    def listing(self) -> bytes:
        """What /api/models/NAME answers with."""
        siblings = []
        for name, content in self.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": git_id(content)}
            if name.endswith((".safetensors", ".bin", ".gguf")):
                entry["lfs"] = {
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "size": len(content),
                    "pointerSize": 134,
                }
            siblings.append(entry)
        return json.dumps({"id": "someone/tiny", "sha": COMMIT, "siblings": siblings}).encode()


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def _serve(self, *, body: bool) -> None:
        served: Hub = self.server.hub
        asked = self.headers.get("Range")
        served.requests.append(f"{self.command} {self.path}" + (f" {asked}" if asked else ""))
        if self.path.startswith("/api/models/"):
            if served.status or any(name in self.path for name in served.refused):
                self._answer(
                    served.status or 404,
                    b"{}",
                    {"X-Error-Code": served.error_code, "X-Error-Message": "no"},
                    body,
                )
            else:
                self._answer(200, served.listing(), {"Content-Type": "application/json"}, body)
            return
        match = re.fullmatch(r"/[^/]+/[^/]+/resolve/[^/]+/(.+)", self.path)
        if match is None:
            self._answer(404, b"", {}, body)
            return
        content = served.files[match[1]]
        headers = {"ETag": f'"{git_id(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if match[1] == served.damage:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        if asked and served.refuse_ranges:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._answer(
            206 if start else 200, content[start:], headers, body, cut=None if start else served.break_after
        )

    def _answer(
        self, status: int, content: bytes, headers: dict[str, str], body: bool, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if not body:
            return
        if cut is not None and cut < len(content):
            self.wfile.write(content[:cut])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        for start in range(0, len(content), 1 << 16):
            self.wfile.write(content[start : start + (1 << 16)])
            time.sleep(self.server.hub.pace_s if len(content) > 1 << 16 else 0)


@contextmanager
def serving() -> Iterator[tuple[Hub, str]]:
    """The stand-in, running, and its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.hub = Hub(dict(REPOSITORY))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.hub, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(5)
