"""What llama.cpp computes of a file, by the package xllamacpp (it is on PyPI)."""

from __future__ import annotations

from pathlib import Path

import pytest

LIKELY = 200  # tokens that are told


def by_llama_cpp(file: Path, ids: list[int], ends: tuple[int, ...]) -> dict[int, dict[int, float]]:
    """Log-probabilities of the likeliest tokens behind ids[:end], by end; keys and values in 32 bits."""
    package = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: it is on PyPI")
    given = package.CommonParams()
    given.model.path, given.n_ctx, given.n_parallel, given.warmup = str(file), 1024, 1, False
    given.cache_type_k = given.cache_type_v = package.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = package.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server, found = package.Server(given), {}
    for end in ends:
        asked = {"prompt": ids[:end], "n_predict": 1, "n_probs": LIKELY, "temperature": 0.0, "top_k": 0}
        (said,) = server.handle_completions(asked)["choices"][0]["logprobs"]["content"]
        found[end] = {one["id"]: one["logprob"] for one in said["top_logprobs"]}
    return found
