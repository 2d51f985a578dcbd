"""A head that was built to look at what is asked for is found among random ones, and nothing where there is
none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from core.cache.query_recorder import AttentionHead
from core.conversation.reading import ReadingStyle
from core.hardware.measured import Measurements
from core.model.store import catalogue
from core.model.store.evidence_heads import chosen_heads, keep_heads
from core.text.tokenizer import Frame
from core.tuning.heads import NAMES, _chosen, find_heads
from tests.support.tiny import VOCAB, engine, oracle, ours

STYLE = ReadingStyle(system="S", answer_prompt="About the above: {question} Answer.")
SECTIONS, TOKENS = 7, 30
COMMON = re.findall(r"\w+", "the keeper rowed out at dusk and nobody saw him come back before tide turned")
TEXT = "\n\n".join(" ".join(COMMON[(3 * at + i) % len(COMMON)] for i in range(9)) for at in range(130))


class Words:
    """A token for each word; a name has one of its own."""

    def encode(self, text: str) -> list[int]:
        return [self._id(word) for word in re.findall(r"\w+|\n", text)]

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def frame(self, system: str) -> Frame:
        return Frame((90, 91), (92, 93), (94,))

    def _id(self, word: str) -> int:
        if word in NAMES:
            return 70 + NAMES.index(word)
        return 1 + sum(ord(char) * (at + 3) for at, char in enumerate(word)) % 68


def model(head: int | None) -> torch.nn.Module:
    """Random, but for a head of the first layer that pays for the same token as the query's. Its signal lies
    where positions turn by next to nothing.
    """
    made = oracle(kv_heads=4, rope={"rope_type": "default", "rope_theta": 1e14})
    if head is not None:
        attention, rows = made.model.layers[0].self_attn, slice(8 * head, 8 * head + 8)
        aimed = torch.zeros(8, 32)
        for at, dim in enumerate((1, 2, 3, 5, 6, 7)):
            aimed[dim, at] = 2.5
        table = torch.zeros(VOCAB, 32)
        table[:, :6] = torch.nn.functional.normalize(
            torch.randn(VOCAB, 6, generator=torch.Generator().manual_seed(3))
        )
        with torch.no_grad():
            attention.q_proj.weight[rows] = aimed
            attention.k_proj.weight[rows] = aimed
            made.model.layers[0].input_layernorm.weight.fill_(1.0)
            made.model.embed_tokens.weight.copy_(table)
    return made


@pytest.mark.parametrize("head", [0, 2])
def test_the_head_that_looks_is_found(head: int):
    """Named by layer and head as the caches count them; a stretch's sections must be the asked sentence's."""
    found = find_heads(
        engine(ours(model(head))), Words(), STYLE, TEXT, sections=SECTIONS, section_tokens=TOKENS
    )
    assert found.questions == 4 * SECTIONS
    assert found.heads[0] == AttentionHead(0, head)
    assert found.right[0] >= 0.75 * found.questions
    assert len(found.heads) == 1, "random heads are no better than chance"


def test_random_heads_are_not_kept_nor_those_of_a_text_that_is_too_short():
    made = engine(ours(model(None)))
    assert find_heads(made, Words(), STYLE, TEXT, sections=SECTIONS, section_tokens=TOKENS).heads == ()
    short = find_heads(made, Words(), STYLE, TEXT[:300], sections=SECTIONS, section_tokens=TOKENS)
    assert (short.heads, short.questions) == ((), 0)


def test_a_handful_near_the_best_is_kept():
    heads = [AttentionHead(0, at) for at in range(8)]
    found = _chosen(heads, [51, 56, 20, 53, 41, 52, 55, 54], 56)
    assert found.heads == (
        AttentionHead(0, 1),
        AttentionHead(0, 6),
        AttentionHead(0, 7),
        AttentionHead(0, 3),
        AttentionHead(0, 5),
    )
    assert _chosen(heads, [50, 56, 20, 43, 41, 52, 51, 45], 56).heads == (
        AttentionHead(0, 1),
        AttentionHead(0, 5),
        AttentionHead(0, 6),
    )
    assert _chosen(heads[:3], [20, 27, 1], 56).heads == ()


def test_what_was_found_here_comes_before_the_catalogue(tmp_path: Path):
    """Until the model's files change."""
    entry = catalogue.find(catalogue.EMBEDDED)
    folder, measured = tmp_path / "model", Measurements(tmp_path)
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert chosen_heads(entry, folder, measured) == entry.heads != ()
    keep_heads(folder, measured, ((3, 1),))
    assert chosen_heads(entry, folder, measured) == ((3, 1),)
    (folder / "config.json").write_text('{"other": 1}')
    assert chosen_heads(entry, folder, measured) == entry.heads
