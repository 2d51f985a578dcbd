"""A trained draft in the runtime: it borrows from the target, and what its head does not cover has
probability zero.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, verify
from core.errors import UserError
from core.model.llama import LlamaModel
from core.model.loader import load_draft, load_model
from core.model.store.catalogue import from_folder
from tests.support.tiny import VOCAB, oracle, ours

HEAD = [0, 3, 4, 17, 40, 41, 66, 90]


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    oracle(tied=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def draft_dir(target_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's first layer as a draft that knows the tokens HEAD."""
    folder = tmp_path_factory.mktemp("draft")
    weights = {
        name: value.clone()
        for name, value in oracle(tied=True).state_dict().items()
        if name.startswith("model.layers.0.") or name == "model.norm.weight"
    }
    save_file({**weights, "head_ids": torch.tensor(HEAD, dtype=torch.int32)}, folder / "model.safetensors")
    config = json.loads((target_dir / "config.json").read_text(encoding="utf-8"))
    config.update(num_hidden_layers=1, draft={"target": "tiny", "head_tokens": len(HEAD)})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def logits(target_dir: Path, draft_dir: Path) -> torch.Tensor:
    """[4, vocab] of a draft over four tokens."""
    backend = CpuBackend(torch.float32)
    target = load_model(target_dir, backend, positions=32)
    return forward(load_draft(draft_dir, backend, target=target, target_dir=target_dir, positions=32))


def forward(model: LlamaModel) -> torch.Tensor:
    cache = FullKVCache(model.config.kv_shape, 32, model.backend, block_tokens=32)
    return model.forward([5, 9, 60, 2], cache)


def test_its_rows_are_the_targets(logits: torch.Tensor, target_dir: Path, draft_dir: Path, tmp_path: Path):
    """The same layer with a full head of its own gives the same logits where both speak."""
    for file in target_dir.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((target_dir / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}), encoding="utf-8")
    whole = forward(load_model(tmp_path, CpuBackend(torch.float32), positions=32))
    assert torch.allclose(logits[:, HEAD], whole[:, HEAD], atol=1e-5)
    others = [token for token in range(VOCAB) if token not in HEAD]
    assert bool(torch.isneginf(logits[:, others]).all())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1.0),
        Sampling(temperature=0.01),
        Sampling(temperature=0.6, top_p=0.9),
        Sampling(temperature=1.0, repetition_penalty=1.3),
        Sampling(temperature=0.7, top_p=0.5, repetition_penalty=2.0),
    ],
)
def test_no_sampling_makes_nan_of_minus_infinity(logits: torch.Tensor, sampling: Sampling):
    """A penalty times -inf, or a nucleus wider than the head, must leave a law that verify can use."""
    history = [0, 1, 2, 3, 4, 40, 50]
    q = sampling.probs(logits, history, (5, 3, 90))
    assert bool(torch.isfinite(q).all())
    assert torch.allclose(q.sum(-1), torch.ones(4))
    assert float(q[:, [token for token in range(VOCAB) if token not in HEAD]].sum()) == 0.0
    p = Sampling(temperature=1.0).probs(torch.zeros(5, VOCAB), history)
    dice = SeededRandomness(3)
    for _ in range(20):
        tokens = tuple(int(dice.draw(row)) for row in q)
        assert set(tokens) <= set(HEAD)
        verdict = verify(Draft(tokens, q), p, dice)
        assert 0 <= verdict.token < VOCAB


def test_a_draft_for_another_target_is_refused(draft_dir: Path, target_dir: Path):
    backend = CpuBackend(torch.float32)
    target = load_model(target_dir, backend, positions=32)
    target.config = replace(target.config, hidden=2 * target.config.hidden)
    with pytest.raises(UserError, match="trained for another target"):
        load_draft(draft_dir, backend, target=target, target_dir=target_dir, positions=32)


def test_the_catalogue_knows_a_draft_by_its_folder(draft_dir: Path):
    """The planner counts the head it has, not the vocabulary it speaks."""
    entry = from_folder(draft_dir)
    assert (entry.role, entry.shape.vocab, entry.shape.layers) == ("draft", len(HEAD), 1)


# ---- a checkpoint of its own, padded differently -----------------------------------------------------------


@pytest.mark.parametrize("rows", [VOCAB, VOCAB + 31])
def test_padding_rows_of_the_vocabulary_do_not_matter(tmp_path: Path, rows: int):
    """Qwen2.5 has 151,936 rows below 7B and 152,064 from there on: one tokenizer, two paddings."""
    reference = oracle(tied=True)
    reference.resize_token_embeddings(rows)
    reference.save_pretrained(tmp_path)
    wider = oracle()
    wider.resize_token_embeddings(VOCAB + 8)
    target = ours(wider)
    draft = load_draft(tmp_path, CpuBackend(torch.float32), target=target, target_dir=tmp_path, positions=64)
    ids = [5, 17, 96, 3]
    with torch.inference_mode():
        logits = draft.forward(ids, FullKVCache(draft.config.kv_shape, 64, draft.backend, block_tokens=64))
        want = reference(torch.tensor([ids])).logits[0]
        padding = draft.forward(
            [VOCAB + 7], FullKVCache(draft.config.kv_shape, 64, draft.backend, block_tokens=64)
        )
    common = min(rows, VOCAB + 8)
    assert logits.shape == (4, VOCAB + 8)
    torch.testing.assert_close(logits[:, :common], want[:, :common], rtol=1e-4, atol=1e-4)
    assert bool((logits[:, common:] == -torch.inf).all()) and not padding.isnan().any()


def test_a_draft_of_another_size_is_refused(tmp_path: Path):
    reference = oracle(tied=True)
    reference.resize_token_embeddings(VOCAB + 2000)
    reference.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="same vocabulary"):
        load_draft(
            tmp_path, CpuBackend(torch.float32), target=ours(oracle()), target_dir=tmp_path, positions=64
        )
