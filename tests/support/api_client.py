"""What other programs send: a question, a request, the model's name for the book of the tests."""

from __future__ import annotations

import json

import httpx

BOOK = "smollm2-135m-instruct@the-lamp"


def ask(text: str = "Who keeps the lamp?") -> list[dict]:
    return [{"role": "user", "content": text}]


def post(address: str, key: str, body: object, **headers: str) -> httpx.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {key}", **headers}
    return httpx.post(f"{address}/chat/completions", content=data, headers=sent, timeout=300)
