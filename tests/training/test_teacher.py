"""The target as teacher: what it writes follows its own law, and what it leaves is that law."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.model.config import load_config
from core.training.prompts import TrainingPrompt
from core.training.shards import TEACHER_TEMPERATURES, TargetProbs
from core.training.teacher import Teacher
from tests.support.tiny import VOCAB, oracle

EOS = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target")
    oracle(tied=True, eos_token_id=EOS).save_pretrained(path)
    return path


def laws(
    folder: Path, prompts: list[TrainingPrompt], head: list[int], *, new_tokens: int = 24
) -> TargetProbs:
    teacher = Teacher(
        folder, head, eos_ids=load_config(folder).eos_ids, device=torch.device("cpu"), dtype=torch.float32
    )
    return [*teacher.write(prompts, new_tokens=new_tokens, seed=3)][-1]


def reference(ids: torch.Tensor) -> torch.Tensor:
    """Logits [n, vocab] of one pass without any cache."""
    with torch.no_grad():
        return oracle(tied=True, eos_token_id=EOS)(ids[None].long()).logits[0]


def test_the_stored_laws_are_the_targets(folder: Path):
    """Row by row what one pass over the text says, within the head's vocabulary, at every temperature."""
    head = list(range(0, VOCAB, 1))[:80]
    stored = laws(
        folder, [TrainingPrompt((1, 2, 3, 4), 1.0, 1.0), TrainingPrompt((9, 8, 70, 6), 0.6, 1.1)], head
    )
    assert stored.ids.shape == (2, 28)
    for row in range(2):
        logits = reference(stored.ids[row])[:, head]
        for index, temperature in enumerate(TEACHER_TEMPERATURES):
            p = torch.softmax(logits / temperature, -1)
            top = p.gather(-1, stored.top[row].long())
            assert torch.allclose(stored.rest[row, :, index].float(), 1 - top.sum(-1), atol=2e-3)
            known = torch.softmax(stored.logits[row].float() / temperature, -1) * top.sum(-1, keepdim=True)
            assert torch.allclose(known, top, atol=2e-3)


def test_greedy_rows_take_the_likeliest_token(folder: Path):
    """A cache that is written in the wrong place shows here."""
    stored = laws(folder, [TrainingPrompt((1, 2, 3, 4), 0.0, 1.0)], list(range(VOCAB)))
    ids = stored.ids[0].long()
    wanted = reference(ids)
    wanted[:, EOS] = -torch.inf  # a bare text has no end
    assert wanted.argmax(-1)[3:-1].tolist() == ids[4:].tolist()


def test_when_an_answer_ends_the_user_goes_on(folder: Path):
    """The follow-up is fed as it stands, and the answer after it is the target's again."""
    prompts = [
        TrainingPrompt((number, 2, 3, 4), 1.0, 1.0, ((50, 51, 52), (60, 61))) for number in range(10, 26)
    ]
    stored = laws(folder, prompts, list(range(VOCAB)), new_tokens=60)
    rows = [row.tolist() for row in stored.ids]
    assert all(EOS not in row[4:] for row in rows)  # the frame's own end takes its place
    first = [row for row in rows if _holds(row, [50, 51, 52])]
    assert first
    assert all(_holds(row, [50, 51, 52]) for row in rows if _holds(row, [60, 61]))


def _holds(row: list[int], piece: list[int]) -> bool:
    return any(row[i : i + len(piece)] == piece for i in range(len(row)))
