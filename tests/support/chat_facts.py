"""What published chat templates write, and conversations to try them with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from core.model.store import catalogue
from core.text.tokenizer import Tokenizer

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
    # opens a thought unless told not to, trims what is said, wants the system message first and a question
    "qwen35": Family(
        _TOOLS
        + """
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}
{%- if not asked %}{{- raise_exception('no question') }}{% endif %}
{%- for message in messages %}
{%- set said = message.content | trim %}
{%- if message.role == 'system' and not loop.first %}{{- raise_exception('system first') }}{% endif %}
{%- if message.role == 'assistant' and '</think>' in said %}
{%- set said = said.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + said + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}
{%- else %}{{- '<think>\\n' }}{% endif %}
{%- endif %}""",
        "qwen35",
    ),
    # begins with a token of its own
    "lfm2": Family("{{- bos_token }}" + _CHATML_BODY, "lfm2"),
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
    # a system message of its own where there is none, and tokens around it
    "ministral-3": Family(
        """
{{- bos_token }}
{%- set said = 'Help.' %}{% set turns = messages %}
{%- if messages[0].role == 'system' %}
{%- set said = messages[0].content %}{% set turns = messages[1:] %}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + said + '[/SYSTEM_PROMPT]' }}
{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must take turns') }}
{%- endif %}
{{- '[INST]' + message.content + '[/INST]' if message.role == 'user' else message.content + eos_token }}
{%- endfor %}""",
        "ministral-3",
    ),
    # a date and whether it thinks before the system text, and an empty thought before every answer
    "smollm3": Family(
        """
{{- '<|im_start|>system\\nToday: ' ~ strftime_now('%d %B %Y') ~ '\\n' }}
{{- '/no_think\\n\\n' if enable_thinking is defined and not enable_thinking else '/think\\n\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content.rstrip() + '\\n\\n' }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- set thought = '<think>\\n\\n</think>\\n' if not enable_thinking else '' %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{% generation %}
{{- '<|im_start|>assistant\\n' + thought + message.content + '<|im_end|>\\n' }}
{%- endgeneration %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' + thought }}{% endif %}""",
        "smollm3",
        adds="Today: 26 Jul 2024\n/no_think\n\n",
    ),
    # an answer is the "model"'s
    "gemma3": Family(
        """
{{- bos_token }}
{%- set first = '' %}{% set turns = messages %}
{%- if messages[0].role == 'system' %}
{%- set first = messages[0].content + '\\n\\n' %}{% set turns = messages[1:] %}
{%- endif %}
{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must take turns') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
{{- (first if loop.first else '') + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}""",
        "gemma3",
    ),
    # a system turn, and thoughts of earlier answers taken out
    "gemma4": Family(
        """
{{- bos_token }}
{%- for message in messages %}
{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
{{- message.content.split('<channel|>')[-1] | trim + '<turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>model\\n' }}
{%- if not enable_thinking | default(false) %}{{- '<|channel>thought\\n<channel|>' }}{% endif %}
{%- endif %}""",
        "gemma4",
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
