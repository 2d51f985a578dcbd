"""The user's settings: one frozen value read from config.yaml and the command line. Knows nothing of hardware
or models.

Every key of config.yaml is a field here and the other way round. `auto` in the file is None in `Settings`:
the planner decides. Values outside the allowed range and unknown keys are errors that name the key, the range
or the nearest valid key.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from core.errors import UserError
from core.paths import ROOT
from core.text import rules
from core.text.renamed import renamed
from core.text.rules import Rule
from core.text.words import LANGUAGES, listed_texts
from core.text.words import translated as _

log = logging.getLogger(__name__)

# without drafts; cpu_attention leaves attention to what lies in host memory to the CPU
PLAIN_MODES = ("autoregressive", "cpu_attention")
MODES = ("triforce", "retrieval", "draft", "ngram", "streaming", *PLAIN_MODES)
READING_MODES = ("auto", "full", "chunked", "retrieval")
LENGTHS = ("paragraph", "page", "chapters")
SUMMARIES = ("auto", "own")
DTYPES = ("float32", "bfloat16", "float16")
WEIGHTS, KV = (16, 8, 4), (16, 8)  # bits
INSTRUCTIONS_CHARS = 1000  # they are read with every question
GONE = ("weights_kernel",)  # keys of earlier versions: a person's own file may still have them
GRAPHS = ("auto", "on", "off")
KERNELS = ("auto", "library")
DEFAULT_PATH = ROOT / "config.yaml"
_SAID_CHARS = 80  # of a value that is not allowed


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for. None means auto; see config.yaml for what each key does."""

    # model and context
    model: str | None = None
    draft_model: str | None = None  # "none": no draft model even where the catalogue pairs one
    data_dir: Path | None = None
    context_tokens: int | None = None
    # a choice of its own: what fits and can be read in time is read whole, see core.conversation.session
    reading_mode: str = "auto"
    read_whole_s: float = 300.0
    summary_length: str = "page"
    summaries: str = "auto"  # as suits the model: its catalogue entry says
    # answers
    mode: str = "triforce"
    max_new_tokens: int = 512
    temperature: float | None = None  # None here: as the model's catalogue entry says
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    instructions: str = ""
    # speculation
    retrieval_budget: int | None = None
    retrieval_chunk: int | None = None
    gamma: int | None = None
    middle_gamma: int | None = None
    draft_sinks: int | None = None
    draft_window: int | None = None
    assumed_acceptance: float = 0.92
    assumed_draft_acceptance: float | None = None
    verify: bool = False
    evidence_attention: bool = True
    # machine
    device: str | None = None
    devices: tuple[int, ...] | None = None
    dtype: str | None = None
    weights: int | None = None
    kv: int | None = None
    threads: int | None = None
    on_chip_layers: int | None = None
    kv_residency: str = "layers"
    cpu_share: str = "auto"  # a choice of its own: what the plan promises to pay
    cuda_graphs: str = "auto"  # a choice of its own: measured, then whichever is faster
    kernels: str = "auto"  # a choice of its own: those of ours that a trial on the card finds to serve
    staging_blocks: int | None = None
    staging_block_mib: int | None = None
    prefill_segment_tokens: int | None = None
    prefill_chunk_tokens: int | None = None
    vram_gib: float | None = None
    vram_reserve_gib: float | None = None
    ram_gib: float | None = None
    ram_reserve_gib: float | None = None
    pcie_gb_per_s: float | None = None
    vram_gb_per_s: float | None = None
    tflops: float | None = None
    # app
    max_upload_mb: int = 200
    snapshot_quota_gb: float | None = None
    offline: bool = False
    port: int = 7860
    open_browser: bool = True
    open_in: str = "window"
    when_closed: str = "ask"
    start_at_login: bool = False
    theme: str = "system"
    language: str | None = None
    book_folders: tuple[str, ...] = ()
    # other programs
    api: bool = False
    api_hosts: tuple[str, ...] = ()
    mcp: bool = False
    mcp_folders: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for a pipe or a log; auto is spelled "auto", so nothing is lost on the way back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            key: "auto" if value is None else str(value) if isinstance(value, Path) else value
            for key, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """The settings `to_json` wrote, whatever config.yaml says. Checked like the file."""
        return override(cls(), values)


# ---- one rule per key --------------------------------------------------------------------------------------


def _switch(value: Any) -> str:
    """One of GRAPHS; YAML 1.1 reads on and off as truth values."""
    named = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    return rules.choice(GRAPHS).parse(named)


def _instructions(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip()) > INSTRUCTIONS_CHARS:
        raise ValueError(value)
    return value.strip()


