"""Teaches a model to read: low-rank changes to its matrices, by AdamW.

The matrices W + up @ down are computed once a step and the network's gradients by them are folded into the
factors' (d down = up' dW, d up = dW down'), so that what is learned is exactly what is merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from core.errors import UserError
from core.model import lora
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig
from tools.embedded_reader.network import FUSED, Joined, Network, Packed
from tools.embedded_reader.packing import SHARES, WEIGHTS

_NORMS = ("input_layernorm", "post_attention_layernorm")
_LONGEST_GRADIENT = 1.0
_WARM_UP = 8  # steps
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class ReaderRecipe:
    """Everything a run is made of beside its data. Lengths in tokens. Raises UserError for values out of
    range.
    """

    MAY_CHANGE: ClassVar[tuple[str, ...]] = ("tokens", "step_tokens", "learning_rate")

    target: str
    start: str = ""  # sha256 of the adapter that the run goes on from; none: nothing is learned yet
    tokens: int = 650_000  # read in all; a run may be made longer or shorter until its rate falls
    step_tokens: int = 1024
    longest: int = 2048
    rank: int = 32
    strength: float = 2.0  # of up @ down
    learning_rate: float = 7e-4
    falling: float = 0.7  # the last part of the run, in which the rate falls to nothing
    seed: int = 1
    shares: Mapping[str, float] = field(default_factory=lambda: dict(SHARES))  # of the tokens, by kind
    refusals: float = WEIGHTS["foreign"]  # what an id of a refusal weighs, that of an answer being 1

    def __post_init__(self) -> None:
        checks = (
            (self.tokens >= self.step_tokens, "tokens is {tokens}; it must be at least {step_tokens}."),
            (1 <= self.rank <= 256, "rank is {rank}; 1 to 256 are useful."),
            (0 < self.falling <= 1, "falling is {falling}; it is a share of the run, above 0 to 1."),
        )
        for fine, said in checks:
            if not fine:
                values = {name: getattr(self, name) for name in self.__dataclass_fields__}
                raise UserError(said.format(**values))

    def rate(self, step: int, done: float) -> float:
        """The learning rate after a share of the run: a short rise, constant, then falling to nothing."""
        left = max(0.0, 1 - done) / self.falling
        return self.learning_rate * min(1.0, (step + 1) / _WARM_UP, left)


class LoraModel:
    """The model with its factors: `layers` are what the network computes with. `start`: factors to go on
    from, as `adapter` gives them.
    """

    def __init__(
        self,
        recipe: ReaderRecipe,
        config: ModelConfig,
        weights: Weights,
        dtype: torch.dtype,
        start: lora.Factors | None = None,
        device: torch.device = _CPU,
    ) -> None:
        self._recipe, self.device = recipe, device
        dice = torch.Generator().manual_seed(recipe.seed)
        self.base: dict[str, torch.Tensor] = {}
        self.factors: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self.layers: list[dict[str, torch.Tensor]] = []
        self._rows: dict[str, tuple[torch.Tensor, slice]] = {}  # by matrix: where it lies in a fused one
        for index in range(config.layers):
            layer = {
                name: weights.tensor(f"model.layers.{index}.{name}.weight").to(device, dtype)
                for name in _NORMS
            }
            for fused, names in FUSED.items():
                found = {name: f"model.layers.{index}.{name}" for name in names}
                held = [weights.tensor(f"{full}.weight") for full in found.values()]
                layer[fused] = torch.cat(held).to(device, dtype).requires_grad_()
                row = 0
                for full, matrix in zip(found.values(), held, strict=True):
                    self.base[full] = matrix.half().to(device)
                    self._rows[full] = layer[fused], slice(row, row + len(matrix))
                    row += len(matrix)
                    bound = 1 / math.sqrt(matrix.shape[1])
                    down = torch.empty(recipe.rank, matrix.shape[1]).uniform_(-bound, bound, generator=dice)
                    up = torch.zeros(matrix.shape[0], recipe.rank)
                    self.factors[full] = down.to(device), up.to(device)
            self.layers.append(layer)
        for full, (down, up) in (start or {}).items():
            if len(down) > recipe.rank:
                said = "The adapter to go on from has rank {rank}. Name at least this one."
                raise UserError(said.format(rank=len(down)))
            # ranks that the start lacks begin as those of a fresh adapter
            self.factors[full][0][: len(down)] = down.to(device)
            self.factors[full][1][:, : len(down)] = (up / recipe.strength).to(device)
        self.network = Network(
            config,
            embedding=weights.tensor("model.embed_tokens.weight").to(device, dtype),
            norm=weights.tensor("model.norm.weight").to(device, dtype),
            positions=recipe.longest,
        )

    def merge(self) -> None:
        """Writes base and factors, summed, into the matrices that are computed with."""
        for name, (down, up) in self.factors.items():
            value = lora.merged_weight(self.base[name], down, up * self._recipe.strength)
            fused, rows = self._rows[name]
            with torch.no_grad():
                fused[rows] = value.to(fused.dtype)

    def gradients(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each factor with its gradient, from the matrices' gradients, which are dropped."""
        found = []
        for name, (down, up) in self.factors.items():
            fused, rows = self._rows[name]
            back = fused.grad[rows].float() * self._recipe.strength
            found += [(down, up.T @ back), (up, back @ down.T)]
        for layer in self.layers:
            for name in FUSED:
                layer[name].grad = None
        return found

    def adapter(self) -> lora.Factors:
        """The factors with the strength in them: what is added is up @ down."""
        return {
            name: (down.cpu(), (up * self._recipe.strength).cpu())
            for name, (down, up) in self.factors.items()
        }

    def losses(self, lessons: Sequence[Packed]) -> Iterator[torch.Tensor]:
        """What the lessons cost, one by one; on a card, which short passes leave idle, all in one."""
        if self.device == _CPU:
            yield from (self.network.loss(lesson, self.layers) for lesson in lessons)
        else:
            yield self.network.joined_loss(Joined.of(lessons, self.device), self.layers)


