"""Compares adapters by what they say, the likeliest alone, to questions that nothing was taught on:

    python -m tools.embedded_reader.judge --data FOLDER ADAPTER ... --out FILE

FairytaleQA's validation split with the passage, and the tenth of SQuAD 2.0 that is kept apart. To choose
among adapters in a minute of one card; what the program makes of the chosen one says
`benchmarks.quality --reading`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.reading import cases, scores
from core.conversation.asking import asked_of_passage
from core.conversation.reading import ReadingStyle
from core.model import lora
from core.model.loader import weights_in
from core.paths import write_whole
from core.text.prompt import build_prompt
from core.text.tokenizer import Tokenizer

_ANSWER_TOKENS = 48
_AT_ONCE = {"cpu": 16, "cuda": 256}  # questions
_LONGEST = 2048


class Judge:
    """The model as published, which reads by one adapter after another."""

    def __init__(self, folder: Path, style: ReadingStyle, device: torch.device) -> None:
        from core.training.target import in_transformers

        self._style, self._tokenizer, self._device = style, Tokenizer.load(folder), device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._model = in_transformers(folder, dtype).to(device)
        weights = weights_in(folder, in_codes=False)
        self._base = {  # in float16, as it was learned on
            name.removesuffix(".weight"): weights.tensor(name).half().to(device)
            for name, value in self._model.named_parameters()
            if ".layers." in name and value.ndim == 2
        }

    @torch.no_grad()
    def answers(self, factors: lora.Factors, asked: Sequence[cases.Question]) -> Iterator[dict[str, Any]]:
        """What the model with these factors says to each question, in any order."""
        for name, (down, up) in factors.items():
            merged = lora.merged_weight(self._base[name], down.to(self._device), up.to(self._device))
            self._model.get_parameter(f"{name}.weight").copy_(merged)
        rows = sorted(((self._prompt(one), one) for one in asked), key=lambda row: len(row[0]))
        at_once = _AT_ONCE[self._device.type]
        for start in range(0, len(rows), at_once):
            held = rows[start : start + at_once]
            for said, (_ids, one) in zip(self._said([ids for ids, _one in held]), held, strict=True):
                refused = scores.said_refusal(said, self._style.refusal)
                row = {"kind": one.kind, "story": one.story, "question": one.question, "said": said}
                f1 = {"f1": scores.f1(said, one.answers)} if one.answers else {}
                yield row | {"refused": refused} | f1

    def _prompt(self, one: cases.Question) -> list[int]:
        encode, frame = self._tokenizer.encode, self._tokenizer.frame(self._style.system)
        asked = encode(asked_of_passage(self._style, one.question))
        return build_prompt(frame, encode(one.text + "\n\n"), (), asked, room=_LONGEST).ids

    def _said(self, prompts: Sequence[Sequence[int]]) -> Iterator[str]:
        end = self._tokenizer.frame(self._style.system).bridge[0]
        longest = max(map(len, prompts))
        ids = torch.tensor([[end] * (longest - len(row)) + list(row) for row in prompts])
        seen = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
        written = self._model.generate(
            ids.to(self._device),
            attention_mask=seen.to(self._device),
            max_new_tokens=_ANSWER_TOKENS,
            do_sample=False,
            pad_token_id=end,
            eos_token_id=end,
        )
        for row in written[:, longest:].tolist():
            yield self._tokenizer.decode(row[: row.index(end)] if end in row else row).strip()


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of questions of one source: F1 of those that their passage answers, the share of these that is refused,
    and by kind the share of the others that is answered all the same.
    """
    own = [row for row in rows if row["kind"] == "own"]
    found = {
        "questions": len(own),
        "f1": sum(row["f1"] for row in own) / max(1, len(own)),
        "refused": sum(row["refused"] for row in own) / max(1, len(own)),
    }
    for kind in sorted({row["kind"] for row in rows} - {"own"}):
        held = [row["refused"] for row in rows if row["kind"] == kind]
        found[f"answered_{kind}"] = 1 - sum(held) / len(held)
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    """The command."""
    from core.model.store.catalogue import EMBEDDED, find
    from core.model.store.embedded import ensure_embedded

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("adapters", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, help="questions of each source (default: all)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="cpu or cuda")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    judge = Judge(
        ensure_embedded(taught=False), ReadingStyle.from_record(find(EMBEDDED).reading), given.device
    )
    stories = cases.read_stories(given.data, "fairytaleqa", "val")
    asked = {
        "fairytaleqa": cases.with_passage(stories, given.count, 0),
        "squad2": cases.of_passages(given.data, given.count, 0),
    }
    found = {}
    for adapter in given.adapters:
        factors = lora.load_factors(adapter)
        rows = {name: list(judge.answers(factors, held)) for name, held in asked.items()}
        found[str(adapter)] = {"figures": {name: figures(held) for name, held in rows.items()}, "rows": rows}
        sys.stdout.write(f"{adapter}: {json.dumps(found[str(adapter)]['figures'])}\n")
        sys.stdout.flush()
        write_whole(given.out, json.dumps(found))


if __name__ == "__main__":
    main()