RULES: dict[str, Rule] = {
    "model": Rule(lambda: _("a name from `models list` or a folder with a checkpoint"), rules.text, True),
    "draft_model": Rule(
        lambda: _("none, a name from `models list` or a folder with a checkpoint"), rules.text, True
    ),
    "data_dir": Rule(lambda: _("a folder"), lambda value: Path(rules.text(value)).expanduser(), True),
    "context_tokens": rules.tokens(256, 4_194_304, auto=True),
    "reading_mode": rules.choice(READING_MODES),
    "summary_length": rules.choice(LENGTHS),
    "summaries": rules.choice(SUMMARIES),
    "read_whole_s": rules.number(0, 1e7, unit=" s"),
    "mode": rules.choice(MODES),
    "max_new_tokens": rules.tokens(1, 131_072),
    "temperature": rules.number(0.0, 2.0, auto=True),
    "top_p": rules.number(0.01, 1.0, auto=True),
    "repetition_penalty": rules.number(1.0, 2.0, auto=True),
    "seed": rules.whole(0, 2**63 - 1, auto=True),
    "stop": Rule(lambda: _("a list of texts"), rules.texts),
    "instructions": Rule(lambda: _("a text of up to 1,000 characters"), _instructions),
    "retrieval_budget": rules.tokens(64, 65_536, auto=True),
    "retrieval_chunk": rules.tokens(1, 256, auto=True),
    "gamma": rules.whole(1, 64, auto=True),
    "middle_gamma": rules.whole(1, 32, auto=True),
    "draft_sinks": rules.tokens(0, 1024, auto=True),
    "draft_window": rules.tokens(16, 8192, auto=True),
    "assumed_acceptance": rules.number(0.01, 0.999),
    "assumed_draft_acceptance": rules.number(0.01, 0.999, auto=True),
    "verify": rules.FLAG,
    "evidence_attention": rules.FLAG,
    "device": rules.choice(("cpu", "cuda"), auto=True),
    "devices": Rule(lambda: _("numbers of graphics cards as in [0, 1]"), rules.numbers, True),
    "dtype": rules.choice(DTYPES, auto=True),
    "weights": rules.bits(WEIGHTS),
    "kv": rules.bits(KV),
    "threads": rules.whole(1, 1024, auto=True),
    "on_chip_layers": rules.whole(0, 512, auto=True),
    "kv_residency": rules.choice(("layers", "blocks")),
    "cpu_share": rules.choice(("auto", "none")),
    "cuda_graphs": Rule(lambda: rules.one_of(GRAPHS), _switch, names=GRAPHS),
    "kernels": rules.choice(KERNELS),
    "staging_blocks": rules.whole(2, 16, auto=True),
    "staging_block_mib": rules.whole(1, 1024, auto=True, unit=" MiB"),
    "prefill_segment_tokens": rules.tokens(128, 4_194_304, auto=True),
    "prefill_chunk_tokens": rules.tokens(16, 65_536, auto=True),
    "vram_gib": rules.number(1, 1024, auto=True, unit=" GiB"),
    "vram_reserve_gib": rules.number(0, 64, auto=True, unit=" GiB"),
    "ram_gib": rules.number(1, 16_384, auto=True, unit=" GiB"),
    "ram_reserve_gib": rules.number(0, 1024, auto=True, unit=" GiB"),
    "pcie_gb_per_s": rules.number(0.1, 1000, auto=True, unit=" GB/s"),
    "vram_gb_per_s": rules.number(10, 20_000, auto=True, unit=" GB/s"),
    "tflops": rules.number(0.1, 10_000, auto=True, unit=" TFLOP/s"),
    "max_upload_mb": rules.whole(1, 10_000, unit=" MB"),
    "snapshot_quota_gb": rules.number(0, 100_000, auto=True, unit=" GB"),
    "offline": rules.FLAG,
    "port": rules.whole(0, 65_535),
    "open_browser": rules.FLAG,
    "open_in": rules.choice(("window", "tab")),
    "when_closed": rules.choice(("ask", "keep", "quit")),
    "start_at_login": rules.FLAG,
    "theme": rules.choice(("system", "light", "dark")),
    "language": rules.choice(tuple(LANGUAGES), auto=True),
    "book_folders": Rule(lambda: _("a list of folders"), rules.folders),
    "api": rules.FLAG,
    "api_hosts": Rule(lambda: _("a list of names, each with its port as in localhost:9000"), rules.hosts),
    "mcp": rules.FLAG,
    "mcp_folders": Rule(lambda: _("a list of folders"), rules.folders),
}


