"""The colours of a told summary on the page are those of the tokens that the engine decoded."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.store import Store
from app.store.history import History
from app.web.regions import answer_html
from core.conversation.session import Session
from core.decoding.decoder import Round
from core.request import Request
from core.wire import from_line, pack, to_line, unpack
from tests.support.fakes import CharTokenizer, FakeEngine
from tests.support.told_books import inventing, long_book, style, telling, true_of

VOWELS = frozenset("aeiouAEIOU")


class Coloured(FakeEngine):
    """The draft proposes vowels, the target everything else: so a character says its own level."""

    def generate(self, *args, **options):
        for event in super().generate(*args, **options):
            if isinstance(event, Round):
                said = map(CharTokenizer().decode, ([token] for token in event.tokens))
                event = replace(event, levels=tuple("draft" if one in VOWELS else "target" for one in said))
            yield event


def vowels(text: str) -> int:
    return sum(char in VOWELS for char in text)


@pytest.mark.parametrize("length", ["paragraph", "chapters"])
@pytest.mark.parametrize(("way", "reply"), [("told", inventing), ("supported", telling(true_of))])
def test_a_told_summary_has_the_colours_of_its_tokens(tmp_path, way: str, reply, length: str):
    """They were guessed by looking for its sentences in all that had been decoded."""
    book, history = long_book(), History(tmp_path / "talks.db")
    session = Session(Coloured(reply), CharTokenizer(), style(way), allowance_bytes=10**9)
    asked = Request(None, book, history.create("B").id, summary_length=length)
    events = session.ask(asked)
    piped = (unpack(from_line(to_line(pack(event)))) for event in events)
    job = AnswerJob(piped, history, asked, Store(), Callbacks())
    job.start()
    assert job.join(60)
    done, (turn,) = job.snapshot.finished, history.turns(job.conversation_id)
    told = "".join(turn.text[one.start : one.end] for one in done.stands if not one.quoted)
    assert turn.text == done.text and vowels(told) > 10
    page = str(answer_html(turn.extra["level_pieces"]))
    runs = re.findall(r'<span class="lv lv-(\w+)">(.*?)</span>', page, re.DOTALL)
    shown = {
        name: unescape("".join(text for level, text in runs if level == name)) for name in ("draft", "target")
    }
    assert vowels(shown["target"]) == 0 and vowels(shown["draft"]) == len(shown["draft"]) == vowels(told)
    assert len(re.sub(r"\s", "", shown["draft"] + shown["target"])) == len(re.sub(r"\s", "", told))
