"""Plain decoding behind a context too long to be read for a measurement: a part of it is read, and its keys
and values stand there several times. A token attends to as many rows as behind a text of that length; what it
says means nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

TIMES = 8
Step = Callable[[int], int]  # a token -> the likeliest next one


def answered(step: Step, first: int, count: int, clock: Callable[[], float]) -> tuple[list[int], list[float]]:
    """Tokens, and the seconds of each but the first."""
    tokens, ticks = [first], []
    for _token in range(count + 1):
        tokens.append(step(tokens[-1]))
        ticks.append(clock())
    return tokens[1:], [after - before for before, after in zip(ticks, ticks[1:], strict=False)]


# ---- llama.cpp ---------------------------------------------------------------------------------------------


def llama_cpp_model(gguf: Path, **given: Any) -> Any:
    """Its class Llama with room for a second sequence, by which keys and values are copied; the class has no
    option for that.
    """
    from llama_cpp import Llama, llama_cpp

    defaults = llama_cpp.llama_context_default_params

    def with_a_second() -> Any:
        params = defaults()
        params.n_seq_max, params.kv_unified = 2, True
        return params

    llama_cpp.llama_context_default_params = with_a_second
    try:
        return Llama(str(gguf), **given)
    finally:
        llama_cpp.llama_context_default_params = defaults


def repeat_in_llama_cpp(model: Any, read: int) -> None:
    """The cells of `read` tokens, TIMES over: state of sequence 0 to 1, moved on, and 0's as well."""
    from llama_cpp import llama_cpp

    context = model._ctx
    size = llama_cpp.llama_state_seq_get_size(context.ctx, 0)
    state = (ctypes.c_uint8 * size)()
    assert llama_cpp.llama_state_seq_get_data(context.ctx, state, size, 0) == size
    for copy in range(1, TIMES):
        assert llama_cpp.llama_state_seq_set_data(context.ctx, state, size, 1), f"copy {copy} found no room"
        context.kv_cache_seq_shift(1, 0, -1, copy * read)
        context.kv_cache_seq_cp(1, 0, -1, -1)
        assert context.kv_cache_seq_rm(1, -1, -1) or llama_cpp.llama_memory_seq_rm(context.memory, 1, -1, -1)
    model.n_tokens = TIMES * read
    assert llama_cpp.llama_memory_seq_pos_max(context.memory, 0) == model.n_tokens - 1


def step_of_llama_cpp(model: Any) -> Step:
    """Its next token."""
    import numpy as np

    def step(token: int) -> int:
        model.eval([token])
        logits = np.ctypeslib.as_array(model._ctx.get_logits(), shape=(model.n_vocab(),))
        return int(logits.argmax())

    return step


# ---- ours --------------------------------------------------------------------------------------------------


def repeat(cache: Any, read: int) -> None:
    """The rows of `read` tokens, TIMES over."""
    for layer in range(cache.shape.layers):
        k, v = (rows.clone() for rows in cache.rows(layer, 0, read))
        for copy in range(1, TIMES):
            cache.write(layer, copy * read, k, v)
    cache.advance((TIMES - 1) * read)
    cache.commit(TIMES * read)


def step_of_ours(model: Any, cache: Any) -> Step:
    """Its next token."""
    return partial(_step, model, cache)


def _step(model: Any, cache: Any, token: int) -> int:
    with torch.inference_mode():
        return int(model.forward([token], cache)[-1].argmax())
