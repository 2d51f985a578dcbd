"""Rows of the table of peers."""

from __future__ import annotations


def row(context: int, prefill_s: float, tbt_ms: float, distinct: float = 0.9) -> dict:
    return {
        "context": context,
        "prefill_s": prefill_s,
        "tbt_mean_ms": tbt_ms,
        "tbt_p50_ms": tbt_ms,
        "tbt_p95_ms": tbt_ms,
        "turns_ms": [tbt_ms],
        "spread": 0.0,
        "distinct_4grams": distinct,
        "tokens": [],
    }
