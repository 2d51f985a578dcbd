"""The tokenizer in a GGUF's metadata gives the ids that the model's own tokenizer gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import UserError
from core.text.gguf_tokenizer import SPLITS, _merges, write_tokenizer
from core.text.tokenizer import Tokenizer
from tests.tiers import first

TEXTS = (
    "In 1812, 12345 men.\n\n\n  Two spaces\ttab \r\n end ",
    "日本語のテキスト、漢字。 中文 한국어",
    "don't I'LL we've <|im_start|> é ü ñ 🙂",
    " leading, trailing  ",
    "",
)


def metadata_of(folder: Path, family: str) -> dict:
    """What a converter would write of a model folder's byte-level tokenizer."""
    stored = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {number: token for token, number in stored["model"]["vocab"].items()}
    added = {one["id"]: one for one in stored["added_tokens"]}
    tokens |= {number: one["content"] for number, one in added.items()}
    kinds = [3 if number in added else 1 for number in sorted(tokens)]
    merges = [one if isinstance(one, str) else " ".join(one) for one in stored["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": family,
        "tokenizer.ggml.tokens": [tokens[number] for number in sorted(tokens)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get(
            "chat_template"
        )
        or (folder / "chat_template.jinja").read_text("utf-8"),
    }


def test_the_embedded_models_own(embedded_model_dir: Path, tmp_path: Path, book_text: str):
    """Digits, newlines, CJK, control tokens as text, pages of a book; there and back. The template too."""
    write_tokenizer(metadata_of(embedded_model_dir, "smollm"), tmp_path)
    found, want = Tokenizer.load(tmp_path), Tokenizer.load(embedded_model_dir)
    for text in (*TEXTS, book_text):
        assert found.encode(text) == want.encode(text)
        assert found.decode(found.encode(text)) == want.decode(want.encode(text)) == text
    assert found.frame("Be brief.") == want.frame("Be brief.")


def taken(name: str) -> dict:
    """Ids that llama.cpp gave, and over what."""
    return json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


# of which there are ids; lfm2 is llama-bpe by another name
BY_LLAMA_CPP = [name for name in SPLITS if name not in ("qwen35", "lfm2")]
LLAMA_CPP, LLAMA_CPP_SPM = taken("llama_cpp_ids.json"), taken("llama_cpp_spm_ids.json")


@pytest.mark.parametrize("family", first(BY_LLAMA_CPP, 2))
def test_ids_are_those_of_llama_cpp(embedded_model_dir: Path, tmp_path: Path, family: str):
    """Digits, newlines, CJK, capitals, emoji and more, as llama.cpp itself split and joined them: the file
    says how its ids were taken.
    """
    write_tokenizer(metadata_of(embedded_model_dir, family), tmp_path)
    found = Tokenizer.load(tmp_path)
    wanted = LLAMA_CPP["ids"][family]
    for text, ids in zip(LLAMA_CPP["texts"], wanted, strict=True):
        assert found.encode(text) == ids, text
    # the texts tell apart what this vocabulary can: it has no number of two digits
    alike = ({"smollm"}, {"gpt-2"}, {*BY_LLAMA_CPP} - {"smollm", "gpt-2"})
    own = next(group for group in alike if family in group)
    assert {name for name, ids in LLAMA_CPP["ids"].items() if ids == wanted} <= own


@pytest.mark.parametrize("way", LLAMA_CPP_SPM["ids"])
def test_ids_of_a_sentencepiece_vocabulary_are_those_of_llama_cpp(tmp_path: Path, way: str):
    """Digits, newlines, CJK, runs of spaces, letters that become bytes, and control tokens as a text's own
    characters, which once got a space behind their first: with a space put in front of a text and without.
    """
    wanted = LLAMA_CPP_SPM["ids"][way]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": LLAMA_CPP_SPM["tokens"],
        "tokenizer.ggml.scores": LLAMA_CPP_SPM["scores"],
        "tokenizer.ggml.token_type": LLAMA_CPP_SPM["kinds"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": way == "with a space in front",
    }
    write_tokenizer(metadata, tmp_path)
    found = Tokenizer.load(tmp_path)
    for text, ids in zip(LLAMA_CPP_SPM["texts"], wanted, strict=True):
        assert found.encode(text) == ids, text
        assert found.decode(ids) == text or "\u2581" in text  # how a space is written: lost in any such
    # every kind of token was needed, and the two ways differ
    kinds = {LLAMA_CPP_SPM["kinds"][number] for ids in wanted for number in ids}
    assert kinds == {1, 6} and len({json.dumps(ids) for ids in LLAMA_CPP_SPM["ids"].values()}) == 2


def test_ids_of_qwen_3_5_are_those_of_transformers(embedded_model_dir: Path, tmp_path: Path):
    """Over one vocabulary; marks above and below letters belong to their word, and letters are composed."""
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    metadata = metadata_of(embedded_model_dir, "qwen35")
    write_tokenizer(metadata, tmp_path)
    vocab = {token: number for number, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(one.split(" ", 1)) for one in metadata["tokenizer.ggml.merges"]]
    theirs, found = Qwen3_5Tokenizer(vocab=vocab, merges=merges), Tokenizer.load(tmp_path)
    marked = "e\u0301t\u00e9 \u0915\u093f\u0924\u093e\u092c x\u0323\u0307y 12345"
    for text in (*LLAMA_CPP["texts"], marked):
        assert found.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_ids_of_gemma_4_are_those_of_transformers(tmp_path: Path, book_text: str):
    """Over one vocabulary with merges: runs of spaces and newlines, and letters that become bytes."""
    from transformers.models.gemma.tokenization_gemma import GemmaTokenizer

    tokens, scores, kinds = (LLAMA_CPP_SPM[one] for one in ("tokens", "scores", "kinds"))
    vocab = {token: number for number, token in enumerate(tokens)}
    merges = _merges(tokens, scores, vocab, kinds)
    metadata = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    write_tokenizer(metadata, tmp_path)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>", "mask_token": "<unk>"}
    theirs, found = GemmaTokenizer(vocab=vocab, merges=merges, **special), Tokenizer.load(tmp_path)
    plain = (
        text for text in LLAMA_CPP_SPM["texts"] if "<" not in text
    )  # which here are never control tokens
    for text in (*TEXTS, *plain, book_text):
        assert found.encode(text) == theirs.encode(text, add_special_tokens=False), text
        assert found.decode(found.encode(text)) == text or "\u2581" in text


@pytest.fixture(scope="module")
def book_text() -> str:
    from core.paths import ROOT

    return (ROOT / "assets" / "samples" / "the-light-on-the-holm.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("family", "text", "pieces"),
    [
        ("llama-bpe", "12345 x", ["123", "45", " x"]),
        ("qwen2", "12345 x", ["1", "2", "3", "4", "5", " x"]),
        ("qwen35", "\u0915\u093f\u0924 12", ["\u0915\u093f\u0924", " ", "1", "2"]),
        ("qwen2", "\u0915\u093f\u0924", ["\u0915", "\u093f\u0924"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("gpt-2", "a 12", ["a", " 12"]),
        ("llama-bpe", "IT'S it's\n\n  b", ["IT", "'S", " it", "'s", "\n\n", " ", " b"]),
        ("gpt-2", "IT'S", ["IT", "'", "S"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
    ],
)
def test_text_is_split_as_each_family_does(family, text, pieces):
    """What is split can never be joined by a merge."""
    from tokenizers import Regex, pre_tokenizers

    splits = [pre_tokenizers.Split(Regex(one), behavior="isolated") for one in SPLITS[family]]
    found = pre_tokenizers.Sequence(splits).pre_tokenize_str(text)
    assert [piece for piece, _place in found] == pieces


def test_sentencepiece_joins_by_score(tmp_path: Path):
    """The best score first, not the longest token; letters without a token become bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{one:02X}>" for one in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    pieces = {
        "\u2581": -9.0,
        "a": -9.0,
        "b": -9.0,
        "c": -9.0,
        "ab": -2.0,
        "bc": -1.0,
        "\u2581a": -3.0,
        "abc": -4.0,
    }
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*tokens, *pieces],
        "tokenizer.ggml.token_type": [*kinds, *[1] * len(pieces)],
        "tokenizer.ggml.scores": [*[0.0] * len(tokens), *pieces.values()],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    write_tokenizer(metadata, tmp_path)
    found = Tokenizer.load(tmp_path)
    names = found.tokens()
    assert [names[one] for one in found.encode("abc")] == ["\u2581a", "bc"]
    assert [names[one] for one in found.encode("bc é")] == ["\u2581", "bc", "\u2581", "<0xC3>", "<0xA9>"]
    for text in ("abc", "bc é", "a  b\nc"):
        assert found.decode(found.encode(text)) == text


def test_unknown_kinds_are_named(tmp_path: Path):
    with pytest.raises(UserError, match="bert"):
        write_tokenizer({"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]}, tmp_path)
    with pytest.raises(UserError, match="deepseek-coder"):
        write_tokenizer(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "deepseek-coder",
                "tokenizer.ggml.tokens": ["a"],
            },
            tmp_path,
        )


PLAIN = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "a", "b", "ab"],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0],
    "tokenizer.ggml.token_type": [2, 1, 1, 1],
}
BYTES = {**PLAIN, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a b"]}


@pytest.mark.parametrize(
    ("plain", "key", "value"),
    [
        (PLAIN, "tokens", [1, 2, 3, 4]),
        (PLAIN, "tokens", ["<unk>", "a", "b", "c" * 1_000_000]),
        (PLAIN, "scores", [0.0]),
        (PLAIN, "scores", ["a", "b", "c", "d"]),
        (PLAIN, "scores", None),
        (PLAIN, "token_type", [1]),
        (PLAIN, "unknown_token_id", 1 << 40),
        (BYTES, "tokens", 5),
        (BYTES, "merges", [1, 2]),
        (BYTES, "merges", ["ab"]),
        (BYTES, "merges", ["a z"]),
        (BYTES, "pre", ["a"]),
        (BYTES, "bos_token_id", "a"),
    ],
)
def test_a_tokenizer_that_contradicts_itself_ends_as_a_sentence_at_once(tmp_path, plain, key, value):
    """A file of somebody else: the engine said that it made a mistake, or cut one token for hours."""
    write_tokenizer(plain, tmp_path)
    with pytest.raises(
        UserError, match=r"tokenizer of this model file is (damaged \(.*\)\. Copy|of the kind)"
    ):
        write_tokenizer({**plain, f"tokenizer.ggml.{key}": value}, tmp_path)
