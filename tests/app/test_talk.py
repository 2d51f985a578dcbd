"""What the terminal shows of a stream of events: parts under their names, retries never, stretches under one
title.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from app.cli import chat
from app.cli.parser import build_parser
from app.cli.printing import Stream, report
from core.assembly.composition import Composer
from core.cache.full import FullKVCache
from core.config import Settings, load_settings
from core.conversation.asking import ConversationMemories
from core.conversation.reading import ReadingStyle
from core.decoding.context import Context
from core.decoding.draft_length import ExpectedGain, FixedLength
from core.documents.document import Document, Section
from core.events import Acceptance, Delta, Finished, Piece, ReadingStep, Stats, SummaryDraft
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import EMBEDDED, find
from core.planning.planner import make_plan
from core.request import Request
from tests.support.fakes import CharTokenizer
from tests.support.tiny import oracle, ours


class Idle:
    state = "ready"


def said(text: str) -> Delta:
    return Delta((Piece(text, "target"),))


def shown(capsys, *events) -> str:
    Stream(Idle()).show(iter([*events, Finished("stop", "", Stats())]))
    return capsys.readouterr().out


def test_answer_read_in_one_go_streams_as_it_comes(capsys):
    assert shown(capsys, ReadingStep(1, 1, "the whole book"), said("  He "), said("rowed.")) == "He rowed.\n"


def test_parts_are_named_and_a_retry_is_shown_instead_of_what_it_replaces(capsys):
    text = shown(
        capsys,
        ReadingStep(1, 2, "chapter One", "part summary"),
        said("A pirate."),
        ReadingStep(1, 2, "chapter One", "part summary", attempt=2),
        said("He "),
        said("rowed."),
        ReadingStep(2, 2, "Two", "part summary"),
        said("It rang."),
        ReadingStep(1, 1, "the whole book", "whole summary"),
        said("All "),
        said("of it."),
    )
    assert text == "[1/2] Chapter One\nHe rowed.\n\n[2/2] Two\nIt rang.\n\nThe whole book\n\nAll of it.\n"


def test_of_a_summary_told_in_place_only_what_stays_is_written(capsys):
    """A terminal takes nothing back: own sentences may still come in front of what a part's telling gave."""
    rest, first, second = Piece("“It rained.”", ""), Piece("He rowed. ", "target"), Piece("He sang. ", "")
    events = (
        ReadingStep(1, 2, "One", "telling"),
        SummaryDraft((), (), (rest,)),
        said("He ro"),
        ReadingStep(1, 2, "One", "telling", attempt=2),
        SummaryDraft((Piece("Not first. ", ""),), (), (rest,)),
        ReadingStep(2, 2, "Two", "telling"),
        SummaryDraft((first,), (), (rest,)),
        said("He sang. "),
        SummaryDraft((first, second), (Piece("And", ""),), (rest,)),
    )
    done = Finished("stop", f"{first.text}{second.text}{rest.text}", Stats())
    Stream(Idle()).show(iter([*events, done]))
    assert capsys.readouterr().out == done.text + "\n"


def test_stretches_stand_under_one_title(capsys):
    text = shown(
        capsys,
        ReadingStep(1, 1, "Part", "part summary"),
        said("note"),
        ReadingStep(1, 2, "One", "whole summary"),
        said("## One\n\n"),
        said("He rowed."),
        ReadingStep(2, 2, "Two", "whole summary"),
        said("\n\n## Two\n\n"),
        said("A pirate."),
        ReadingStep(2, 2, "Two", "whole summary", attempt=2),
        said("\n\n## Two\n\n"),
        said("It rang."),
    )
    assert text.endswith("The whole book\n\n## One\n\nHe rowed.\n\n## Two\n\nIt rang.\n")
    assert "pirate" not in text


def test_what_was_read_is_told_beside_the_notes(capsys):
    """The notes no longer name it: where only they are printed, nobody would know which part was read."""
    report(Finished("stop", "", Stats(), sources=("Chapter 3", "the summaries"), notes=("A note.",)), ())
    assert capsys.readouterr().err.splitlines() == [
        "Read for this answer: Chapter 3; the summaries",
        "A note.",
    ]


def test_the_figures_name_only_what_was_measured(capsys):
    """One round has no time between tokens, plain decoding no acceptance: a 0 would be a claim."""
    stats = Stats(model="m", new_tokens=9, ttft_s=3.3, mode="autoregressive")
    report(Finished("stop", "", stats), ())
    report(Finished("length", "", replace(stats, tbt_mean_ms=84.0, acceptance_draft=Acceptance(3, 4))), ())
    assert capsys.readouterr().err.splitlines() == [
        "9 tokens, first after 3.3 s (m, autoregressive)",
        "The answer reached --max-new-tokens and was cut there.",
        "9 tokens, 84 ms between tokens, draft accepted 75%, first after 3.3 s (m, autoregressive)",
    ]


class Recording:
    """A runtime that notes what it is asked."""

    state = "ready"
    asked: ClassVar[list[Request]] = []

    def __init__(self, settings: Settings) -> None: ...
    def start(self) -> None: ...
    def save(self) -> None: ...
    def close(self) -> None: ...

    def ask(self, ask: Request):
        self.asked.append(ask)
        yield Finished("stop", "", Stats())


@pytest.mark.parametrize("given", [{}, {"gamma": 48}, {"gamma": 3, "retrieval_budget": 128}])
def test_the_same_settings_compose_the_same_decoder_in_app_and_commands(given, monkeypatch):
    """A second way for a setting into the engine has other bounds, and another meaning, than the first."""
    book = Document("B", "", "txt", "He rowed.", (Section("One", 0, 9),), sha256="b")
    monkeypatch.setattr(chat, "Runtime", Recording)
    monkeypatch.setattr(chat, "read_book", lambda *_args, **_more: book)
    settings = load_settings(None, {"device": "cpu", "context_tokens": 2048, **given})
    chat.summarize(build_parser().parse_args(["summarize", "b.txt", "--question", "Who?"]), settings)

    shape = find(EMBEDDED).shape
    planned = make_plan(imagined_hardware(), settings, target=shape)
    model = ours(oracle())
    lengths = []
    for ask in (
        Recording.asked.pop(),
        Request("Who?", book, params={"mode": settings.mode, "temperature": 0.0}),
    ):
        params = ConversationMemories(CharTokenizer(), ReadingStyle()).params(ask)
        cache = FullKVCache(model.config.kv_shape, 400, model.backend, block_tokens=64)
        decoder = Composer(planned, model, None).compose(params, Context(cache, 400), 100)
        lengths.append((decoder.gamma, type(decoder.drafter._length), decoder.drafter._cache.budget))
    assert lengths[0] == lengths[1]
    assert lengths[0][0] == given.get("gamma", planned.gamma)
    assert lengths[0][1] is (FixedLength if "gamma" in given else ExpectedGain)
    assert lengths[0][2] == given.get("retrieval_budget", planned.retrieval_budget)
