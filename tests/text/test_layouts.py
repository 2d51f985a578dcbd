"""Tokenizers in the files that checkpoints carry: sentencepiece alone, and whether a draft's tokens are its
target's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.errors import UserError
from core.text.tokenizer import Tokenizer, require_same_tokens
from tests.support.sentencepiece import sentencepiece_folder


def test_a_sentencepiece_tokenizer_alone_is_enough(tmp_path: Path):
    import sentencepiece

    folder = sentencepiece_folder(tmp_path / "lwm")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokenizer = Tokenizer.load(folder)
    for text in ("The keeper came.", "log\n\nlamp", "Zürich 東京", "he wrote <s>log</s> <unk>", "</s>"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids).strip() == text
        assert ids == reference.encode(text)
    assert tokenizer.frame("You help.").opening[0] == 1  # <s>, once


def test_a_draft_of_other_tokens_is_refused(tmp_path: Path):
    """Sizes may agree by chance; then the draft would propose nonsense at full price."""
    target, same = sentencepiece_folder(tmp_path / "target"), tmp_path / "same"
    shutil.copytree(target, same)
    require_same_tokens(target, same)
    other = sentencepiece_folder(tmp_path / "other", size=330)
    with pytest.raises(UserError, match="another vocabulary"):
        require_same_tokens(target, shuffled(other, tmp_path / "shuffled"))
    (tmp_path / "trained").mkdir()
    require_same_tokens(target, tmp_path / "trained")  # a trained draft speaks its target's


def shuffled(folder: Path, to: Path) -> Path:
    """The same tokens under other ids, as a fast tokenizer."""
    Tokenizer.load(folder)._backend.save_pretrained(to)
    facts = json.loads((to / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = facts["model"]["vocab"]
    last = max(vocab.values())
    facts["model"]["vocab"] = {
        token: last + 3 - number if number > 2 else number for token, number in vocab.items()
    }
    (to / "tokenizer.json").write_text(json.dumps(facts), encoding="utf-8")
    return to