class ReaderTrainer:
    """Takes one step at a time. `tokens` counts what was read."""

    def __init__(self, recipe: ReaderRecipe, taught: LoraModel) -> None:
        self.step, self.tokens = 0, 0
        self.losses: list[float] = []  # since the last judgement
        self.history: list[dict[str, Any]] = []
        self._recipe, self._taught = recipe, taught
        parameters = [factor for pair in taught.factors.values() for factor in pair]
        self._optimizer = torch.optim.AdamW(
            parameters, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0
        )

    def learn(self, lessons: Sequence[Packed], done: float) -> None:
        """One optimiser step, after that share of the run."""
        self._taught.merge()
        total = float(sum(lesson.weight.sum() for lesson in lessons))
        loss = 0.0
        for each in self._taught.losses(lessons):
            value = each / total
            value.backward()
            loss += float(value.detach())
        for factor, gradient in self._taught.gradients():
            factor.grad = gradient
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, _LONGEST_GRADIENT)
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.rate(self.step, done)
        self._optimizer.step()
        self.step += 1
        self.tokens += sum(len(lesson.ids) for lesson in lessons)
        self.losses.append(loss)

    @torch.no_grad()
    def judge(self, apart: dict[str, Sequence[Packed]]) -> dict[str, Any]:
        """A point for the curves: the mean loss per answer token, by kind, on what is not learned from.
        `loss` is None where nothing was learned since the last one.
        """
        self._taught.merge()
        judged = {}
        for kind, lessons in apart.items():
            losses = [float(value) for value in self._taught.losses(lessons)]
            judged[kind] = sum(losses) / float(sum(lesson.weight.sum() for lesson in lessons))
        mean = sum(self.losses) / len(self.losses) if self.losses else None
        self.history.append({"step": self.step, "tokens": self.tokens, "loss": mean, "judged": judged})
        self.losses = []
        return self.history[-1]

    def state(self) -> dict[str, Any]:
        """Everything `load` needs to go on as if nothing had happened; taken right after a judgement."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "history": self.history,
            "factors": [list(pair) for pair in self._taught.factors.values()],
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.step, self.tokens, self.history = state["step"], state["tokens"], state["history"]
        for pair, held in zip(self._taught.factors.values(), state["factors"], strict=True):
            for factor, value in zip(pair, held, strict=True):
                factor.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
