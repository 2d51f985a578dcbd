"""A prompt, greedy parameters, and an engine's answer to them."""

from __future__ import annotations

import torch

from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.request import Params
from tests.support.tiny import VOCAB

GREEDY = Params(temperature=0.0, top_p=1.0, max_new_tokens=16)


PROMPT = [int(token) for token in torch.randint(0, VOCAB, (150,), generator=torch.Generator().manual_seed(5))]


def run(tiny: Engine, context: Context, ids: list[int], params: Params) -> tuple[list[int], str]:
    """(answer, reason)"""
    answer: list[int] = []
    for event in tiny.generate(context, ids, params):
        if isinstance(event, Done):
            return answer, event.reason
        if isinstance(event, Round):
            answer.extend(event.tokens)
    raise AssertionError("generate ended without Done")
