"""The catalogue: entries that can be planned and paired, names as people write them, folders of one's own."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.model.gguf.config import bytes_in_codes, config_of
from core.model.gguf.reader import read_header
from core.model.gguf.size_estimates import in_format, matrix_bytes
from core.model.mixer_sizes import DeltaSizes
from core.model.shapes import FAMILIES, ModelShape
from core.model.store import catalogue
from core.model.store.catalogue import EMBEDDED, draft_for, find, from_folder, load_catalogue
from core.text.words import size
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import values

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}
PROMPTS = ("part_prompts", "join_prompts", "whole_prompt", "passage_prompt")


def folder_with(tmp_path, name="my-model", **files):
    folder = tmp_path / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file.replace("__", ".")).write_text(
            content if isinstance(content, str) else json.dumps(content)
        )
    return folder


def test_every_entry_is_whole():
    for entry in load_catalogue().values():
        assert entry.shape.family in FAMILIES
        assert entry.shape.heads % entry.shape.kv_heads == 0
        assert entry.shape.native_context <= entry.shape.longest_context
        assert entry.licence
        assert entry.languages
        assert entry.repo.count("/") == 1 or (entry.folder / "config.json").is_file()
        if entry.role == "draft":
            continue
        assert entry.reading["part_tokens"] < entry.native_context
        assert {"system", "temperature", "repetition_penalty", *PROMPTS} <= entry.reading.keys()
        assert "{question}" in entry.reading["passage_prompt"]


def test_quotes_are_asked_of_large_chat_models_only():
    """A small model is spared an instruction that it may answer with invented quotations."""
    for entry in load_catalogue().values():
        large = entry.chat and entry.role != "draft" and entry.shape.parameters > 6e9
        assert bool(ReadingStyle.from_record(entry.reading).quote_prompt) == large, entry.name


def test_drafts_have_the_targets_vocabulary_and_are_smaller():
    for entry in load_catalogue().values():
        draft = draft_for(entry)
        if draft is not None:
            assert draft.vocabulary == entry.vocabulary
            assert draft.shape.parameters < entry.shape.parameters / 2.5


def test_the_embedded_model():
    entry = find(EMBEDDED)
    assert (entry.embedded, entry.chat, entry.native_context, entry.shape.code_bits) == (True, True, 8192, 8)
    assert [other.name for other in load_catalogue().values() if other.embedded] == [EMBEDDED]


FILES = [entry for entry in load_catalogue().values() if entry.file]


@pytest.mark.parametrize("entry", FILES, ids=lambda entry: entry.name)
def test_the_published_size_of_a_file_is_that_of_its_shape(entry):
    """A layer, a head or a row too many or too few in the catalogue would plan for another model: matrices
    are all of the file but vocabulary, norms and biases.
    """
    kinds = {"ends": ENDS.get(entry.name), "table": "Q5_K" if entry.shape.readers else None}
    rest = entry.file_bytes - matrix_bytes(entry.shape, entry.shape.format, **kinds)
    if (states := entry.shape.states) is not None:  # convolutions, in numbers of 32 bits
        rest -= entry.shape.stateful * states.channels * states.kernel * 4
    rest -= FINER.get(entry.name, 0)
    merges = 8_000_000 if entry.vocabulary == "gemma4" else 0  # half a million of them
    assert 1_000_000 < rest - merges < 14_000_000


# what their makers chose for the matrix that is input and output
ENDS = dict.fromkeys((f"gemma-4-{one}-it-Q4_K_M" for one in ("12b", "31B", "E2B", "E4B")), "Q4_K")


# The mix of these two has more bits than llama-quantize gives: 5 for the outputs of the 16 layers that
# attend, 6 for ten more of their k or v. So worked out, what is left is within 320 bytes of 3.5's.
_MORE_BITS = (16 * 5120 * 6144 * (176 - 144) + 10 * 5120 * 1024 * (210 - 144)) // 256
# Qwen3.8's file has a layer that predicts ahead: attention and an MLP as the others', and one matrix more
_AHEAD = 5120 * (2 * 6144 + 1024 + 6144 + 2 * 17_408) * 144 // 256 + 5120 * (1024 + 17_408) * 210 // 256
_AHEAD += 10_240 * 5120 * 34 // 32
FINER = {"Qwen3.6-27B-Q4_K_M": _MORE_BITS, "Qwen3.8-27B-Q4_K_M": _MORE_BITS + _AHEAD}


def _unread(shape: ModelShape, every: int) -> int:
    """Bytes in a file of Gemma 4 E2B or E4B of what is in no codes, or read by nobody: keys and values of
    layers that have others', and what makes and takes in a token's own input, in 16 and 32 bits.
    """
    found = shape.layers * shape.hidden * shape.input_width * (2 + 4 + 4)
    for layer in range(shape.layers - shape.readers, shape.layers):
        own = shape if (layer + 1) % every == 0 else shape.of_windows
        # half of the values have 6 bits
        found += shape.hidden * own.kv_heads * own.head_dim * (144 + 177) // 256
    return found


FINER |= {
    f"gemma-4-{name}-it-Q4_K_M": _unread(find(f"Gemma-4-{name}-it").shape, every)
    for name, every in (("E2B", 5), ("E4B", 6))
}


def test_what_is_left_of_a_file_of_one_vocabulary_is_the_same():
    """Of all sizes of Qwen3.5 and later: tokens, merges and norms, no layer and no head."""
    left = {}
    for entry in FILES:
        if not isinstance(delta := entry.shape.states, DeltaSizes):
            continue
        rest = entry.file_bytes - matrix_bytes(entry.shape, entry.shape.format) - FINER.get(entry.name, 0)
        norms = (2 * entry.shape.layers + 1) * entry.shape.hidden * 4
        left[entry.name] = rest - entry.shape.stateful * delta.channels * delta.kernel * 4 - norms
    assert len(left) == 7
    assert max(left.values()) - min(left.values()) < 200_000, left


@pytest.mark.parametrize(
    "change", [{"layers": 35}, {"kv_heads": 4}, {"hidden": 2304}, {"vocab": 128256}, {"tied": False}], ids=str
)
def test_a_wrong_shape_does_not_have_the_published_size(change):
    entry = find("Qwen3-4B-Instruct-2507-Q4_K_M")
    rest = entry.file_bytes - matrix_bytes(replace(entry.shape, **change), "Q4_K_M")
    assert not 1_000_000 < rest < 12_000_000


def test_a_file_of_the_hub_is_its_model_in_codes():
    """What is known of the model counts for its file, which needs no account and no draft model."""
    entry, base = find("Meta-Llama-3.1-8B-Instruct-Q4_K_M"), find("Llama-3.1-8B-Instruct")
    assert (entry.reading, entry.vocabulary, entry.licence) == (base.reading, base.vocabulary, base.licence)
    assert (entry.file, entry.gated, entry.draft) == ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", False, None)
    assert (entry.shape.format, entry.shape.code_bits) == ("Q4_K_M", 4)
    assert entry.shape.weight_bytes("float32") < 1.04 * entry.download_bytes


@pytest.mark.parametrize("kind", ["Q8_0"])
def test_the_planned_size_of_a_file_is_what_its_header_says(tmp_path, kind):
    """The plan is made before the file is there."""
    header = read_header(write_gguf(tmp_path / "mine.gguf", wide(), kind))
    shape = ModelShape.from_hf_config(config_of(header, "mine"), name="mine")
    planned = in_format(shape, "mine", kind)
    assert (planned.coded_bytes, planned.coded_weights) == bytes_in_codes(header)
    assert matrix_bytes(shape, kind) == sum(
        tensor.nbytes for tensor in header.tensors.values() if len(tensor.shape) == 2
    )


def test_a_size_that_is_another_files_says_whose_it_is():
    """Of one file the size was found for its sister alone: shown as it is rounded, and a download goes by the
    hub's own figure.
    """
    files = catalogue._data()["files"]
    assert {name: of["bytes_of"] for name, of in files.items() if "bytes_of" in of} == {
        "Qwen2.5-14B-Instruct-1M-Q4_K_M": "Qwen2.5-14B-Instruct-Q4_K_M"
    }
    assert size(find("Qwen2.5-14B-Instruct-1M-Q4_K_M").file_bytes) == "9.0 GB"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("qwen2.5-1.5b-instruct-q4_k_m", "Qwen2.5 1.5B Instruct (Q4_K_M, 1.1 GB)"),
        ("Qwen3-4B-Instruct-2507-Q4_K_M", "Qwen3 4B Instruct 2507 (Q4_K_M, 1.1 GB)"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M", "Llama 3.1 8B Instruct (Q4_K_M, 1.1 GB)"),
        ("Mistral-7B-Instruct-v0.3", "Mistral 7B Instruct v0.3 (1.1 GB)"),
        ("Yarn-Llama-2-7b-128k", "Yarn Llama 2 7B 128K (1.1 GB)"),
        ("a file of mine-Q8_0", "a file of mine-Q8_0 (1.1 GB)"),
    ],
)
def test_a_person_reads_a_name_and_no_file(name, title):
    assert catalogue.title_of(name, "1.1 GB") == title
    assert catalogue.title_of(name) == title.replace(", 1.1 GB", "").replace(" (1.1 GB)", "")


def test_no_two_models_have_one_title():
    titles = [entry.title() for entry in load_catalogue().values()]
    assert len(set(titles)) == len(titles)
    assert values(find(EMBEDDED).title()) == {"name": "SmolLM2 135M Instruct"}


def test_checksums_are_checksums():
    for entry in FILES:
        assert re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{12}", entry.sha256), entry.name
        assert re.fullmatch(r"main|[0-9a-f]{40}", entry.revision), entry.name


def test_what_a_publisher_replaces_is_fetched_as_it_was():
    """A known checksum beside whatever is newest: the day its publisher replaces the file, nobody can fetch
    it. Of these two no public source names a commit.
    """
    newest = {entry.name for entry in FILES if entry.revision == "main"}
    assert newest == {"Qwen2.5-7B-Instruct-1M-Q4_K_M", "Qwen2.5-14B-Instruct-1M-Q4_K_M"}


@pytest.mark.parametrize("name", list(catalogue.not_yet()))
def test_what_does_not_run_yet_says_why(name):
    with pytest.raises(UserError, match=f"{name} is (of type|a mixture) .*only .* run here"):
        find(name.lower())


def test_base_models_are_labelled():
    assert not find("Yarn-Llama-2-7b-128k").chat
    assert not find("Yarn-Llama-2-13b-128k").chat
    assert find("LWM-Text-Chat-128K").chat


def test_load_gives_the_callers_own():
    load_catalogue().clear()
    assert load_catalogue()


@pytest.mark.parametrize(
    "name", ["lwm-text-chat-128k", "LargeWorldModel/LWM-Text-Chat-128K", " LWM-Text-Chat-128K "]
)
def test_names_as_people_write_them(name):
    assert find(name).name == "LWM-Text-Chat-128K"


def test_unknown_name_gives_the_nearest():
    with pytest.raises(UserError, match="nearest is Llama-3.1-8B-Instruct"):
        find("llama-3.1-8b")


def test_pairing_rules():
    target = find("Llama-3.1-8B-Instruct")
    assert draft_for(target).name == "Llama-3.2-1B-Instruct"
    assert draft_for(target, "none") is None
    assert draft_for(target, "Llama-3.2-3B-Instruct").name == "Llama-3.2-3B-Instruct"
    with pytest.raises(UserError, match="different vocabularies"):
        draft_for(target, "llama-68m")
    assert draft_for(find("Qwen3-8B"), "Qwen2.5-0.5B-Instruct") is not None


def test_a_folder_of_ones_own(tmp_path):
    folder = folder_with(
        tmp_path, config__json=CONFIG, chat_template__jinja="{{ messages }}", model__safetensors=""
    )
    entry = find(str(folder))
    assert (entry.name, entry.folder, entry.chat, entry.weights) == ("my-model", folder, True, "safetensors")
    assert (entry.shape.layers, entry.native_context, entry.draft) == (2, 512, None)
    assert draft_for(find("Llama-3.1-8B-Instruct"), str(folder)).name == "my-model"


def test_a_llama_2_chat_folder_is_known_by_its_name(tmp_path):
    """Its tokenizer has no template; as a base model it would only continue the question."""
    entry = find(str(folder_with(tmp_path, "Llama-2-7b-chat-hf", config__json=CONFIG, model__safetensors="")))
    assert (entry.chat, entry.frame) == (True, "llama2")


def test_a_base_model_folder_with_pickled_weights(tmp_path):
    folder = folder_with(
        tmp_path, config__json=CONFIG, pytorch_model__bin="", tokenizer_config__json={"bos_token": "<s>"}
    )
    entry = from_folder(folder)
    assert (entry.chat, entry.weights) == (False, "bin")


def test_a_folder_that_is_a_known_model_keeps_what_is_known(tmp_path):
    """A hand-copied download still knows its draft, licence and reading record."""
    known = find("Qwen2.5-0.5B-Instruct")
    shape = known.shape
    config = {
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocab,
        "num_key_value_heads": shape.kv_heads,
        "num_hidden_layers": shape.layers,
        "tie_word_embeddings": True,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": 32768,
    }
    entry = from_folder(folder_with(tmp_path, name="Qwen2.5-0.5B-Instruct", config__json=config))
    assert (entry.licence, entry.reading) == (known.licence, known.reading)
    assert entry.folder is not None
    impostor = from_folder(
        folder_with(tmp_path / "Qwen2.5-0.5B-Instruct", name="Qwen2.5-0.5B-Instruct", config__json=CONFIG)
    )
    assert impostor.licence not in {one.licence for one in load_catalogue().values()}


def test_a_folder_with_a_broken_config(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        find(str(folder_with(tmp_path, config__json="{")))


def test_a_gguf_is_a_model(tmp_path):
    """By its path, or that of the folder in which it lies alone."""
    file = write_gguf(tmp_path / "Mine-Q8_0.gguf", wide(), "Q8_0")
    for path in (file, tmp_path):
        entry = find(str(path))
        assert (entry.name, entry.folder, entry.chat) == ("Mine-Q8_0", file, True)
        assert (entry.shape.format, entry.shape.code_bits, entry.shape.tied) == ("Q8_0", 8, False)
        assert 0 < entry.shape.coded_bytes < 1.1 * entry.shape.coded_weights
    write_gguf(tmp_path / "Other.gguf", wide(), "Q8_0")
    with pytest.raises(UserError, match=r"several models: Mine-Q8_0\.gguf, Other\.gguf"):
        find(str(tmp_path))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match="damaged or cut short"):
        find(str(tmp_path / "broken.gguf"))


def test_a_gguf_of_a_known_model_reads_as_that_model_does(tmp_path, monkeypatch):
    """Name and sizes tell: an impostor gets an entry of its own."""
    file = write_gguf(tmp_path / "Qwen2.5-0.5B-Instruct-Q4_0.gguf", wide("qwen2"), "Q4_0")
    assert find(str(file)).reading == {}
    known = replace(load_catalogue()["Qwen2.5-0.5B-Instruct"], shape=find(str(file)).shape)
    monkeypatch.setattr(catalogue, "_entries", lambda: (known,))
    found = find(str(file))
    assert (found.name, found.reading, found.licence) == (file.stem, known.reading, known.licence)
    twice = replace(known, shape=replace(known.shape, tied=not known.shape.tied))  # held once there
    monkeypatch.setattr(catalogue, "_entries", lambda: (twice,))
    assert find(str(file)).reading == known.reading


def test_a_gguf_of_a_known_model_claims_no_longer_context_than_that_model_has(tmp_path, monkeypatch):
    """Qwen2.5-1M's say 1,010,000 tokens, Mistral Nemo's 1,024,000; an unknown file is taken at its word."""
    made = wide("qwen2", max_position_embeddings=1_010_000)
    file = write_gguf(tmp_path / "Qwen2.5-7B-Instruct-1M-Q4_0.gguf", made, "Q4_0")
    assert find(str(file)).native_context == 1_010_000
    shape = replace(find(str(file)).shape, native_context=262_144, longest_context=262_144)
    known = replace(load_catalogue()["Qwen2.5-7B-Instruct-1M"], shape=shape)
    monkeypatch.setattr(catalogue, "_entries", lambda: (known,))
    found = find(str(file)).shape
    assert (found.native_context, found.longest_context) == (262_144, 262_144)


@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("SmolLM3-Q4_K_M", "SmolLM3-3B"),  # by what the catalogue's own file is called
        ("meta-llama-3.1-8b-instruct-q8_0", "Llama-3.1-8B-Instruct"),
        ("Gemma-3-4B-it-Q8_0", "Gemma-3-4B-it"),
        ("Mine-3B-Q4_K_M", None),
    ],
)
def test_a_found_file_is_known_by_the_names_of_its_model_and_of_its_files(tmp_path, monkeypatch, file, known):
    made = wide("gemma3_text" if known == "Gemma-3-4B-it" else "llama")
    path = write_gguf(tmp_path / f"{file}.gguf", made, "Q8_0")
    shape = find(str(path)).shape
    padded = replace(shape, vocab=shape.vocab + 64)  # of checkpoints alone
    entries = tuple(replace(one, shape=padded) for one in load_catalogue().values() if not one.file)
    monkeypatch.setattr(catalogue, "_entries", lambda: entries)
    reading = load_catalogue()[known].reading if known else {}
    assert find(str(path)).reading == reading
    monkeypatch.setattr(catalogue, "_PADDING", 63)
    assert find(str(path)).reading == {}


def test_rows_that_are_no_whole_blocks_are_held_in_smaller_ones():
    """Gemma 3 1B has rows of 1,152: planned as Q4_K, it would be 138 MB smaller than its file is."""
    shape = find("gemma-3-1b-it-Q4_K_M").shape
    assert shape.hidden % 256 and shape.coded_bytes > 1.15 * shape.coded_weights * 18 / 32
