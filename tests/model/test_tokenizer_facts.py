"""Tokenizer and chat form of every model of the catalogue against what public sources say of them. The facts
are in tokenizers.yaml, each with where it is from; tests/text/test_chat_template.py runs templates with them.
"""

from __future__ import annotations

import pytest

from core.model.config import load_config
from core.model.store.catalogue import CatalogueEntry, find, load_catalogue
from core.text.tokenizer import FRAMES, Tokenizer
from tests.support.chat_facts import FACTS, FAMILIES, conversation, traits

MODELS = [one for one in load_catalogue().values() if one.folder is None]


def test_every_vocabulary_and_form_has_its_facts_and_says_where_they_are_from():
    wanted = {traits(entry) for entry in MODELS}
    assert wanted == set(FACTS)
    assert all(facts["source"] for facts in FACTS.values())
    assert {family.facts for family in FAMILIES.values()} == wanted - {"llama2"}


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_its_control_tokens_are_rows_of_its_vocabulary(entry: CatalogueEntry):
    """A vocabulary may be padded with rows that no token has; none is shorter than its tokenizer."""
    facts = FACTS[traits(entry)]
    ids = [number for number in facts.get("tokens", {}).values() if number is not None]
    assert len(set(ids)) == len(ids)
    assert all(facts.get("pieces", 0) <= number < entry.shape.vocab for number in ids)
    if "size" in facts:
        assert entry.shape.vocab == facts["size"]


def test_the_embedded_model_is_what_is_written_of_it(embedded_model_dir):
    facts, tokenizer = FACTS["smollm2"], Tokenizer.load(embedded_model_dir)
    names = tokenizer.tokens()
    assert len(names) == facts["size"]
    assert {names[number]: number for number in facts["tokens"].values()} == facts["tokens"]
    assert {names[one] for one in load_config(embedded_model_dir).eos_ids} == set(facts["stops"])
    assert conversation(tokenizer) == facts["conversation"]


def test_the_form_of_lwm_is_that_of_its_makers_example():
    assert find("LWM-Text-Chat-128K").frame == "lwm"
    before, opening, _answer, _bridge, ask = FRAMES["lwm"]
    assert f"{before}S{opening}Q1{ask}" == FACTS["llama2"]["question"]


def test_what_has_no_form_is_no_chat_model():
    without = {entry.name for entry in MODELS if entry.frame == "completion"}
    assert without == {"Yarn-Llama-2-7b-128k", "Yarn-Llama-2-13b-128k"}
    assert not any(find(name).chat for name in without)
