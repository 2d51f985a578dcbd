"""A long conversation over a text that the window holds: with the embedded model what the product's first
evening is like, and with a tiny one in the files of a model that is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.desk.questions import too_many
from app.desk.retelling import RETOLD_TOKENS, TRANSCRIPT
from app.store.turns import retelling
from core.assembly.engines import build_engine
from core.build import open_session
from core.config import Settings
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.documents import read_document
from core.documents.document import Document, Section
from core.errors import UserError
from core.events import Finished
from core.hardware.probe import probe
from core.model.shapes import ModelShape
from core.model.store.catalogue import find
from core.paths import ROOT
from core.planning.offers import plan_model
from core.request import HistoryTurn, Request
from core.text.tokenizer import Tokenizer
from tests.support.file_layouts import fetched, older_config, sharded_bin
from tests.support.sentencepiece import TEXT, sentencepiece_folder

SAMPLE = ROOT / "assets" / "samples" / "the-thursday-clock.md"
WHO = ("Dorcas Pell", "Mr. Ormerod", "Isaac Rudd", "the lamp-boy", "the Deacon")
QUESTIONS = [f"What does {who} {does}?" for does in ("do", "say", "find", "want") for who in WHO]
MOST_NEW = 60  # tokens of a question and its frame
ANSWER = 48


@pytest.fixture
def session(home_with_model: Path) -> Iterator[Session]:
    """The product's own, without a card."""
    settings = Settings(device="cpu", snapshot_quota_gb=0, evidence_attention=False, context_tokens=8192)
    yield open_session(settings)


@pytest.fixture(scope="module")
def book() -> Document:
    return read_document(SAMPLE)


def asked(
    session: Session, book: Document, question: str, said: list[HistoryTurn], **more: object
) -> Finished:
    params = {"max_new_tokens": ANSWER, "seed": 1}
    ask = Request(question, book, "talk", reading_mode="full", params=params, history=tuple(said), **more)
    done = list(session.ask(ask))[-1]
    assert isinstance(done, Finished), done
    return done


def room(session: Session, book: Document, question: str, said: list[HistoryTurn]) -> dict:
    params = {"max_new_tokens": ANSWER}
    return session.room(
        Request(question, book, "talk", reading_mode="full", params=params, history=tuple(said))
    )


@pytest.mark.slow
def test_twenty_follow_ups_read_the_book_once(session: Session, book: Document):
    """Each feeds its own words alone and is decoded by TriForce; the window's end is known before it comes,
    and each way on from there answers.
    """
    said: list[HistoryTurn] = []
    proposed = 0
    for number, question in enumerate(QUESTIONS):
        assert too_many(room(session, book, question, said)) == 0
        done = asked(session, book, question, said, forbid_truncation=True)
        said.append(HistoryTurn(question, done.text, done.token_ids))
        stats = done.stats
        assert stats.mode == "triforce" and stats.new_tokens > 0 and done.text.strip()
        assert number == 0 or stats.prompt_tokens - stats.reused_tokens <= MOST_NEW, (number, stats)
        proposed += stats.acceptance_retrieval.evaluated
    assert proposed > 0, "nothing was ever proposed: the panel would be empty"
    assert len(said) == 20

    longer = said.copy()
    while not too_many(room(session, book, QUESTIONS[0], longer)):
        longer.append(said[len(longer) % len(said)])
    with pytest.raises(UserError, match="choose what is left out"):
        asked(session, book, QUESTIONS[0], longer, forbid_truncation=True)
    before = "\n\n".join(f"- {one.question}\n{one.answer}" for one in longer[: len(longer) // 2])
    wish = Request(TRANSCRIPT.format(said=before), params={"max_new_tokens": RETOLD_TOKENS, "seed": 1})
    told = list(session.ask(wish))[-1]
    retold = [HistoryTurn(retelling(), told.text), *longer[len(longer) // 2 :]]
    assert told.text.strip() and told.stats.mode == "triforce" and told.stats.new_tokens <= RETOLD_TOKENS
    assert too_many(room(session, book, QUESTIONS[0], retold)) == 0
    assert asked(session, book, QUESTIONS[0], retold, forbid_truncation=True).text.strip()

    least = too_many(room(session, book, QUESTIONS[0], longer))
    assert asked(session, book, QUESTIONS[0], longer[least:], forbid_truncation=True).text.strip()
    assert asked(session, book, QUESTIONS[0], [], forbid_truncation=True).text.strip()


def lwm(folder: Path) -> Path:
    """A tiny model of random numbers in the files of LWM-Text-Chat: pickled shards, the configuration that
    transformers 4 wrote, tokenizer.model, no chat template.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    sentencepiece_folder(folder)
    size = len(Tokenizer.load(folder).tokens())
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000_000.0},
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name else 0.0, 0.2 if value.ndim < 2 else 0.25)
    sharded_bin(model, folder)
    older_config(folder)
    return folder


@pytest.mark.wide
def test_ten_turns_with_a_model_in_the_files_of_lwm(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the hub to the tenth answer: the text is read once, and each answer is decoded by TriForce in the
    form that LWM's makers wrote its conversations in.
    """
    listed = find("LWM-Text-Chat-128K")
    folder = fetched(lwm(tmp_path / "repo"), monkeypatch, pickled=listed.weights == "bin")
    shape = ModelShape.from_hf_config(json.loads((folder / "config.json").read_text()), name="lwm")
    settings = Settings(device="cpu", draft_model="none", snapshot_quota_gb=0, context_tokens=4096)
    plan = plan_model(probe(measure=False), settings, replace(listed, shape=shape, folder=folder)).plan
    engine = build_engine(plan, settings, folder)
    session = Session(engine, Tokenizer.load(folder, frame=listed.frame), ReadingStyle())
    text = "\n\n".join(f"{line} It was day {number}." for number, line in enumerate(TEXT))
    story = Document("Log", "", "txt", text, (Section("Log", 0, len(text)),), sha256="log")
    said: list[HistoryTurn] = []
    proposed = 0
    for number in range(10):
        question = f"What did the keeper do on day {number}?"
        done = asked(session, story, question, said, forbid_truncation=True)
        said.append(HistoryTurn(question, done.text, done.token_ids))
        stats = done.stats
        assert stats.mode == "triforce" and stats.new_tokens > 0
        assert number == 0 or 0 < stats.prompt_tokens - stats.reused_tokens < 100, (number, stats)
        proposed += stats.acceptance_retrieval.evaluated
    assert engine.model.config.max_position == 131_072 and proposed > 0
    session.close()
