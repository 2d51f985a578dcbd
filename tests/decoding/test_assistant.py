"""Drafts by the small model that comes along with Gemma 4: what it attends to is what stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.cache.layered_retrieval import retrieval_over
from core.decoding.ahead import AssistantDrafter, HeardModel, HeardRows
from core.decoding.decoder import Decoder
from core.decoding.draft_length import FixedLength
from core.decoding.drafters import VerifiedDrafter
from core.decoding.randomness import SeededRandomness
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.request import Params
from tests.support.ahead import noted_drafts
from tests.support.assistant import assistant_oracle, our_assistant
from tests.support.greedy_answers import answer
from tests.support.reopening import reopened
from tests.support.tiny import SHARED, VOCAB, oracle, ours, whole_cache


def tokens(n: int) -> list[int]:
    return torch.randint(0, VOCAB, (n,), generator=torch.Generator().manual_seed(9)).tolist()


class Watched(AssistantDrafter):
    """Held against transformers' assistant over what transformers' model makes of what stands."""

    reference: torch.nn.Module
    theirs: torch.nn.Module
    checked = 0

    def _begun(self, committed: Any) -> torch.Tensor:
        found, ids = super()._begun(committed), list(committed)
        made = self.reference.model(torch.tensor([ids[:-1]]), return_shared_kv_states=True)
        window, shared = self.reference.config.sliding_window, dict(made.shared_kv_states)
        shared["sliding_attention"] = tuple(part[:, :, -window:] for part in shared["sliding_attention"])
        embedded = self.reference.get_input_embeddings()(torch.tensor([[ids[-1]]]))
        want = self.theirs(
            inputs_embeds=torch.cat((embedded, made.last_hidden_state[:, -1:]), dim=-1),
            position_ids=torch.tensor([[len(ids) - 1]]),
            shared_kv_states=shared,
        )
        assert float((self._logits(found)[0] - want.logits[0, 0]).abs().max()) < 1e-3, len(ids)
        self.checked += 1
        return found


@torch.inference_mode()
@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("family", ["gemma4_text", SHARED])
def test_it_drafts_from_what_stands(family: str, levels: int):
    """After every number of accepted tokens: a row of a rejected token, or of one before it, would be another
    law. With a budget that holds all of the text the retrieval level sees what the full cache holds.
    """
    reference = oracle(family)
    target = ours(reference)
    theirs = assistant_oracle(reference)
    cache, heard = whole_cache(target, 384), HeardRows(most=30)
    sampling, dice, listened = Sampling(6.0, 1.0, 1.0, 0), SeededRandomness(5), HeardModel(target, heard)
    verified_by, how = cache, {}
    if levels == 3:
        verified_by = retrieval_over(cache, budget=256, chunk=8, tail_tokens=64, slack=40)
        how = {"refresh": RetrievalRefresh(cache, verified_by)}
    assistant = our_assistant(target, theirs)
    drafter = Watched(assistant, verified_by, heard, sampling, dice, length=FixedLength())
    drafter.reference, drafter.theirs, top = reference, theirs, drafter
    if levels == 3:
        top = VerifiedDrafter(drafter, listened, verified_by, sampling, dice, gamma=2, length=FixedLength())
    decoder = Decoder(top, listened, cache, sampling, dice, gamma=4, **how)
    committed, stood = tokens(70), Counter[int]()
    for _ in range(20):
        result = decoder.round(committed, most=20)
        committed.extend(result.tokens)
        stood[len(result.tokens)] += 1
    assert drafter.checked >= 15 and len(stood) >= 2
    assert cache.length == len(committed) - 1


def test_without_a_row_of_the_token_before_nothing_is_drafted():
    """At an answer's beginning, and over a cache that holds other tokens."""
    reference = oracle("gemma4_text")
    target, heard = ours(reference), HeardRows(most=8)
    assistant, cache = our_assistant(target, assistant_oracle(reference)), whole_cache(target, 64)
    drafter = AssistantDrafter(assistant, cache, heard, Sampling(0.0, 1.0, 1.0, 0), SeededRandomness(0))
    assert drafter.propose(tokens(5), 3).tokens == ()
    with torch.inference_mode():
        HeardModel(target, heard).forward(tokens(4), cache)
        assert len(drafter.propose(tokens(5), 3).tokens) == 3
        assert drafter.propose(tokens(4), 3).tokens == ()


def test_over_a_cache_in_host_memory_lookup_alone_drafts(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Straight before it; below the retrieval level the assistant does."""
    drafts = noted_drafts(monkeypatch)
    made = reopened(tmp_path, family="gemma4_text", offloaded=True, along=True)
    params = Params(temperature=0.0, max_new_tokens=12, mode="draft")
    plain = answer(made, tokens(300), replace(params, mode="autoregressive"))
    assert answer(made, tokens(300), params) == plain and not drafts
    made.plan = replace(made.plan, straight=False)
    assert answer(made, tokens(300), replace(params, mode="triforce")) == plain and any(drafts)
