"""Chat templates with the traits of the catalogue's models, out of a GGUF of each: what is written around a
conversation, where an answer ends, and what a template that is wrong, slow or hostile costs.

The templates are of this test's own writing, after what the models' makers publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from core import build
from core.documents.safely import Limits
from core.errors import UserError
from core.model.config import load_config
from core.model.store import catalogue, untrusted
from core.model.store.fetch import model_folder
from core.model.store.untrusted import written_safely
from core.text.tokenizer import Tokenizer
from tests.model.test_gguf import wide
from tests.support.gguf_files import write_gguf
from tests.tiers import first

_CHATML_BODY = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
_TOOLS = """
{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}"""


FACTS = yaml.safe_load((Path(__file__).parents[1] / "model" / "tokenizers.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Family:
    """A template, and the key of what public sources say of the model's tokens and form. `adds` is what the
    template writes before the system text.
    """

    template: str
    facts: str
    adds: str = ""

    @property
    def control(self) -> tuple[str, ...]:
        """Its control tokens; the last ends a turn."""
        return tuple(FACTS[self.facts]["tokens"])

    @property
    def stops(self) -> set[str]:
        """What ends an answer."""
        return set(FACTS[self.facts]["stops"])

    @property
    def text(self) -> str:
        """A conversation of S, Q1, A1, Q2, up to the second answer. What the model writes itself, a space
        before its answer, is none of ours.
        """
        return (
            FACTS[self.facts]["conversation"]
            .replace("S", self.adds + "S", 1)
            .replace("[/INST] A", "[/INST]A")
        )


FAMILIES = {
    # a system message of its own where there is none
    "smollm2": Family(
        "{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nHelp.<|im_end|>\\n' }}{% endif %}"
        + _CHATML_BODY,
        "smollm2",
    ),
    # tools, and several tokens that end an answer
    "qwen2": Family(_TOOLS + _CHATML_BODY, "qwen2"),
    # thinks unless told not to, and takes the thoughts out of earlier answers
    "qwen3": Family(
        _TOOLS
        + """
{%- set seen = namespace(last=-1) %}
{%- for message in messages[::-1] %}
{%- if seen.last < 0 and message.role == 'user' %}
{%- set seen.last = messages|length - loop.index %}
{%- endif %}
{%- endfor %}
{%- for message in messages %}
{%- set said = message.content %}
{%- if message.role == 'assistant' and loop.index0 < seen.last and '</think>' in said %}
{%- set said = said.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + said + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}""",
        "qwen3",
    ),
    # heads of messages, a date, and a system message always
    "llama3": Family(
        """
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0].role == 'system' %}
{%- set said = messages[0].content | trim %}{% set messages = messages[1:] %}
{%- else %}{% set said = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date_string + '\\n' + said + '<|eot_id|>' }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
        "llama3",
        adds="Today: 26 Jul 2024\n",
    ),
    # the system text goes into the last question, and roles that do not take turns are refused
    "mistral-v3": Family(
        """
{%- if messages[0].role == 'system' %}
{%- set said = messages[0].content %}{% set messages = messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must take turns') }}
{%- endif %}
{%- if message.role == 'user' and loop.last and said is defined %}
{{- '[INST] ' + said + '\\n\\n' + message.content + '[/INST]' }}
{%- elif message.role == 'user' %}
{{- '[INST] ' + message.content + '[/INST]' }}
{%- else %}
{{- ' ' + message.content + eos_token }}
{%- endif %}
{%- endfor %}""",
        "mistral-v3",
    ),
    # the system text goes into the first question
    "mistral-nemo": Family(
        """
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{% continue %}{% endif %}
{%- if message.role == 'user' %}
{{- '[INST]' }}
{%- if loop.index0 == 1 and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
{{- message.content + '[/INST]' }}
{%- else %}
{% generation %}{{- message.content + eos_token }}{% endgeneration %}
{%- endif %}
{%- endfor %}""",
        "mistral-nemo",
    ),
}


def traits(entry: catalogue.CatalogueEntry) -> str:
    """Which of the families has the traits of the model's template."""
    if entry.vocabulary == "qwen2":  # Qwen 3 of July 2025 does not think
        return "qwen3" if entry.shape.family == "qwen3" and "2507" not in entry.name else "qwen2"
    return entry.vocabulary


def conversation(tokenizer: Tokenizer) -> str:
    frame, encode = tokenizer.frame("S"), tokenizer.encode
    ids = (*frame.opening, *encode("Q1"), *frame.ask, *encode("A1"), *frame.bridge, *encode("Q2"), *frame.ask)
    return tokenizer._backend.decode(ids)


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
    targets = [entry for entry in catalogue.load().values() if entry.role == "target"]
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
        assert "takes too long, or too much memory" in str(said.value)


def test_a_model_from_outside_runs_its_template_under_limits_and_at_its_load(tmp_path, monkeypatch):
    """The wiring: an engine with such a file refuses before a question is asked."""
    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 30, time_s=5.0))
    entry = catalogue.find(str(gguf(tmp_path / "slow.gguf", HOSTILE["loops for ever"])))
    folder = model_folder(entry, lambda *_: None)
    with pytest.raises(UserError, match="chat template of slow cannot be used: it takes too long"):
        build._tokenizer(entry, folder)
