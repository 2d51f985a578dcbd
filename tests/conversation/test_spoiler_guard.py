"""Under a limit a model says nothing that it knows from elsewhere, as of a book that everybody knows."""

from __future__ import annotations

import pytest

from core.conversation.source_names import source_names
from core.conversation.spoiler_guard import named_up_to
from core.documents.document import Document, Section
from core.events import Delta
from core.evidence.allowed_sentences import SpoilerGuard
from core.evidence.support import Evidence
from core.stats import AnswerStats
from tests.support.said import worded_by
from tests.support.talks import ask, encoded, finished, make

FIRST = (
    "Mr. Utterson the lawyer was a man of a rugged countenance. His friend Enfield told him of a man called "
    "Hyde who trampled a child at night. Hyde paid with a cheque that Dr. Jekyll had signed.\n\n"
)
SECOND = (
    "The will of Henry Jekyll gave all he had to his friend Edward Hyde. Utterson waited at the door and saw "
    "Mr. Hyde, who was pale and dwarfish. Poole said that the doctor was not at home. Nobody smiled.\n\n"
)
LAST = "Hyde is Jekyll himself: a potion had changed him. Carew was killed with a cane in October 1885.\n\n"


def strange_case() -> Document:
    text, sections = "", []
    for title, body in (("One", FIRST), ("Two", SECOND), ("Three", LAST)):
        start, text = len(text), text + body * 2
        sections.append(Section(title, start, len(text)))
    return Document("The Strange Case", "", "txt", text, tuple(sections), sha256="h")


def guard(question: str, limit: int | None = 2) -> SpoilerGuard:
    known = strange_case().up_to(limit)
    return SpoilerGuard(known, question, Evidence(known))


@pytest.mark.parametrize(
    ("question", "said", "known"),
    [
        ("Who is Mr. Hyde really?", "Dr. Jekyll.", 3),
        ("Who is Mr. Hyde really?", "Mr. Hyde is really Dr. Jekyll.", None),
        ("What happens?", "Hyde was in truth Jekyll, changed by a potion.", None),
        ("Who was killed?", "Carew was killed with a cane.", 3),
        ("When was it?", "It was in October 1885.", None),
        ("How did he change?", "A potion had changed him.", 3),
    ],
)
def test_what_only_the_rest_of_the_book_tells_is_not_said(question, said, known):
    assert not guard(question).allows(said, alone=True)
    if known:
        assert guard(question, known).allows(said, alone=True)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Who is Utterson?", "Mr. Utterson is a lawyer of a rugged countenance."),
        ("Whom did Hyde trample?", "Hyde trampled a child at night."),
        ("What did the will of Jekyll give?", "It gave all he had to his friend Edward Hyde."),
        ("Who is Edward Hyde?", "Edward Hyde is a friend of Henry Jekyll, who gave him all in his will."),
        ("Was Mr. Hyde pale?", "Mr. Hyde was pale and dwarfish."),
    ],
)
def test_what_was_read_is_said(question, said):
    assert guard(question).allows(said, alone=True)


def answers(said: str, **choices):
    session, _engine = make(lambda _ids, _params: encoded(said), context_tokens=20_000)
    return ask(session, strange_case(), "Who is Mr. Hyde really?", **choices)


@pytest.mark.parametrize("reading_mode", ["full", "chunked"])
@pytest.mark.parametrize("chosen", [{}, {"chapters": (1, 2)}, {"selected_chapters": (2,)}])
def test_no_event_tells_it_before_it_is_judged(reading_mode, chosen):
    """It stood on the page as it came, whatever became of it at the end."""
    allowed = {"spoiler_limit": 2, **chosen}
    events = answers("Dr. Jekyll.", reading_mode=reading_mode, **allowed)
    shown = "".join(piece.text for one in events if isinstance(one, Delta) for piece in one.pieces)
    done = finished(events)
    assert shown == done.text and "Jekyll" not in shown
    assert [piece.level for piece in done.pieces] == [""], "it is the program's own"
    assert done.token_ids == () and done.notes


def test_of_several_sentences_those_stay_that_are_borne_out():
    said = "Mr. Hyde was pale and dwarfish. Mr. Hyde is really Dr. Jekyll. Hyde trampled a child at night."
    events = answers(said, reading_mode="full", spoiler_limit=2)
    shown = "".join(piece.text for one in events if isinstance(one, Delta) for piece in one.pieces)
    kept = "Mr. Hyde was pale and dwarfish. Hyde trampled a child at night."
    assert shown == finished(events).text == kept


@pytest.mark.parametrize("chosen", [{}, {"chapters": (1, 2)}, {"selected_chapters": (2,)}])
def test_without_a_limit_the_answer_comes_as_it_is(chosen):
    events = answers("Dr. Jekyll. So it is!", reading_mode="full", **chosen)
    assert finished(events).text == "Dr. Jekyll. So it is!" and finished(events).token_ids


def test_its_figures_count_all_that_was_decoded():
    """What is not said was decoded all the same: the panel would count less than the end says."""
    figures = AnswerStats()
    events = answers("Dr. Jekyll.", reading_mode="full", spoiler_limit=2)
    for event in events:
        figures.take(event)
    assert figures.stats().new_tokens == finished(events).stats.new_tokens


def test_what_is_read_is_never_called_the_whole_book():
    for reading_mode in ("chunked", "full"):
        events = answers("The lawyer.", reading_mode=reading_mode, spoiler_limit=2)
        called = [*finished(events).sources, *(getattr(one, "label", "") for one in events)]
        assert not worded_by(source_names, *called)
    assert {"number": 2} in [one.values for one in worded_by(named_up_to, *called)]
    assert worded_by(source_names, *finished(answers("The lawyer.", reading_mode="full")).sources)
