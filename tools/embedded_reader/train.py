"""Teaches the embedded model to read: `python -m tools.embedded_reader.train --data FOLDER --out FOLDER`.

FOLDER holds fairytaleqa-train.jsonl and squality-train.jsonl, and the -val files that it is judged on.
Stopped, it goes on when it is started again; the adapter, the curve and the figures are written as it goes.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.events import Progress
from core.hardware.cpu import cpu_flags
from core.model import lora
from core.model.config import load_config
from core.model.loader import weights_in
from core.paths import write_whole
from core.text.tokenizer import Tokenizer
from core.training.checkpoint import Workshop
from core.training.curves import draw_losses
from tools.embedded_reader import lessons
from tools.embedded_reader.human_questions import about_articles, about_sentences, about_the_world
from tools.embedded_reader.instructions import greedy_answers
from tools.embedded_reader.lessons import Lesson
from tools.embedded_reader.network import Packed
from tools.embedded_reader.packing import Packer, mixed, optimiser_steps, skipped
from tools.embedded_reader.trainer import LoraModel, ReaderRecipe, ReaderTrainer

_CPU = torch.device("cpu")
_OTHERS = {
    "articles": "squad2.jsonl",
    "sentences": "qamr.jsonl",
    "world": "storyspark-train.jsonl",
}  # more kinds, taught where a share of them is asked for
_JUDGED = {"facts": 30, "summaries": 4, "bare": 6}  # lessons of each kind


def teach(
    recipe: ReaderRecipe,
    target: Path,
    data: Path,
    style: ReadingStyle,
    *,
    out: Path,
    report: Progress,
    every: int = 50,
    start: Path | None = None,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device = _CPU,
    seconds: float = math.inf,
) -> Path:
    """Teaches until the recipe is done, or so many seconds are over, towards which the rate falls then, and
    returns the adapter's file in `out`; `start` is an adapter to go on from. What is there already is not
    done again. Raises UserError when the data or the folder do not suit.
    """
    if start is not None:
        recipe = replace(recipe, start=hashlib.sha256(start.read_bytes()).hexdigest())
    workshop = Workshop(out)
    workshop.agree(recipe)
    tokenizer = Tokenizer.load(target)
    packer = Packer(tokenizer, style, longest=recipe.longest, refusals=recipe.refusals)
    chat = workshop.kept(
        "chat", lambda: list(greedy_answers(target, style, tokenizer, lambda part: report("chat", part)))
    )
    factors = lora.load_factors(start) if start is not None else None
    taught = LoraModel(recipe, load_config(target), weights_in(target), dtype, factors, device)
    learner = ReaderTrainer(recipe, taught)
    if (state := workshop.load_state(device)) is not None:
        learner.load(state)
    apart = _apart(data, style, packer)
    if not learner.history:
        learner.judge(apart)  # where the curve begins
    ordered = mixed(_sources(recipe, data, style, chat), packer, seed=recipe.seed, shares=recipe.shares)
    begun = time.monotonic()

    def done() -> float:
        return max(learner.tokens / recipe.tokens, (time.monotonic() - begun) / seconds)

    share = done()
    for held in optimiser_steps(skipped(ordered, learner.tokens), recipe.step_tokens):
        if share >= 1:
            break
        learner.learn(held, share)
        share = done()
        report(f"step {learner.step:,}, loss {learner.losses[-1]:.3f}", share)
        if learner.step % every == 0 or share >= 1:
            point = learner.judge(apart)
            report(json.dumps(point), share)
            workshop.save_state(learner.state())
            lora.save_factors(out / "adapter.safetensors", taught.adapter())
            write_whole(out / "figures.json", json.dumps(learner.history, indent=1))
            draw_losses(learner.history, out / "curves.png")
    return out / "adapter.safetensors"


def _sources(
    recipe: ReaderRecipe, data: Path, style: ReadingStyle, chat: Sequence[tuple[str, str, bool]]
) -> dict[str, Callable[[int], Sequence[Lesson]]]:
    """The lessons of one turn by kind."""
    tales, stories = (
        lessons.load_lessons(data / "fairytaleqa-train.jsonl"),
        lessons.load_lessons(data / "squality-train.jsonl"),
    )
    told = lessons.about_stories(stories, style, str(recipe.seed))
    of_notes = [lesson for lesson in told if lesson.branches[0].kind == "story"]
    of_passages = [lesson for lesson in told if lesson.branches[0].kind == "summary"]
    text = lessons.bare(stories, str(recipe.seed))
    others = {
        kind: lessons.load_lessons(data / file) for kind, file in _OTHERS.items() if recipe.shares.get(kind)
    }
    found = {
        "facts": lambda turn: lessons.about_passages(tales, style, f"{recipe.seed}/{turn}"),
        "summaries": lambda turn: of_passages,
        "stories": lambda turn: of_notes,
        "chat": lambda turn: lessons.chat_lessons(chat),
        "bare": lambda turn: text,
        "articles": lambda turn: about_articles(others["articles"], style, f"{recipe.seed}/{turn}"),
        "sentences": lambda turn: about_sentences(others["sentences"], style, f"{recipe.seed}/{turn}"),
        "world": lambda turn: about_the_world(tales, others["world"], style, f"{recipe.seed}/{turn}"),
    }
    if unknown := recipe.shares.keys() - found.keys():
        said = "No lessons are of the kind {kind}. Name kinds of these: {kinds}."
        raise UserError(said.format(kind=", ".join(sorted(unknown)), kinds=", ".join(found)))
    return {kind: lessons_of for kind, lessons_of in found.items() if recipe.shares.get(kind)}


def _apart(data: Path, style: ReadingStyle, packer: Packer) -> dict[str, Sequence[Packed]]:
    """What the curve is judged on: the beginning of the val files."""
    tales, stories = (
        lessons.load_lessons(data / "fairytaleqa-val.jsonl"),
        lessons.load_lessons(data / "squality-val.jsonl"),
    )
    found = {
        "facts": lessons.about_passages(tales, style, "apart"),
        "summaries": [
            x for x in lessons.about_stories(stories, style, "apart") if x.branches[0].kind == "summary"
        ],
        "bare": lessons.bare(stories, "apart"),
    }
    return {
        kind: list(itertools.islice(filter(None, map(packer.packed, held)), _JUDGED[kind]))
        for kind, held in found.items()
    }


def main() -> None:
    """The recipe of the adapter in assets/models, with its settings."""
    from core.model.store.catalogue import EMBEDDED, find
    from core.model.store.embedded import ensure_embedded

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with the questions and summaries")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the adapter and its figures")
    parser.add_argument(
        "--start", type=Path, help="an adapter to go on from (default: the model as published)"
    )
    usual = ReaderRecipe(target="")
    numbers = ("tokens", "step_tokens", "rank", "learning_rate", "seed", "refusals")
    for name in numbers:
        value = getattr(usual, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    said = f"KIND=SHARE of the tokens, once a kind; kinds: {', '.join((*usual.shares, *_OTHERS))}"
    parser.add_argument("--share", type=_share, action="append", default=[], help=said)
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after so many, if not before")
    parser.add_argument("--every", type=int, default=50, help="steps between two points of the curve")
    parser.add_argument("--device", type=torch.device, default=_CPU, help="cpu (default) or cuda")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    entry = find(EMBEDDED)
    recipe = ReaderRecipe(
        target=entry.name,
        shares={**usual.shares, **dict(given.share)},
        **{name: getattr(given, name) for name in numbers},
    )
    on_card = given.device.type == "cuda"
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass knows no bias of its own
    teach(
        recipe,
        ensure_embedded(taught=False),
        given.data.expanduser(),
        ReadingStyle.from_record(entry.reading),
        out=given.out.expanduser(),
        report=_say,
        start=given.start,
        # without AMX, products of bfloat16 take half as long again as those of float32
        dtype=torch.bfloat16 if on_card or "amx_bf16" in cpu_flags() else torch.float32,
        every=given.every,
        device=given.device,
        seconds=given.seconds,
    )


def _share(said: str) -> tuple[str, float]:
    kind, _equals, share = said.partition("=")
    return kind, float(share)


def _say(said: str, part: float | None) -> None:
    sys.stdout.write(f"{part or 0:6.1%} {said}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
