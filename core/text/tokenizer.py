"""The tokenizer of a model folder: text to ids and back, and what its chat template puts around them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.text.chat_template import pieces_of
from core.text.words import translated as _

_FILES = ("tokenizer.json", "tokenizer.model")
_GENERAL = ("TokenizersBackend", "PreTrainedTokenizerFast")
# For tokenizers without a chat template: what is written before the system text, the first user text, its
# answer, the next user text and its answer. lwm: https://github.com/LargeWorldModel/LWM,
# scripts/sample_pyt.py; llama2: https://arxiv.org/abs/2307.09288 and its reference code; completion: for base
# models, which go on with a text rather than answer.
FRAMES = {
    "lwm": ("", " USER: ", "", " USER: ", " ASSISTANT:"),
    "llama2": ("[INST] <<SYS>>\n", "\n<</SYS>>\n\n", "", " </s><s>[INST] ", " [/INST]"),
    "completion": ("", "\n\n", "", "\n\nQuestion: ", "\n\nAnswer:"),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the chat template writes around a conversation, as ids.

    A prompt is `opening + first user text + ask + answer + bridge + user text + ask ...`. Answers stay the
    ids the model produced; nothing that was said is ever rendered again.
    """

    opening: tuple[int, ...]  # up to the first user text, the system text included
    ask: tuple[int, ...]  # from the end of a user text to the first token of the answer
    bridge: tuple[int, ...]  # from the end of an answer to the next user text


Written = Callable[[Mapping[str, Any]], Sequence[str | None]]


class Tokenizer:
    """Wraps a transformers tokenizer. Everything a person or a book wrote is encoded as plain text, never as
    control tokens.
    """

    def __init__(self, backend: Any, *, frame: str = "lwm", written: Written = pieces_of) -> None:
        self._backend, self._untemplated, self._written = backend, FRAMES[frame], written
        self._backend.model_max_length = 1 << 60  # we count ourselves; transformers would only warn
        self._lock = threading.Lock()  # encoding flags live inside the backend
        # control tokens in a text are left alone when it is encoded as plain; others that were added are not
        added = [str(one) for one in backend.added_tokens_decoder.values() if not one.special]
        added.sort(key=len, reverse=True)
        self._added_text = re.compile("|".join(re.escape(token) for token in added)) if added else None
        self.frame = lru_cache(maxsize=16)(self._frame)
        self._pieces = lru_cache(maxsize=1)(self._template_pieces)

    @classmethod
    def load(cls, folder: Path, *, frame: str = "lwm", written: Written = pieces_of) -> Tokenizer:
        """The tokenizer stored in a model folder; `frame` (of FRAMES) is for one without a chat template.
        `written` runs the template (core.text.chat_template.pieces_of): one from outside, under limits.

        Raises UserError when the folder holds none.
        """
        try:
            found = _class_for(folder).from_pretrained(str(folder), local_files_only=True)
            return cls(found, frame=frame, written=written)
        except (OSError, ValueError) as error:
            said = _(
                "The tokenizer in {folder} cannot be read ({reason}). Delete that folder; the next start "
                "fetches it anew."
            )
            raise UserError(said.format(folder=folder, reason=error)) from error

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as plain text: even "<|im_end|>" becomes ordinary characters."""
        ids: list[int] = []
        for piece in self._without_control(text):
            ids += self._encode(piece, plain=True)
        return ids

    def tokens(self) -> dict[int, str]:
        """Every token by its id."""
        return {number: token for token, number in self._backend.get_vocab().items()}

    def count(self, text: str) -> int:
        """How many ids `encode` would give."""
        return len(self.encode(text))

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        """Text of `ids` without control tokens."""
        with self._lock:
            return self._backend.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

    def _without_control(self, text: str) -> list[str]:
        """`text` cut inside every literal that the tokenizer would take for an added token even so."""
        if self._added_text is None:
            return [text]
        cuts = [match.start() + 1 for match in self._added_text.finditer(text)]
        return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def _encode(self, text: str, *, plain: bool) -> list[int]:
        with self._lock:
            return self._backend(text, add_special_tokens=False, split_special_tokens=plain).input_ids

    def _frame(self, system: str) -> Frame:
        """The frame for one system text; raises UserError when the template cannot be understood."""
        before, opening, _answer, bridge, ask = self._pieces()
        # the template knows no system role: it goes before the first text
        if opening is None:
            start = self._encode(before, plain=False) + self.encode(system + "\n\n" if system else "")
        else:
            start = (
                self._encode(before, plain=False) + self.encode(system) + self._encode(opening, plain=False)
            )
        return Frame(
            tuple(start), tuple(self._encode(ask, plain=False)), tuple(self._encode(bridge, plain=False))
        )

    def _template_pieces(self) -> tuple[str, str | None, str, str, str]:
        """What the template writes before the system text, the first user text, its answer, the next user
        text, its answer.
        """
        if not getattr(self._backend, "chat_template", None):
            before, *rest = self._untemplated
            return ((self._backend.bos_token or "") + before, *rest)
        tokens = {name: str(token) for name, token in self._backend.special_tokens_map.items()}
        try:
            return tuple(self._written({"template": self._backend.get_chat_template(), "tokens": tokens}))
        except UserError:
            raise
        except Exception as error:  # a template may raise what it likes
            said = _("The chat template of this model cannot be used ({reason}). Choose another model.")
            raise UserError(said.format(reason=error)) from error


def require_same_tokens(target: Path, draft: Path) -> None:
    """Raises UserError unless the models in both folders mean the same by each id. A trained draft has no
    tokenizer but its target's.
    """
    if not any((draft / name).is_file() for name in _FILES):
        return
    one, other = (target / _FILES[0], draft / _FILES[0])
    if one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes():
        return
    known, drafted = (Tokenizer.load(folder).tokens() for folder in (target, draft))
    common = known.keys() & drafted.keys()
    wrong = [number for number in sorted(common) if known[number] != drafted[number]]
    if wrong or len(common) < min(len(known), len(drafted)):
        said = _(
            "The draft model in {draft} has another vocabulary than {target}. Choose a draft model with "
            "the same one, or draft_model: none."
        )
        if wrong:
            said = _(
                "The draft model in {draft} has another vocabulary than {target}: token {number:,} is "
                "{one!r} and {other!r}. Choose a draft model with the same one, or draft_model: none."
            )
        number = wrong[0] if wrong else 0
        raise UserError(
            said.format(
                draft=draft.name,
                target=target.name,
                number=number,
                one=known.get(number),
                other=drafted.get(number),
            )
        )


def _class_for(folder: Path) -> Any:
    """The class that AutoTokenizer would choose; where the files name the general one, without the choosing,
    which imports a lot.
    """
    try:
        named = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get(
            "tokenizer_class"
        )
    except (OSError, ValueError, AttributeError):
        named = None
    if named in _GENERAL and (folder / "tokenizer.json").is_file():
        from transformers import PreTrainedTokenizerFast as Chosen
    else:
        from transformers import AutoTokenizer as Chosen
    return Chosen
