"""The same checkpoint in transformers, with positions stretched as ours are: what other benchmarks compare
with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.generation.streamers import BaseStreamer

from core.model.loader import HEAD_IDS
from core.planning.plan import Plan
from core.training.target import in_transformers


def load_peer(folder: Path, plan: Plan, *, device: str = "cpu") -> Any:
    """The model in the plan's dtype, on all the plan's threads; stretched by YaRN where the plan stretches it
    (core.model.rope).
    """
    torch.set_num_threads(plan.threads)
    config = AutoConfig.from_pretrained(folder)
    if plan.context_stretch > 1:
        config.rope_parameters = {
            "rope_type": "yarn",
            "rope_theta": config.rope_parameters["rope_theta"],
            "factor": plan.context_stretch,
            "original_max_position_embeddings": config.max_position_embeddings,
        }
    return in_transformers(folder, getattr(torch, plan.dtype), config=config).to(device)


def peer_prefill_s(model: Any, ids: Sequence[int]) -> float:
    """Seconds to read a prompt, with its KV kept and the logits of its last token."""
    prompt, started = torch.tensor([list(ids)], device=model.device), time.perf_counter()
    with torch.inference_mode():
        model(prompt, use_cache=True, logits_to_keep=1).logits[0, -1, 0].item()
    return time.perf_counter() - started


def kept_cache(model: Any) -> Callable[[int], DynamicCache]:
    """A KV cache for several answers to one prompt: asked for a prompt of so many tokens, it holds all but
    the last, if it ever did.
    """
    cache = DynamicCache(config=model.config)

    def cut(length: int) -> DynamicCache:
        if cache.get_seq_length() >= length:
            cache.crop(length - 1 - cache.get_seq_length())  # a negative number of tokens to take away
        return cache

    return cut


class Clock(BaseStreamer):
    """Notes how many tokens generate() gives, and when."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, float]] = []

    def put(self, value: torch.Tensor) -> None:
        """One round's tokens; the first is the prompt itself."""
        self.rounds.append((value.numel(), time.perf_counter()))

    def end(self) -> None:
        """Nothing more comes."""


def peer_answer(
    model: Any, ids: Sequence[int], count: int, **how: Any
) -> tuple[float, list[int], list[float]]:
    """Greedy: seconds until the first token, the tokens, and the seconds of each but the first. `how` goes to
    generate().
    """
    clock, prompt, started = Clock(), torch.tensor([list(ids)], device=model.device), time.perf_counter()
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=count,
        streamer=clock,
        **how,
    )
    given = clock.rounds[1:]
    times = [
        (now - before) / many
        for (_, before), (many, now) in zip(given, given[1:], strict=False)
        for _ in range(many)
    ]
    return given[0][1] - started, out[0, len(ids) :].tolist(), times


def load_peer_draft(folder: Path, target: Any) -> Any:
    """A trained draft (core.model.loader.load_draft) for `generate(assistant_model=...)`: the target's
    embedding, and its output rows of the tokens that the draft's head covers."""
    weights = load_file(folder / "model.safetensors")
    covered = weights.pop(HEAD_IDS).long()
    draft = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=target.dtype).eval()
    left = draft.load_state_dict(weights, strict=False)
    assert (
        set(left.missing_keys) <= {"model.embed_tokens.weight", "lm_head.weight"} and not left.unexpected_keys
    ), left
    draft.model.embed_tokens.weight = draft.lm_head.weight = target.get_input_embeddings().weight
    outside = torch.ones(target.config.vocab_size, dtype=torch.bool)
    outside[covered] = False
    draft.lm_head.register_forward_hook(lambda head, inputs, logits: logits.masked_fill(outside, -torch.inf))
    return draft
