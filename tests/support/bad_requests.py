"""Requests that the interface for programs refuses."""

from __future__ import annotations

from tests.support.api_client import BOOK, ask

BAD = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b"[" * 100_000,
    {},
    {"model": "gpt-4", "messages": ask()},
    {"model": 1, "messages": ask()},
    *(
        {"model": BOOK, "messages": messages}
        for messages in (
            None,
            [],
            "who",
            [1],
            [{"role": "user"}],
            [{"role": "tool", "content": "x"}],
            [{"role": "assistant", "content": "x"}],
            [*ask(), {"role": "assistant", "content": "x"}],
            [*ask(), {"role": "system", "content": "x"}],
            ask(" "),
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            [{"role": "user", "content": "x", "tool_calls": []}],
            [{"role": "user", "content": "x", "name": "Ann"}],
            [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}],
            [{"role": "user", "content": [{"type": "text", "text": 5}]}],
            ask("\ud800"),
        )
    ),
    *(
        {"model": BOOK, "messages": ask(), **more}
        for more in (
            {"tools": []},
            {"temprature": 1},
            {"\ud800": 1},
            {"temperature": 3},
            {"temperature": "hot"},
            {"temperature": True},
            {"top_p": 0},
            {"seed": 1.5},
            {"max_tokens": 0},
            {"n": 2},
            {"logprobs": True},
            {"frequency_penalty": 0.5},
            {"response_format": {"type": "json_object"}},
            {"stop": ["a"] * 5},
            {"stop": [""]},
            {"stop": 3},
            {"stop": 0},
            {"max_tokens": 5, "max_completion_tokens": 9},
            {"store": "yes"},
            {"store": 1},
            {"metadata": {}},
            {"stream": "yes"},
            {"stream_options": {"include_usage": True}},
            {"stream": True, "stream_options": {"other": 1}},
            {"stream_options": 0},
            {"triforce": {"spoil": True}},
            {"triforce": {"summary": "long"}},
            {"triforce": {"spoiler_limit": 0}},
            {"triforce": {"spoiler_limit": 99}},
            {"triforce": 3},
        )
    ),
    {"model": "smollm2-135m-instruct", "messages": ask(), "triforce": {"summary": "page"}},
    {"model": "smollm2-135m-instruct", "messages": ask(), "triforce": {"spoiler_limit": 1}},
]
