"""Tokenizer folders of SentencePiece models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
