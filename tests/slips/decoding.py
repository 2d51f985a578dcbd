"""Slips in core/decoding: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_LAW = (
    "tests/decoding/test_exact_law.py",
    "tests/decoding/test_rounds.py",
    "tests/decoding/test_sampling.py",
    "tests/decoding/test_mutants.py",
)
_RANKED = ("tests/ranks/test_answers.py",)
_AHEAD = ("tests/decoding/test_ahead.py", "tests/model/test_ahead.py")
_ASSISTANT = ("tests/decoding/test_assistant.py", "tests/model/test_assistant.py")

SLIPS = (
    Slip(
        "core/decoding/ahead.py",
        "self._heard.of(newest - 1, newest)",
        "self._heard.of(self._heard.end - 1, self._heard.end)",
        _ASSISTANT,
    ),
    Slip(
        "core/decoding/ahead.py",
        "and self._cache.length == len(committed) - 1",
        "and self._cache.length >= len(committed) - 1",
        _ASSISTANT,
    ),
    Slip(
        "core/decoding/ahead.py",
        "rows = torch.cat((held[: start - self.start], rows))",
        "rows = torch.cat((held, rows))",
        _AHEAD,
    ),
    Slip(
        "core/decoding/ahead.py",
        "self._keep(min(self._known, self._exact, length - 1))",
        "self._keep(min(self._known, length - 1))",
        _AHEAD,
    ),
    Slip(
        "core/decoding/ahead.py",
        "        self._learn(length)\n        self._keep(min(self._known, length - 1))",
        "        self._learn(length)\n        self._keep(length - 1)",
        _AHEAD,
    ),
    Slip(
        "core/decoding/ahead.py", "ids = committed[begin + 1 : end + 1]", "ids = committed[begin:end]", _AHEAD
    ),
    Slip(
        "core/decoding/ahead.py",
        "distributions.append(self._sampling.probs(logits, so_far)[0])",
        "distributions.append(logits.softmax(-1)[0])",
        _AHEAD,
    ),
    Slip(
        "core/decoding/verify.py",
        "residual = (p - draft.probs[accepted]).clamp_(min=0.0)",
        "residual = p.clone()",
        _LAW,
    ),
    Slip(
        "core/decoding/verify.py",
        "(accepted < len(tokens)).to(p.dtype)",
        "(accepted <= len(tokens)).to(p.dtype)",
        _LAW,
    ),
    Slip("core/decoding/verify.py", "Verdict(n, min(n + 1, g)", "Verdict(n, g", _LAW),
    Slip("core/decoding/verify.py", "p = target_probs[accepted]", "p = target_probs[accepted - 1]", _LAW),
    Slip(
        "core/decoding/sampling.py",
        "seen = [*tail, *drafted[: n - 1]]",
        "seen = [*tail, *tail[:1] * (n - 1)] if tail else [*drafted[: n - 1]]",
        _LAW,
    ),
    Slip("core/decoding/sampling.py", "return order[: last + 1]", "return order[: last + 2]", _LAW),
    Slip("core/decoding/sampling.py", "cumulative(top)[:, :-1] >=", "cumulative(top)[:, 1:] >=", _LAW),
    Slip("core/decoding/randomness.py", "(u < accept_probs.double())", "(u <= accept_probs.double())", _LAW),
    Slip("core/decoding/randomness.py", "self._used += n", "self._used += 1", _LAW),
    Slip(
        "core/decoding/drafters.py",
        "self._index.forget(length)",
        "pass",
        (*_LAW, "tests/decoding/test_reads.py"),
    ),
    Slip(
        "core/decoding/drafters.py",
        "distributions.append(probs[: len(new)])",
        "distributions.append(probs[-len(new) :])",
        (*_LAW, "tests/decoding/test_reads.py"),
    ),
    Slip(
        "core/decoding/decoder.py",
        "min(verdict.accepted, end - 1)",
        "verdict.accepted",
        ("tests/decoding", "tests/test_engine.py"),
    ),
    Slip("core/decoding/decoder.py", "if token in self.eos_ids or ends(token):", "if ends(token):", _LAW),
    Slip(
        "core/decoding/ngrams.py",
        "tokens[ends - n] == tokens[-n]",
        "tokens[ends - n] == tokens[-1]",
        ("tests/decoding/test_ngrams.py",),
    ),
    Slip(
        "core/decoding/draft_length.py",
        "self._resting >= _RESTS",
        "self._resting > 2 * _RESTS",
        ("tests/decoding/test_draft_length.py",),
    ),
    Slip("core/decoding/randomness.py", "self._ranks.numbers(*parts)", "to_host(*parts)", _RANKED),
)
