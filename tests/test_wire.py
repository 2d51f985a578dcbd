"""What was packed is unpacked equal, and what an older or newer version stored still opens."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

from core.events import Acceptance, Stats, VerificationResult
from core.wire import messages, to_line, unpack_stats

STATS = Stats(
    mode="triforce",
    new_tokens=42,
    acceptance_draft=Acceptance(30, 40),
    tbt_series_ms=(10.0, 40.0),
    acceptance_series=(1.0, 0.5),
    verified=VerificationResult(128, 1, 0, 0.05, 0.1),
)


def test_figures_come_back_equal():
    assert unpack_stats(json.loads(json.dumps(asdict(STATS)))) == STATS


def test_figures_of_another_version_open():
    """Answers are kept for years: a figure that was renamed must not take the page's panel with it."""
    stored = {
        "new_tokens": 42,
        "acceptance_draft": {"accepted": 30, "evaluated": 40, "later": 1},
        "later": [1],
    }
    assert unpack_stats(stored) == Stats(new_tokens=42, acceptance_draft=Acceptance(30, 40))
    assert unpack_stats({"verified": {"tokens": 128}}) == Stats()
    assert unpack_stats({}) == Stats()


def test_bytes_follow_their_message_as_they_are_and_a_torn_end_is_no_message():
    """A book may hold whatever it likes: line breaks, and what looks like a message."""
    data = b'{"do": "stop"}\n\xff\x00' * 20_000  # more than any pipe holds
    sent = to_line({"do": "book", "data": data}) + to_line({"do": "stop", "id": 1})
    assert list(messages(io.BytesIO(sent))) == [{"do": "book", "data": data}, {"do": "stop", "id": 1}]
    assert list(messages(io.BytesIO(sent[: len(data)]))) == []
