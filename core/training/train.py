"""Trains a draft model for a target: the target reads and writes, the draft learns its distributions. Stops
and goes on at any point.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.events import Progress
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, load_config
from core.model.loader import HEAD_IDS, GgufWeights, weights_in
from core.text.tokenizer import Tokenizer
from core.text.words import translated as _
from core.training.checkpoint import Workshop
from core.training.curves import draw_curves
from core.training.distillation import agreement, loss
from core.training.network import DraftNetwork
from core.training.prompts import Prompts, frequent_tokens, read_texts
from core.training.recipe import Recipe
from core.training.shards import Shards, TargetProbs, batches
from core.training.teacher import Teacher

_WARM_UP = 0.05  # of all steps
_LEAST = 0.1  # of the learning rate, at the end
_LONGEST_GRADIENT = 1.0
_JUDGED_ROWS = 4
_APART = 1_000_003  # seeds of different runs do not meet


@dataclass(frozen=True, slots=True)
class TrainingDevice:
    """Where it computes. `dtype` is that of the target; the draft trains in float32, with products in
    bfloat16 where the target has it.
    """

    device: torch.device
    dtype: torch.dtype


def site(device: str, dtype: str, *, threads: int) -> TrainingDevice:
    """The site that a plan names."""
    torch.set_num_threads(threads)
    return TrainingDevice(torch.device(device), getattr(torch, dtype))


def train(
    recipe: Recipe,
    target: Path,
    sources: Sequence[Path],
    style: ReadingStyle,
    *,
    out: Path,
    site: TrainingDevice,
    report: Progress,
    every: int = 20,
    start: Path | None = None,
) -> Path:
    """Trains until the recipe is done and returns `out`, which then holds the draft. What is there already is
    not done again.

    Every so many steps the state, the draft and the curves are written, so that it can be stopped and used at
    any time. `start`: a trained draft whose weights and vocabulary a new `out` begins with, instead of the
    target's first layers. Raises UserError when the texts, the folder or the start do not suit.
    """
    workshop = Workshop(out)
    workshop.agree(recipe)
    tokenizer, config = Tokenizer.load(target), load_config(target)
    texts = read_texts(sources, tokenizer)
    prompts = Prompts(
        texts, tokenizer, style, tokens=recipe.prompt_tokens, rows=recipe.shard_rows, seed=recipe.seed
    )
    begun = _begun(recipe, config, start) if start else weights_in(target)
    head_ids = workshop.vocabulary(lambda: _vocabulary(recipe, config, begun, texts, prompts))
    shards = Shards(workshop.folder)
    _teach(
        recipe,
        prompts,
        shards,
        lambda: Teacher(target, head_ids, eos_ids=config.eos_ids, device=site.device, dtype=site.dtype),
        report,
    )
    network = _network(recipe, config, weights_in(target), head_ids)
    network.load_state_dict({name: begun.tensor(f"model.{name}").float() for name in network.state_dict()})
    network.to(site.device)
    learner = Learner(recipe, network, site)
    if (state := workshop.load_state(site.device)) is not None:
        learner.load(state)
    judged = _moved(
        TargetProbs(*(getattr(shards.load(0), field.name)[:_JUDGED_ROWS] for field in fields(TargetProbs))),
        site.device,
    )
    target_config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    stage = _("Step {step} of {steps}, loss {loss:.3f}")
    for distributions in _remaining(recipe, shards, learner.step):
        learner.learn(_moved(distributions, site.device))
        said = stage.format(step=f"{learner.step:,}", steps=f"{recipe.steps:,}", loss=learner.losses[-1])
        report(said, learner.step / recipe.steps)
        if learner.step % every == 0 or learner.step == recipe.steps:
            learner.judge(judged)
            workshop.save_state(learner.state())
            workshop.export(network, head_ids, target_config, recipe)
            draw_curves(learner.history, workshop.out / "curves.png")
    return out


class Learner:
    """The draft and its optimiser. `step` counts what was learned from; all chance comes from the recipe's
    seed and the step.
    """

    def __init__(self, recipe: Recipe, network: DraftNetwork, site: TrainingDevice) -> None:
        self.step = 0
        self.losses: list[float] = []  # since the last judgement
        self.history: list[dict[str, Any]] = []
        self._recipe, self._network, self._site = recipe, network, site
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
        )

    def learn(self, distributions: TargetProbs) -> None:
        """One optimiser step."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.learning_rate * _share(self.step, self._recipe.steps)
        dice = torch.Generator().manual_seed(self._recipe.seed * _APART + self.step)
        # float16 would need its gradients scaled: products in bfloat16 or not at all
        with torch.autocast(
            self._site.device.type, torch.bfloat16, enabled=self._site.dtype == torch.bfloat16
        ):
            value = loss(self._network, distributions, dice)
        self._optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), _LONGEST_GRADIENT)
        self._optimizer.step()
        self.step += 1
        self.losses.append(float(value.detach()))

    def judge(self, distributions: TargetProbs) -> None:
        """A point for the curves."""
        mean = sum(self.losses) / len(self.losses)
        self.history.append(
            {"step": self.step, "loss": mean, "judged": asdict(agreement(self._network, distributions))}
        )
        self.losses = []

    def state(self) -> dict[str, Any]:
        """Everything `load` needs to go on as if nothing had happened; taken right after a judgement."""
        return {
            "step": self.step,
            "history": self.history,
            "network": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.step, self.history = state["step"], state["history"]
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])


