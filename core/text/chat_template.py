"""What a model's chat template writes around a conversation. The template is a program that somebody else
wrote: it runs in Jinja's immutable sandbox, and for files from outside in a process with limits
(core.model.store.untrusted). Knows no tokenizer.

Values and functions that templates expect:
https://huggingface.co/docs/transformers/chat_templating_writing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Some templates print today's date into the system message. A fixed one keeps a book's prefix identical from
# day to day.
TEMPLATE_DATE = "26 Jul 2024"

_MARKS = ("\u27e6system\u27e7", "\u27e6first\u27e7", "\u27e6answer\u27e7", "\u27e6second\u27e7")
_ROLES = ("system", "user", "assistant", "user")


def pieces_of(given: Mapping[str, Any]) -> list[str | None]:
    """What `given["template"]` writes before the system text, the first user text, its answer, the next user
    text, its answer. The second is None where the template knows no system role: then the system text is to
    stand before the first user text.

    `given["tokens"]` are the names of special tokens (bos_token and others). Thinking is off: a thought that
    the template opens whatever it is told is closed again, empty. Raises ValueError where the template does
    not show a conversation as it is, or jinja2's errors.
    """
    messages = [{"role": role, "content": mark} for role, mark in zip(_ROLES, _MARKS, strict=True)]
    template = _environment().from_string(given["template"])

    def pieces(first: int) -> list[str]:
        written = template.render(
            **given["tokens"],
            messages=messages[first:],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            enable_thinking=False,
            date_string=TEMPLATE_DATE,
        )
        *before, answer = _split(written, _MARKS[first:])
        return [*before, _without_thought(answer)]

    try:
        return pieces(0)
    except Exception:  # templates raise what they like when a role is unknown to them
        before, *rest = pieces(1)
        return [before, None, *rest]


def _without_thought(answer: str) -> str:
    """What stands before an answer, with no thought left open."""
    opened = answer.rstrip()
    return f"{opened}\n\n</think>\n\n" if opened.endswith("<think>") else answer


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _json
    made.globals |= {"raise_exception": _refuse, "strftime_now": lambda _form: TEMPLATE_DATE}
    return made


class _Generation(Extension):
    """{% generation %}: marks what a model wrote, for training; here only what is inside it counts."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Jinja's hook: what stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
    """Jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _split(written: str, marks: tuple[str, ...]) -> list[str]:
    """The text between the marks; raises ValueError unless each occurs exactly once and in order."""
    pieces = []
    for mark in marks:
        if written.count(mark) != 1:
            raise ValueError("it does not show every message exactly once")
        piece, written = written.split(mark)
        pieces.append(piece)
    return [*pieces, written]
