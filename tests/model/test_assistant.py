"""Gemma 4's assistant, held against transformers' on tiny random models."""

from __future__ import annotations

import pytest
import torch

from core.errors import UserError
from tests.support.assistant import GROUPS, assistant_oracle, our_assistant
from tests.support.tiny import SHARED, oracle, ours, whole_cache

VOCAB = 8 * GROUPS
CLOSE = 2e-4


def tokens(n: int) -> list[int]:
    return torch.randint(0, VOCAB, (n,), generator=torch.Generator().manual_seed(3)).tolist()


@torch.inference_mode()
@pytest.mark.parametrize("grouped", [False, True], ids=["all tokens", "groups"])
@pytest.mark.parametrize("family", ["gemma4_text", SHARED])
def test_what_it_says_is_what_transformers_says(family: str, grouped: bool):
    """A first token, and two more from its own rows, beyond the window; of tokens of groups that are not near
    it says nothing. The cache is as it was.
    """
    more = {"vocab_size_per_layer_input": VOCAB} if family == SHARED else {}
    reference = oracle(family, vocab_size=VOCAB, **more)
    theirs, target = assistant_oracle(reference, grouped=grouped), ours(reference)
    ids, assistant, cache = tokens(61), our_assistant(target, theirs), whole_cache(target, 128)
    row = target.rows(ids[:-1], cache)[-1:]
    made = reference.model(torch.tensor([ids[:-1]]), return_shared_kv_states=True)
    window = reference.config.sliding_window
    shared = dict(made.shared_kv_states)
    shared["sliding_attention"] = tuple(part[:, :, -window:] for part in shared["sliding_attention"])
    hidden, token = made.last_hidden_state[:, -1:], ids[-1]
    for _ in range(3):
        embedded = reference.get_input_embeddings()(torch.tensor([[token]]))
        want = theirs(
            inputs_embeds=torch.cat((embedded, hidden), dim=-1),
            position_ids=torch.tensor([[len(ids) - 1]]),
            shared_kv_states=shared,
        )
        own = assistant.follow(token, row, cache)
        logits = assistant.logits(own)[0]
        said = logits.isfinite()
        assert int(said.sum()) == (VOCAB // 4 if grouped else VOCAB)
        assert float((logits - want.logits[0, 0])[said].abs().max()) < CLOSE
        row, hidden, token = assistant.onwards(own), want.last_hidden_state, int(logits.argmax())
        assert float((row - hidden[0]).abs().max()) < CLOSE
    assert cache.length == len(ids) - 1


def test_another_models_is_refused():
    """By the shape of what takes the model's rows in."""
    theirs = assistant_oracle(oracle("gemma4_text", vocab_size=VOCAB))
    other = ours(oracle("gemma4_text", vocab_size=VOCAB, hidden_size=16))
    with pytest.raises(UserError, match="pre_projection"):
        our_assistant(other, theirs)


def test_what_the_model_never_says_it_does_not_draft():
    reference = oracle("gemma4_text", vocab_size=VOCAB)
    target = ours(reference, source={**_source(reference), "suppress_tokens": [4, 9]})
    assistant, cache = our_assistant(target, assistant_oracle(reference)), whole_cache(target, 64)
    with torch.inference_mode():
        row = target.rows(tokens(9), cache)[-1:]
        logits = assistant.logits(assistant.follow(3, row, cache))[0]
    assert (~logits.isfinite()).nonzero().flatten().tolist() == [4, 9]


def _source(reference: torch.nn.Module) -> dict:
    from core.model.families import text_config

    return dict(text_config(reference.config.to_dict()))
