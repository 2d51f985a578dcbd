"""The tokenizer and chat template in a GGUF's metadata, written as the files that a model folder has.

llama.cpp splits text before its byte-level BPE by an expression of its own for each family, named by
`tokenizer.ggml.pre` (src/llama-vocab.cpp): the expressions here are those, and the families whose models
run here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.text.words import translated as _

_CONTROL, _OWN, _BYTE = 3, 4, 6  # kinds of tokens; _OWN: matched whole, and text
# characters: a token is cut at each of them. Real vocabularies end at some hundred
_LONGEST_TOKEN, _LONGEST_REASON = 1024, 200
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = rf"{_SHORT}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_SHORT}|{_WORDS}|\p{{N}}|{_REST}"
# marks that stand above or below a letter belong to its word
_QWEN35 = (
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# by tokenizer.ggml.pre: the expressions, one after the other
SPLITS = {
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "lfm2": (_LLAMA3,),
    "smaug-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "tekken": (_TEKKEN,),
    "smollm": (r"\p{N}", _GPT2),
    "gpt-2": (_GPT2,),
}


def write_tokenizer(metadata: Mapping[str, Any], folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json. Raises UserError for a kind of tokenizer that is not known
    here, or one that contradicts itself.
    """
    try:
        _write(metadata, folder)
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:  # somebody else's values: of other kinds, too few, or what the library refuses
        said = _("The tokenizer of this model file is damaged ({error}). Copy or download it again.")
        raise UserError(said.format(error=str(error).partition("\n")[0][:_LONGEST_REASON])) from error


def _write(metadata: Mapping[str, Any], folder: Path) -> None:
    kind = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    makers = {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _merged_letters}
    if kind not in makers or not tokens:
        said = _("The tokenizer of this model file is of the kind {kind}, which is not known here.")
        raise UserError(said.format(kind=kind))
    if (longest := max(map(len, tokens))) > _LONGEST_TOKEN:
        raise ValueError(f"a token has {longest} characters")
    made = makers[kind](metadata, tokens)
    _add_tokens(made, metadata, tokens)
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for name, called in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if number is not None and number < len(tokens):
            config[f"{called}_token"] = tokens[number]
    if metadata.get("tokenizer.chat_template"):
        config["chat_template"] = metadata["tokenizer.chat_template"]
    said = json.dumps(config, ensure_ascii=False, indent=1)
    (folder / "tokenizer_config.json").write_text(said, encoding="utf-8")


def _byte_level(metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """Byte-level BPE, as GPT-2's, over text that is split as the family does."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    family = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if family not in SPLITS:
        said = _("The tokenizer of this model file splits text as {family} does, which is not known here.")
        raise UserError(said.format(family=family))
    merges = [tuple(pair.split(" ", 1)) for pair in metadata.get("tokenizer.ggml.merges", ())]
    # llama.cpp takes a word that is a token as it is for these
    whole = family in ("llama-bpe", "llama3", "llama-v3", "lfm2", "tekken")
    made = Tokenizer(models.BPE(_vocabulary(tokens), merges, ignore_merges=whole))
    if SPLITS[family] in ((_QWEN2,), (_QWEN35,)):
        made.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(one), behavior="isolated") for one in SPLITS[family]]
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    return made


def _merged_letters(metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """Gemma 4's: BPE over letters, with merges as byte-level BPE has and bytes as SentencePiece has."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    merges = [tuple(pair.split(" ", 1)) for pair in metadata["tokenizer.ggml.merges"]]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    made = Tokenizer(
        models.BPE(_vocabulary(tokens), merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """SentencePiece's BPE: neighbours are joined, those first whose union has the highest score. Letters
    without a token become tokens of bytes.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores, vocabulary = metadata["tokenizer.ggml.scores"], _vocabulary(tokens)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    merges = _merges(tokens, scores, vocabulary, metadata.get("tokenizer.ggml.token_type"))
    made = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    )
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps = [normalizers.Prepend("\u2581")] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    undo = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)] if prefix else undo)
    return made


def _merges(
    tokens: list[str], scores: list[float], vocabulary: Mapping[str, int], kinds: list[int] | None
) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, the best score first."""
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for number, token in enumerate(tokens):
        if kinds is not None and kinds[number] in (_CONTROL, _OWN, _BYTE):
            continue
        for cut in range(1, len(token)):
            pair = token[:cut], token[cut:]
            if pair[0] in vocabulary and pair[1] in vocabulary:
                found.append((-scores[number], vocabulary[pair[0]], vocabulary[pair[1]], pair))
    return [pair for *_rank, pair in sorted(found)]


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    """Numbers by token; of two alike the first counts, as in llama.cpp."""
    found: dict[str, int] = {}
    for number, token in enumerate(tokens):
        found.setdefault(token, number)
    return found


def _add_tokens(made: Any, metadata: Mapping[str, Any], tokens: list[str]) -> None:
    """Tokens that are matched whole: control tokens, and those that somebody added."""
    from tokenizers import AddedToken

    kinds = metadata.get("tokenizer.ggml.token_type") or ()
    of_kind = {
        kind: [token for token, own in zip(tokens, kinds, strict=False) if own == kind]
        for kind in (_CONTROL, _OWN)
    }
    made.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in of_kind[_CONTROL]]
    )
    made.add_tokens([AddedToken(token, normalized=False, special=False) for token in of_kind[_OWN]])
