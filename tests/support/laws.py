"""Tolerance and levels of the tests of exactness."""

from __future__ import annotations

EXACT = 1e-9


LEVELS = {
    "plain": {"drafter": "none", "middle": "none"},
    "draft": {"drafter": "model", "middle": "none"},
    "ngram": {"drafter": "ngram", "middle": "none"},
    "streaming": {"drafter": "none", "middle": "streaming"},
    "retrieval": {"drafter": "none", "middle": "retrieval"},
    "triforce": {"drafter": "model", "middle": "retrieval"},
    "triforce, n-gram": {"drafter": "ngram", "middle": "retrieval"},
    "triforce, perfect draft": {"drafter": "perfect", "middle": "retrieval"},
    "triforce, perfect middle": {"drafter": "model", "middle": "itself"},
    "triforce, stubborn draft": {"drafter": "stubborn", "middle": "retrieval"},
    "triforce, wrong draft": {"drafter": "wrong", "middle": "streaming"},
}
