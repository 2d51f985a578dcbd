"""Chat templates with the traits of the catalogue's models, out of a GGUF of each: what is written around a
conversation, where an answer ends, and what a template that is wrong, slow or hostile costs.

The templates are of this test's own writing, after what the models' makers publish.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core import build
from core.errors import UserError
from core.model.config import load_config
from core.model.store import catalogue, untrusted
from core.model.store.fetch import model_folder
from core.model.store.untrusted import written_safely
from core.sandbox.process import Limits
from core.text.tokenizer import Tokenizer
from tests.support.chat_facts import _CHATML_BODY, FACTS, FAMILIES, conversation, traits
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import values, worded_by
from tests.tiers import first


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def gguf(path: Path, template: str, control: tuple[str, ...] = ("<s>", "</s>")) -> Path:
    return write_gguf(path, wide(), "Q8_0", template=template, control=control)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_conversation_reads_as_its_model_was_taught(tmp_path, name):
    family = FAMILIES[name]
    folder = model_folder(
        catalogue.find(str(gguf(tmp_path / "one.gguf", family.template, family.control))), lambda *_: None
    )
    tokenizer = Tokenizer.load(folder, frame="completion", written=written_safely("one"))
    assert conversation(tokenizer) == family.text
    names = tokenizer.tokens()
    assert {names[one] for one in load_config(folder).eos_ids} == family.stops


@pytest.mark.parametrize("opens", ["<think>\\n", "<think>"])
def test_a_model_that_always_thinks_is_given_an_empty_thought(tmp_path, opens):
    """Distilled ones open a thought and ask nobody: their answers were pages of thoughts about the book."""
    prompt = "{{- '<|im_start|>assistant\\n' }}"
    template = _CHATML_BODY.replace(prompt, prompt.replace("' }}", f"{opens}' }}}}"))
    control = ("<|im_start|>", "<think>", "</think>", "<|im_end|>")
    file = gguf(tmp_path / "one.gguf", template, control)
    folder = model_folder(catalogue.find(str(file)), lambda *_: None)
    tokenizer = Tokenizer.load(folder, frame="completion", written=written_safely("one"))
    assert conversation(tokenizer) == FACTS["qwen3"]["conversation"]


def test_every_chat_model_of_the_catalogue_has_a_template_here_or_a_form_that_is_written_out():
    targets = [entry for entry in catalogue.load_catalogue().values() if entry.role == "target"]
    written_out = {entry.name for entry in targets if entry.vocabulary == "llama2"}
    assert all(name.startswith(("LWM-", "Yarn-")) for name in written_out)
    assert {traits(entry) for entry in targets if entry.name not in written_out} == set(FAMILIES)


HOSTILE = {
    "loops for ever": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "takes all memory": "{% set ns = namespace(x='x' * 1000) %}"
    "{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "a number without end": "{{ 9 ** (9 ** 9) }}",
    "looks around": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "changes what it was given": "{{ messages.append(1) }}",
    "opens a file": "{% include '/etc/passwd' %}",
    "is no template": "{% for %}",
    "refuses": "{{ raise_exception('no talking to me') }}",
    "shows nothing": "hello",
    "shows it twice": "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("what", first(HOSTILE))
def test_a_template_that_fails_costs_one_sentence_with_a_remedy(monkeypatch, what):
    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 28, time_s=5.0))
    with pytest.raises(
        UserError, match="chat template of Odd cannot be used: .*Choose another model"
    ) as said:
        written_safely("Odd")({"template": HOSTILE[what], "tokens": {}})
    assert len(str(said.value)) < 400
    if what == "refuses":
        assert "no talking to me" in str(said.value)
    if what in ("loops for ever", "takes all memory"):
        assert worded_by(untrusted.written_safely, values(str(said.value))["reason"])


def test_a_model_from_outside_runs_its_template_under_limits_and_at_its_load(tmp_path, monkeypatch):
    """The wiring: an engine with such a file refuses before a question is asked."""
    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 30, time_s=5.0))
    entry = catalogue.find(str(gguf(tmp_path / "slow.gguf", HOSTILE["loops for ever"])))
    folder = model_folder(entry, lambda *_: None)
    with pytest.raises(UserError, match="chat template of slow cannot be used: it takes too long"):
        build._tokenizer(entry, folder)
