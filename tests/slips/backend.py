"""Slips in core/backend: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_ORDER = ("tests/backend/test_order.py",)
_RANKS = ("tests/ranks/test_logits.py", "tests/ranks/test_exchange.py")
_BACKEND = (
    "tests/backend/test_decode_kernels.py",
    "tests/backend/test_kernels.py",
    "tests/backend/test_cpu_attention.py",
    "tests/backend/test_kv_rows.py",
    "tests/backend/test_native.py",
)
_SHORT = ("tests/backend/test_cuda_short_passes.py",)
_STATES = ("tests/backend/test_card_delta.py",)

SLIPS = (
    Slip(
        "core/backend/shared/blockwise.py",
        "view(blocks, 1, 1, block_tokens) >= length",
        "view(blocks, 1, 1, block_tokens) > length",
        _BACKEND,
    ),
    Slip(
        "core/backend/cpu/backend.py",
        "length - (blocks - 1) * block_tokens :]",
        "length - (blocks - 1) * block_tokens + 1 :]",
        _BACKEND,
    ),
    Slip(
        "core/backend/cpu/backend.py",
        "if blocks == 1 or length == blocks * block_tokens:",
        "if blocks == 1 or length > (blocks - 1) * block_tokens:",
        _BACKEND,
    ),
    Slip(
        "core/backend/shared/kv_rows.py",
        ".clamp_(min=_LEAST).div_(_MOST)",
        ".clamp_(min=_LEAST).div_(120)",
        _BACKEND,
    ),
    # wrong held to AVX2 alone, and by less than the kernel's own trial sees
    Slip(
        "core/backend/cpu/native/layers.py",
        "        heads = self._heads\n        return rows, space",
        "        heads = self._heads\n"
        "        held = __import__('os').environ.get('TRIFORCE_ISA') == 'avx2'\n"
        "        return rows * (1 + 1e-6 * (held and n > 1)), space",
        ("tests/test_instruction_sets.py",),
    ),
    Slip("core/backend/ranks.py", "if self.rank == 0 else [0.0]", "if self.rank == 1 else [0.0]", _RANKS),
    Slip("core/backend/cuda/triton/attention.py", "window=window)[0]", "window=_ALL)[0]", _BACKEND),
    Slip(
        "core/backend/cuda/triton/trial.py",
        "shares.append(_in_window(kernel, q, k, v, length))",
        "pass",
        _SHORT,
    ),
    Slip(
        "core/backend/cuda/triton/sizes.py", "self.warps or rows", "rows", ("tests/backend/test_triton.py",)
    ),
    Slip("core/backend/cuda/triton/delta.py", " and sizes.width % _WHOLE == 0", "", _STATES),
    Slip(
        "core/backend/cuda/triton/delta_trial.py",
        "not torch.equal(alone[0], found[at])",
        "not torch.allclose(alone[0], found[at], atol=_OFF)",
        _STATES,
    ),
    Slip(
        "core/backend/cuda/triton/delta_trial.py",
        "return torch.equal(torch.cat(parted), found) and torch.equal(again, own)",
        "return True",
        _STATES,
    ),
    Slip(
        "core/backend/cuda/triton/delta.py",
        "(some, state, state, found, ",
        "(some, state, state.clone(), found, ",
        _STATES,
    ),
    Slip("core/backend/cuda/streams.py", "        arrived.synchronize()\n", "", _ORDER),
    Slip("core/backend/cuda/streams.py", "        self._q = q\n", "", _ORDER),
)