def _teach(
    recipe: Recipe, prompts: Prompts, shards: Shards, teacher: Callable[[], Teacher], report: Progress
) -> None:
    """Has the target write the shards that are missing."""
    missing = [number for number in (0, *recipe.shards) if number not in shards]
    loaded = teacher() if missing else None
    for done, number in enumerate(missing):
        steps = loaded.write(
            prompts.of_shard(number),
            new_tokens=recipe.new_tokens,
            seed=recipe.seed + number * recipe.shard_rows,
        )
        for step in steps:
            if isinstance(step, TargetProbs):
                shards.save(number, step)
            else:
                report(_("The target reads and writes"), (done + step) / len(missing))


def _begun(recipe: Recipe, config: ModelConfig, start: Path) -> Weights | GgufWeights:
    """The weights of the trained draft `start`. Raises UserError where it is none or of other sizes."""
    begun, weights = load_config(start), weights_in(start)
    sizes = (begun.layers, begun.hidden, begun.vocab)
    if HEAD_IDS not in weights or sizes != (recipe.layers, config.hidden, config.vocab):
        said = _(
            "{folder} is no draft to start from: it must come from train-draft, with {layers} layers and the "
            "sizes of this target. Name another one, or leave --start out."
        )
        raise UserError(said.format(folder=start, layers=recipe.layers))
    return weights


def _vocabulary(
    recipe: Recipe,
    config: ModelConfig,
    begun: Weights | GgufWeights,
    texts: Sequence[Sequence[int]],
    prompts: Prompts,
) -> list[int]:
    """The tokens of the draft that it begins with, else the most frequent ones."""
    if HEAD_IDS in begun:
        return begun.tensor(HEAD_IDS).tolist()
    always = [*prompts.control_ids(), *config.eos_ids]
    return frequent_tokens(texts, always, size=recipe.head_tokens, vocab=config.vocab)


def _network(
    recipe: Recipe, config: ModelConfig, weights: Weights | GgufWeights, head_ids: Sequence[int]
) -> DraftNetwork:
    """The draft beside the target, its weights still to be loaded."""
    embedding = weights.tensor("model.embed_tokens.weight").float()
    output = embedding if config.tied else weights.tensor("lm_head.weight").float()
    return DraftNetwork(
        config,
        layers=recipe.layers,
        embedding=embedding,
        head=output[torch.tensor(head_ids)],
        sinks=recipe.sinks,
        window=recipe.window,
    )


def _remaining(recipe: Recipe, shards: Shards, step: int) -> Iterator[TargetProbs]:
    """The batches from `step` to the end of the last epoch."""
    per_epoch = recipe.steps_per_epoch
    for epoch in range(step // per_epoch, recipe.epochs):
        skip = step % per_epoch if epoch == step // per_epoch else 0
        yield from batches(
            shards, recipe.shards, rows=recipe.batch_rows, seed=recipe.seed * _APART + epoch, skip=skip
        )


def _share(step: int, total: int) -> float:
    """Of the learning rate: a linear rise, then half a cosine."""
    warm = max(1, int(total * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return _LEAST + (1 - _LEAST) * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm))) / 2


def _moved(distributions: TargetProbs, device: torch.device) -> TargetProbs:
    return TargetProbs(*(getattr(distributions, field.name).to(device) for field in fields(TargetProbs)))
