"""The target as teacher: it reads prompts, writes on, and leaves the distribution of every token. Knows
nothing of the draft but its vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers.cache_utils import Cache, DynamicLayer

from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.training.prompts import TrainingPrompt
from core.training.shards import KEPT, TEACHER_TEMPERATURES, TargetProbs
from core.training.target import in_transformers

_PIECE = 1024  # rows of logits held at a time
_TOP_P = 0.9


class Teacher:
    """The target model as transformers runs it: rows of equal length, one KV cache for all."""

    def __init__(
        self,
        folder: Path,
        head_ids: Sequence[int],
        *,
        eos_ids: frozenset[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._model = in_transformers(folder, dtype).to(device)
        self._device, self._eos_ids = device, eos_ids
        self._output = self._model.get_output_embeddings().weight
        self._head = self._output[torch.tensor(head_ids, device=device)].contiguous()

    @torch.inference_mode()
    def write(
        self, prompts: Sequence[TrainingPrompt], *, new_tokens: int, seed: int
    ) -> Iterator[float | TargetProbs]:
        """Reads the prompts (of one length), writes `new_tokens` behind each. Yields the share done, at last
        the Distributions.
        """
        rows = [_Row(prompt, self._eos_ids, seed + number) for number, prompt in enumerate(prompts)]
        assert len({len(row.ids) for row in rows}) == 1, "prompts of one shard have one length"
        room = len(rows[0].ids) + new_tokens
        cache = Cache(layers=[_Preallocated(room) for _ in range(self._model.config.num_hidden_layers)])
        fed = torch.tensor([row.ids for row in rows], device=self._device)
        pieces = []
        for step in range(new_tokens + 1):
            hidden = self._model.model(fed, past_key_values=cache, use_cache=True).last_hidden_state
            pieces.append(self._distributions(hidden))
            if step < new_tokens:
                logits = F.linear(hidden[:, -1], self._output).float()
                fed = torch.tensor(
                    [[row.next(distribution)] for row, distribution in zip(rows, logits.cpu(), strict=True)],
                    device=self._device,
                )
                yield (step + 1) / (new_tokens + 1)
        ids = torch.tensor([row.ids for row in rows], dtype=torch.int32)
        yield TargetProbs(ids, *(torch.cat(part, dim=1).cpu() for part in zip(*pieces, strict=True)))

    def _distributions(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """top, logits and rest (see TargetProbs) of hidden [rows, n, hidden]."""
        rows, n, _ = hidden.shape
        parts = [
            _compressed(F.linear(piece, self._head).float()) for piece in hidden.flatten(0, 1).split(_PIECE)
        ]
        return tuple(torch.cat(part).view(rows, n, -1) for part in zip(*parts, strict=True))


def _compressed(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """top, logits and rest (see TargetProbs) of logits [n, head]."""
    top, index = logits.topk(min(KEPT, logits.shape[-1]), dim=-1)
    rest = []
    for temperature in TEACHER_TEMPERATURES:
        inside = (torch.logsumexp(top / temperature, -1) - torch.logsumexp(logits / temperature, -1)).exp()
        rest.append((1.0 - inside).clamp_(min=0.0))
    return index.int(), (top - torch.logsumexp(logits, -1, keepdim=True)).half(), torch.stack(rest, -1).half()


class _Preallocated(DynamicLayer):
    """A cache layer that is written in place: growing by concatenation copies all of it for every token."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room, self._held = room, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DynamicLayer."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            batch, heads, _, head_dim = key_states.shape
            self._both = key_states.new_empty(2, batch, heads, self._room, head_dim)
        start, self._held = self._held, self._held + key_states.shape[-2]
        self._both[0, :, :, start : self._held] = key_states
        self._both[1, :, :, start : self._held] = value_states
        self.keys, self.values = self._both[:, :, :, : self._held]
        return self.keys, self.values


class _Row:
    """One text as it grows: what the target draws, and between answers what the user says next."""

    def __init__(self, prompt: TrainingPrompt, eos_ids: frozenset[int], seed: int) -> None:
        self.ids = list(prompt.ids)
        self._prompt, self._eos_ids = prompt, eos_ids
        self._follow_ups = list(prompt.follow_ups)
        self._said: list[int] = []  # what is still to be fed of a follow-up
        self._start = len(self.ids)
        self._randomness = SeededRandomness(seed)

    def next(self, logits: torch.Tensor) -> int:
        """The token after `logits` [vocab], put at the end of `ids`."""
        token = self._said.pop(0) if self._said else self._drawn(logits)
        self.ids.append(token)
        return token

    def _drawn(self, logits: torch.Tensor) -> int:
        if not self._follow_ups:
            logits[list(self._eos_ids)] = -torch.inf  # a bare text has no end
        sampling = Sampling(self._prompt.temperature, _TOP_P, self._prompt.repetition_penalty, self._start)
        token = int(self._randomness.draw(sampling.probs(logits[None], self.ids)[0]))
        if token not in self._eos_ids:
            return token
        self._said = list(self._follow_ups.pop(0))
        self._start = len(self.ids) + len(self._said)
        return self._said.pop(0)
