"""The catalogue: entries that can be planned and paired, names as people write them, folders of one's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.model import catalogue
from core.model.catalogue import EMBEDDED, draft_for, find, from_folder, load
from core.model.shapes import FAMILIES
from tests.gguf_files import write_gguf
from tests.model.test_gguf import wide

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}


def folder_with(tmp_path, name="my-model", **files):
    folder = tmp_path / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file.replace("__", ".")).write_text(
            content if isinstance(content, str) else json.dumps(content)
        )
    return folder


def test_every_entry_is_whole():
    for entry in load().values():
        assert entry.shape.family in FAMILIES
        assert entry.shape.heads % entry.shape.kv_heads == 0
        assert entry.shape.native_context <= entry.shape.longest_context
        assert entry.licence
        assert entry.languages
        assert entry.repo.count("/") == 1 or (entry.folder / "config.json").is_file()
        if entry.role == "draft":
            continue
        assert entry.reading["part_tokens"] < entry.native_context
        assert {"system", "part_prompts", "temperature", "repetition_penalty"} <= entry.reading.keys()


def test_quotes_are_asked_of_large_chat_models_only():
    """A small model is spared an instruction that it may answer with invented quotations."""
    for entry in load().values():
        large = entry.chat and entry.role != "draft" and entry.shape.parameters > 6e9
        assert bool(ReadingStyle.from_record(entry.reading).quote_prompt) == large, entry.name


def test_drafts_have_the_targets_vocabulary_and_are_smaller():
    for entry in load().values():
        draft = draft_for(entry)
        if draft is not None:
            assert draft.vocabulary == entry.vocabulary
            assert draft.shape.parameters < entry.shape.parameters / 2.5


def test_the_embedded_model():
    entry = find(EMBEDDED)
    assert (entry.embedded, entry.chat, entry.native_context, entry.shape.bits) == (True, True, 8192, 8)
    assert [other.name for other in load().values() if other.embedded] == [EMBEDDED]


def test_base_models_are_labelled():
    assert not find("Yarn-Llama-2-7b-128k").chat
    assert not find("Yarn-Llama-2-13b-128k").chat
    assert find("LWM-Text-Chat-128K").chat


def test_load_gives_the_callers_own():
    load().clear()
    assert load()


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
    assert impostor.licence == "see the folder"


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
    known = replace(load()["Qwen2.5-0.5B-Instruct"], shape=find(str(file)).shape)
    monkeypatch.setattr(catalogue, "_entries", lambda: (known,))
    found = find(str(file))
    assert (found.name, found.reading, found.licence) == (file.stem, known.reading, known.licence)
