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

TEXT = [
    "The keeper lit the lamp and wrote the hour into the log.",
    "Nobody came over the sea bed at low tide.",
    "She read it twice.",
] * 20


def sentencepiece_folder(folder: Path, *, size: int = 340) -> Path:
    """The files of LWM and other Llama-2 checkpoints: tokenizer.model, and no tokenizer.json."""
    spm = pytest.importorskip("sentencepiece")
    folder.mkdir()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=size,
        model_type="bpe",
        byte_fallback=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        minloglevel=2,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    )
    (folder / "tokenizer.vocab").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "LlamaTokenizer",
                "add_bos_token": True,
                "add_eos_token": False,
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "legacy": True,
            }
        )
    )
    return folder


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
