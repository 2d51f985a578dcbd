"""Slips in core/cache: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_CACHE = (
    "tests/cache/test_contract.py",
    "tests/cache/test_selection.py",
    "tests/cache/test_looking.py",
    "tests/cache/test_offloaded.py",
)
_SNAPSHOT = ("tests/cache/test_snapshot.py",)
_LARGE = ("tests/cache/test_large_snapshots.py",)
_WINDOWS = ("tests/cache/test_windows.py",)
_SEQUENCES = ("tests/test_reopen.py", "tests/test_random_sequences.py")
_STATES = ("tests/cache/test_states.py",)
_FAMILIES = ("tests/model/test_llama.py", "tests/model/test_families.py")
_SHORT = ("tests/backend/test_cuda_short_passes.py",)
_OFFLOADED = ("tests/test_offloaded_engine.py",)
_REPLAYS = ("tests/model/test_recorded_verification.py",)

SLIPS = (
    Slip("core/cache/streaming.py", "self._evicted += excess", "self._evicted = excess", _CACHE),
    Slip(
        "core/cache/streaming.py",
        "skipped = length - self.window - self.length",
        "skipped = length - self.window - self.length + 1",
        _CACHE,
    ),
    Slip(
        "core/cache/streaming.py",
        "slots = torch.arange(end, device=self.backend.device)",
        "slots = torch.arange(1, end + 1, device=self.backend.device)",
        ("tests/model/test_replay.py",),
    ),
    Slip("core/cache/retrieval.py", "self._selected + token - self._anchor", "token - self._anchor", _CACHE),
    Slip("core/cache/selection.py", "shares[..., :1] = torch.inf", "shares[..., :1] += 0.0", _CACHE),
    Slip("core/cache/selection.py", "length - own + 1 if own else length", "length", _CACHE),
    Slip("core/cache/offloaded.py", "resident = min(self.length, ", "resident = max(0, ", _CACHE),
    Slip("core/cache/snapshot.py", "or zlib.crc32(data) != checksum", "or False", _SNAPSHOT),
    Slip("core/cache/snapshot.py", 'if facts["model"] != self._key:', "if False:", _SNAPSHOT),
    Slip(
        "core/cache/snapshot.py",
        "if len(ids) - stored <= (0 if self._layered else _NEARLY):",
        "if len(ids) - stored <= 1 << 20:",
        _SNAPSHOT,
    ),
    Slip("core/cache/windows.py", "end - window, end)", "end - window - 1, end)", _WINDOWS),
    Slip("core/cache/windows.py", "part(q[:-1].flip(0), keys", "part(q[:-1], keys", _WINDOWS),
    Slip("core/cache/layered_retrieval.py", "        self._follow(length)\n", "", _WINDOWS),
    Slip("core/cache/layered.py", "self.side.put_back(self._before)", "pass", _WINDOWS),
    Slip(
        "core/cache/layered.py",
        "kept.end == length:\n                self.side.put_back(kept)",
        "kept.end == length:\n                pass",
        _WINDOWS,
    ),
    Slip("core/cache/states.py", "if self._tip_ends[place] != start:", "if False:", _STATES),
    Slip("core/cache/states.py", "if self._tip_ends[place] == length:", "if True:", _STATES),
    Slip("core/cache/states.py", "self._states[place], 0\n", "self._states[place], first\n", _STATES),
    Slip("core/cache/states.py", "self._states, self._tips = self._tips, self._states", "pass", _STATES),
    Slip("core/cache/states.py", "0 if at % size else", "0 if (at - start) % size else", _STATES),
    Slip("core/cache/states.py", "self._states.copy_(source._states)", "pass", _STATES),
    Slip("core/cache/layered.py", "if one.end <= length]\n", "]\n", _STATES),
    Slip("core/cache/side_files.py", 'facts["model"] == model_key and ', "", ("tests/test_reopen.py",)),
    Slip("core/cache/layered.py", "length = min(length, self._held)", "", ("tests/test_reopen.py",)),
    Slip(
        "core/cache/windows.py",
        "following = self._reached(end)",
        "following = self._reached(start)",
        _WINDOWS,
    ),
    Slip("core/cache/windows.py", "base - self.base : end - self.base", ": end - base", _WINDOWS),
    Slip("core/cache/windows.py", "self._bases = [kept.base] * self._shape.layers", "pass", _WINDOWS),
    Slip("core/cache/snapshot.py", "into.put_side(kept)", "pass", _SEQUENCES),
    Slip(
        "core/cache/two_sizes.py", "for part in self._parts:\n", "for part in self._parts[:1]:\n", _FAMILIES
    ),
    Slip(
        "core/cache/snapshot.py", "self._read_before.pop(path, None)  # a file", "pass  # a file", _SNAPSHOT
    ),
    Slip("core/cache/disk.py", "if path not in kept]", "if path not in list(keep)]", _LARGE),
    Slip(
        "core/cache/fixed.py",
        "both_as_rows(k, v, q.shape[-1], keys.dtype)",
        "(k.to(keys.dtype), v.to(keys.dtype))",
        _REPLAYS,
    ),
    Slip(
        "core/cache/windows.py",
        "window=window)\n        if found",
        "window=window + 1)\n        if found",
        _SHORT,
    ),
    Slip(
        "core/cache/offloaded.py", "merge_into(*total, *self._on_host.part())", "self._on_host.part()", _CACHE
    ),
    Slip("core/cache/offloaded.py", " or self.observer is not None", "", _CACHE),
    Slip("core/cache/offloaded.py", " or self.observer is not None", "", _OFFLOADED),
    Slip(
        "core/cache/offloaded.py",
        "length=on_host)",
        "length=max(1, on_host - self.block_tokens))",
        _OFFLOADED,
    ),
    Slip(
        "core/cache/offloaded.py",
        "merge_into(*total, *self._on_host.part())",
        "total[0].add_(self._on_host.part()[0]).div_(2)",
        _OFFLOADED,
    ),
    Slip("core/cache/ring.py", "max(0, self._starts[layer] - block * size)", "0", _CACHE),
)