def load_settings(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from the YAML file at `path`, then `overrides`.

    `path` None: the program's own config.yaml, or the defaults where there is none. In `overrides` None means
    "not given" and "auto" means auto. All problems of a source are reported in one UserError.
    """
    settings = Settings()
    if path is not None or DEFAULT_PATH.is_file():
        source = path if path is not None else DEFAULT_PATH
        settings = _apply(settings, _read_yaml(source), source=source.name)
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    settings = _apply(settings, given, source="command line")
    _check_together(settings)
    return settings


def override(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """`settings` with the given values checked and put in; the rules of `load_settings`."""
    given = {key: value for key, value in overrides.items() if value is not None}
    changed = _apply(settings, given, source="settings")
    _check_together(changed)
    return changed


def checked(key: str, value: Any) -> Any:
    """`value` as the rule of `key` reads it. Raises UserError with what is allowed."""
    rule = RULES[key]
    try:
        return rule.parse(value)
    except (ValueError, OverflowError):
        raise UserError(_not_allowed(key, value, rule.words())) from None


def _not_allowed(key: str, value: Any, allowed: str) -> str:
    words, said = _("{key} is {value}; allowed is {allowed}."), repr(value)
    short = said if len(said) <= _SAID_CHARS else f"{said[:_SAID_CHARS]} …"
    return words.format(key=key, value=short, allowed=allowed)


def use_data_dir(settings: Settings) -> None:
    """Make `data_dir` the root of core.paths for this process and its children. TRIFORCE_HOME, when set, has
    the last word.
    """
    if settings.data_dir is not None:
        os.environ.setdefault("TRIFORCE_HOME", str(settings.data_dir))


def stay_offline(settings: Settings) -> None:
    """With `offline`, this process and its children fetch nothing (core.model.store.hub.is_offline)."""
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the hub's client listens to it, too


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        words = _("There is no settings file at {path}. Check the path, or leave it out to use the defaults.")
        raise UserError(words.format(path=path)) from error
    except (OSError, UnicodeDecodeError) as error:
        words = _("{path} cannot be read: {error}. Save it as a UTF-8 text file that you may read.")
        raise UserError(words.format(path=path, error=error)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or _("it is not valid YAML")
        words = _("{file} cannot be understood: {problem}. Write one `key: value` per line.")
        if mark is not None:
            words = _(
                "{file} cannot be understood at line {line}: {problem}. Write one `key: value` per line."
            )
        line = mark.line + 1 if mark is not None else 0
        raise UserError(words.format(file=path.name, line=line, problem=problem)) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        words = _("{file} must hold one `key: value` per line, not {kind}.")
        raise UserError(words.format(file=path.name, kind=type(content).__name__))
    return content


def _apply(settings: Settings, values: Mapping[Any, Any], *, source: str) -> Settings:
    """`settings` with `values` parsed by their rules; every problem found is in the one UserError."""
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in renamed(values).items():
        if key in GONE:
            log.warning("%s: %s is no setting any more and is not looked at", source, key)
            continue
        rule = RULES.get(str(key))
        if rule is None:
            problems.append(_unknown(str(key)))
            continue
        try:
            parsed[str(key)] = rules.parsed(rule, value, default=getattr(Settings(), str(key)))
        except (ValueError, OverflowError):
            problems.append(_not_allowed(str(key), value, rule.allowed))
    if problems:
        raise UserError(listed_texts((listed_texts((source, one), ": ") for one in problems), "\n"))
    return replace(settings, **parsed)


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key.lower().replace("-", "_"), RULES, n=1, cutoff=0.0)[0]
    return _("unknown key {key!r}; the nearest valid key is {near!r}.").format(key=key, near=near)


def _check_together(settings: Settings) -> None:
    """Values that are fine alone and wrong together."""
    budget, chunk = settings.retrieval_budget, settings.retrieval_chunk
    if budget is not None and chunk is not None and chunk * 2 > budget:
        words = _(
            "retrieval_chunk is {chunk} tokens and retrieval_budget {budget}; at least two chunks must fit. "
            "Raise retrieval_budget to {least} or lower retrieval_chunk."
        )
        raise UserError(words.format(chunk=chunk, budget=budget, least=2 * chunk))
    context, new = settings.context_tokens, settings.max_new_tokens
    if context is not None and new >= context:
        words = _(
            "max_new_tokens is {new:,} and context_tokens {context:,}; the answer must leave room for the "
            "question. Lower max_new_tokens or raise context_tokens."
        )
        raise UserError(words.format(new=new, context=context))


assert set(RULES) == {field.name for field in fields(Settings)}, "every key needs a rule and every rule a key"
