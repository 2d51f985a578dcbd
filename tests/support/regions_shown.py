"""Every region of the page, rendered."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from app.desk.answer_snapshot import Snapshot
from app.desk.search import FoundText, Results
from app.desk.shelf import StoredReading
from app.desk.values import (
    AnswerPlace,
    Arrival,
    Aside,
    BookAnswer,
    BookSearch,
    ContextOverflow,
    Deletion,
    DiskShortage,
    EarlierMention,
    FolderBooks,
    FolderMove,
    ImportedFile,
    NamesPanel,
    Notice,
    ReadingsUsage,
    RefusedSetting,
    Remedy,
    ShownPassage,
)
from app.models.catalogue import ListedModel
from app.models.local_files import FileInspection, FolderChoice
from app.models.progress import Transfer
from app.render.export import ConversationFile, as_html
from app.render.markdown import Citation
from app.render.summary_book import PrintedPlace
from app.render.templating import render
from app.store.book_entry import BookEntry
from app.store.folder_scan import FoundFile
from app.store.notebook import Bookmark
from app.store.preferences import Preferences
from app.store.relocation import Relocation
from app.store.series import Series
from app.store.turns import Conversation, StoredTurn
from app.web import messages, models, regions
from app.web.chapters import told_html, tree_html
from app.web.citations import CitedAnswer, CitedPlace
from app.web.composer import (
    asks_too_html,
    book_answers_html,
    crowded_html,
    instructions_html,
    meter_html,
    queue_html,
)
from app.web.library import folders_html, hits_html, library_html
from app.web.names import aside_html, names_html
from app.web.reader import found_html, marks_html, reader_html, way_back_html
from app.web.series import series_html
from app.web.settings import settings_html
from app.web.stats_panel import panel_html, plan_html
from app.web.streaming_text import LiveText
from core.config import Settings
from core.conversation.asides import AsideSentence
from core.documents.document import Document, Section
from core.documents.finding import Finder
from core.events import Loading, Piece, Prefill, ReadingStep, Stats
from core.evidence.occurrences import Occurrence
from core.model.store import discovery
from core.request import Request

BAD = "\"'><script>alert(1)</script>"


BOOK = Document(
    title=BAD,
    author=BAD,
    format="txt",
    text=f"{BAD}\n\n{BAD}",
    sections=(Section(BAD, 0, 60),),
    page_starts=(0,),
    page_labels=(BAD,),
    warnings=(BAD,),
    sha256="a" * 64,
)


CHAPTERS = replace(BOOK, sections=(Section(BAD, 0, 30), Section(BAD, 30, 60)))


ENTRY = BookEntry("a" * 64, BAD, BAD, BAD, 1, 1, 0.0)


FILE = FoundFile(BAD, BAD, BAD, 9, 0.0)
NAMED = Occurrence("person", BAD, (BAD, "x"), ((0, 9), (30, 39)))
NAMES = NamesPanel(open=True, end=50, found=(NAMED,), chosen=BAD)
EARLIER = EarlierMention("c" * 64, BAD, BAD + "x", 2, BAD, (0, 9), BAD, (0, 3), BAD, 1)
KNOWN_NAMES = replace(NAMES, known_before=frozenset((BAD,)), earlier=(EARLIER,))
ASIDE = Aside(1, "meaning", BAD, (0, 9), 50, (AsideSentence(BAD),))
PORTRAIT = {"name": BAD, "end": 40, "model": BAD, "sentences": [[BAD, 0, 9]]}
CARD = {"tokens": 9, "share_of_context": 2.0, "parts": [BAD, BAD], "notes": [BAD]}


OPENING = ImportedFile(Path("x"), BAD, BAD)


HEARD = (FoundText("question", BAD, BAD, BAD, BAD, talk=BAD), FoundText("note", BAD, BAD, BAD, BAD))


ELSEWHERE = tuple(discovery.FoundModel(Path(BAD), BAD, BAD, 1, why) for why in ("", BAD))


STATES = ("failed", "running", "copying")


CHOOSING = FolderChoice(BAD, BAD, ((BAD, BAD),), ((BAD, BAD, 1),), error=BAD, named=(BAD,), dialog=True)


MODELS = (
    ListedModel(BAD, BAD, BAD, False, True, 1, True, path=BAD),
    ListedModel(BAD, BAD, BAD, False, True, 1, False, times=BAD, recommended=True, disk_bytes=1),
    ListedModel(BAD, BAD, BAD, False, True, 1, False, reason=BAD, would_fit_with=BAD),
)


PLAN = {"device": BAD, "dtype": BAD, "notes": [BAD], "budget": [{"name": BAD, "bytes": 1, "place": BAD}]}


ASKED = StoredTurn(0, "user", BAD, "finished", {"instructions": BAD, "since": 1, "told": BAD})


ROOM = {"text": 9, "turns": [9], "question": 1, "answer": 1, "context": 20, "reading": "full"}


ANSWER = StoredTurn(
    1,
    "assistant",
    BAD,
    "failed",
    {
        "error": BAD,
        "notes": [BAD],
        "sources": [BAD],
        "parts": [[BAD, BAD]],
        "reason": BAD,
        "instructions": BAD,
        "compared": {"text": BAD},
    },
)


WRITING = Snapshot("streaming", pieces=(Piece(f"**{BAD}**\n\n1. {BAD}", BAD),), parts=((BAD, BAD),))


LOADED = Snapshot("loading", loading=Loading(BAD), reading=ReadingStep(1, 2, BAD), prefill=Prefill(1, 2, 1.0))


MARK = Bookmark(0, 5, BAD, BAD)


PLOTTED = Stats(
    mode=BAD, model=BAD, new_tokens=1, context_total=9, tbt_series_ms=(1.0, 2.0), round_sizes=(1,)
)


def every_region() -> list[str]:
    """The page's regions with the attack in every text that a book, a model, a file or the engine brings."""
    talks = [Conversation(BAD, BAD, BAD, 0.0)]
    signs = [Citation(9, 9, 1, 2, BAD, kind, BAD) for kind in ("quoted", "agrees", "nothing")]
    quotes = (Citation(0, 4, 1, 2, BAD), Citation(5, 9, None), Citation(9, 9, None, kind="nothing"))
    cited = CitedAnswer(
        (*quotes, *signs), (CitedPlace("quoted", BAD, BAD, 1, 2), CitedPlace("agrees", BAD, BAD, 1, 2)), 3, 2
    )
    return [
        regions.header_html(BAD, model=BAD, device=BAD, loading=None),
        regions.header_html("loading", model=BAD, device=BAD, loading=Loading(BAD, 0.5, 3.0)),
        render("log.html", folder=BAD, logs=[(BAD, BAD)]),
        messages.shortage_html(DiskShortage(Path(BAD), 1, 2, ((BAD, 3),)), "another", None, ()),
        library_html(
            [ENTRY],
            covered=frozenset(),
            kept={ENTRY.id: StoredReading(1, True)},
            today=date(2026, 1, 1),
            current=ENTRY.id,
            talks=talks,
            talk="",
            samples=(BAD,),
        ),
        hits_html(Results(BAD, (ENTRY,), (FILE,), ((ENTRY, HEARD),), 1, ((ENTRY, 9, HEARD),))),
        regions.stage_html(None, None, covered=False, opening=OPENING, talking=False),
        regions.stage_html(BOOK, CARD, covered=False, opening=None, talking=False),
        regions.ways_html(CHAPTERS, reading_mode="auto", spoiler_limit=1, busy=False),
        instructions_html(BAD, BAD, fixed=True) + meter_html(ROOM),  # the meter has figures only
        asks_too_html((ENTRY, replace(ENTRY, id="b")), (("b", ENTRY.id),), "b"),
        book_answers_html(
            [
                BookAnswer(BAD, BAD, BAD, BAD, state, ((BAD, ""),), ((1, 2, BAD),))
                for state in ("waiting", "writing", "finished", "failed")
            ]
        ),
        book_answers_html([BookAnswer(BAD, BAD, BAD, BAD, "finished")]),
        crowded_html(ContextOverflow(Request(BAD), 1, 2, ROOM, True)),
        queue_html(
            AnswerPlace(BAD, BAD, BAD), "streaming", queued=Request(BAD), crowded=None, titles={BAD: BAD}
        ),
        regions.choices_html(CHAPTERS, (0, 1), "page", fixed=False),
        *_settings(),
        render("footnote.html", number=1, target=BAD, first=True),
        render("epub_title.html", title=BAD, made=BAD),
        render("epub_told.html", title=BAD, text=BAD, said=BAD),
        render("epub_places.html", title=BAD, chapters=[(BOOK.sections[0], [PrintedPlace(1, *[BAD] * 5)])]),
        as_html(
            ConversationFile(
                BOOK,
                BAD,
                [StoredTurn(1, "user", BAD, "finished", {}), ANSWER],
                [(BAD, BAD, BAD)],
                {ANSWER.number: (Citation(3, 9, 1, 2, BAD),)},
                BAD,
            )
        ),
        messages.failures_html((BAD,)),
        messages.arrivals_html((Arrival(BAD, BAD),), ""),
        messages.arrivals_html((Arrival(BAD, BAD), Arrival("b", BAD)), BAD),
        messages.deleted_html((Deletion(BAD, BAD), Deletion(BAD, BAD))),
        messages.notice_html(Notice(BAD, BAD, (Remedy(BAD, BAD, BAD), Remedy(BAD, opens=BAD)))),
        messages.offer_html(ImportedFile(Path("x"), BAD, offer=BAD)),
        "".join(
            messages.moving_html(FolderMove(Relocation(BAD, BAD, 9, True), done, 3.0)) for done in (None, 4)
        ),
        messages.leaving_html(ask=True, now=True) + render("log.html", folder=BAD, logs=[]),
        messages.locked_html(ImportedFile(Path("x"), BAD, locked=True)),
        regions.turn_html(ASKED),
        regions.turn_html(ANSWER, question=replace(ASKED, extra={"instructions": ""})),
        regions.turn_html(ANSWER, cited, last=True),
        *LiveText().blocks(WRITING.pieces, 10**6),
        regions.parts_html(WRITING.parts),
        regions.progress_html(LOADED),
        regions.progress_html(Snapshot("loading", loading=Loading(BAD))),
        regions.spoken_status("", OPENING),
        models.models_html(MODELS, current=BAD),
        models.models_html(MODELS, current="", fetching=True),
        models.models_html(MODELS, current=""),
        models.model_offer_html(MODELS[0]),
        models.model_files_html(CHOOSING),
        models.model_files_html(FolderChoice(found=ELSEWHERE, named=(BAD,))),
        models.model_files_html(replace(CHOOSING, moving=BAD)),
        models.model_files_html(replace(CHOOSING, dropped=(BAD, 1))),
        models.model_files_html(FolderChoice(searching_s=15.0, named=(BAD,))),
        models.looking_html(FileInspection(BAD, 20.0)),
        *(models.fetching_html(Transfer(BAD, BAD, 0.5, state, BAD)) for state in STATES),
        panel_html(PLOTTED, live=True),
        plan_html(PLAN, model=BAD),
        reader_html(BOOK, ShownPassage(3, 4)),
        found_html(BOOK, BookSearch(BAD, True, Finder(BOOK.text).find(BAD, exact=True))),
        tree_html(BOOK, {}, ShownPassage(), words=[3], selected_chapters=(1,), told=(1,)),
        tree_html(BOOK, {}, ShownPassage(), words=[3], selected_chapters=(), told=(1,)),
        told_html(BOOK, ShownPassage(), {1: BAD}, {1: {"person": [BAD], "place": [BAD]}}),
        folders_html(FolderBooks((FILE,) * 8, 1, ((BAD, BAD),), True), (BAD,), fixed=False),
        marks_html(BOOK, (MARK,)),
        way_back_html(BOOK, 0),
        names_html(BOOK, NAMES, limited=False, explains=True),
        names_html(BOOK, KNOWN_NAMES, limited=False),
        series_html((ENTRY,), ENTRY.id, Series("k", BAD, (ENTRY, ENTRY))),
        series_html((ENTRY, replace(ENTRY, id="b")), "b", None),
        names_html(BOOK, NAMES, limited=False, aside=replace(ASIDE, kind="person"), portraits=(PORTRAIT,)),
        aside_html(BOOK, ASIDE),
        aside_html(BOOK, replace(ASIDE, state="failed", error=BAD, sentences=())),
    ]


def _settings() -> tuple[str, ...]:
    """The drawer, a value with the attack in each group and above them."""
    values = {"model": BAD, "stop": (BAD,), "gamma": BAD, "threads": BAD, "port": BAD, "api_hosts": (BAD,)}
    kept = ReadingsUsage(9, 10, ((BAD, 9),))
    given = Preferences(replace(Settings(), **values))
    refused = RefusedSetting("gamma", BAD, BAD)
    return settings_html(given.settings, given.origins, [BAD], kept, refused)
