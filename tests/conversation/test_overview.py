"""Questions about a book as a whole are answered by other means than a passage, up to the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.conversation import overview
from core.documents.document import Document, Section
from core.documents.quotes import find_quotes
from core.events import Delta, SummaryDraft
from core.evidence.support import UNFOUND, Evidence
from tests.support.fakes import CharTokenizer
from tests.support.said import figures, values, worded_by
from tests.support.talks import STYLE, ask, encoded, finished, make, turns
from tests.support.told_books import long_book

READER = replace(STYLE, passages=True, summaries="own", part_tokens=1500, whole_tokens=1600)
TELLER = replace(READER, summaries="supported")
PEOPLE = ("Oddo", "Mirabel", "Tancred", "Ysolde")
PLACES = ("ferry", "market", "chapel", "harbour")
END, ABOUT, WHO = "How does it end?", "What is it about?", "Who are the main characters?"
TELLER_ASKED = "Who is the narrator?"


def tale(chapters: int = 4, *, days: int = 60, sha256: str = "tale") -> Document:
    """Every chapter has a person and a place of its own, and every sentence is another."""
    text, sections = "", []
    for chapter in range(chapters):
        start, who, place = len(text), PEOPLE[chapter % 4], PLACES[chapter % 4]
        text += f"“I am late,” said {who}, who was the owner of the {place}.\n\n"
        for at in range(days):
            day = 100 * (chapter + 1) + at
            text += f"On day {day} the patient {who} walked to the old {place} before dark.\n\n"
        sections.append(Section(f"Chapter {chapter + 1}", start, len(text)))
    return Document("Tale", "", "txt", text, tuple(sections), sha256=sha256)


def prompts(engine) -> list[str]:
    return [CharTokenizer().decode(ids) for ids in engine.prompts]


@pytest.mark.parametrize("reading_mode", ["auto", "retrieval", "chunked"])
@pytest.mark.parametrize("question", [END, "Wie geht die Geschichte aus?", "故事的结局是什么？"])
def test_an_end_is_told_from_the_last_chapter(question: str, reading_mode: str):
    session, engine = make(style=READER)
    book = tale()
    done = finished(ask(session, book, question, reading_mode=reading_mode))
    assert "Ysolde" in done.text and not any(name in done.text for name in PEOPLE[:3])
    assert done.sources and all(source.startswith("Chapter 4") for source in done.sources)
    assert values(done.notes[0])["place"] == "Chapter 4"
    start = book.sections[3].start
    assert done.stands and all(one.book_start >= start for one in done.stands)


def test_with_a_limit_the_end_is_that_of_what_may_be_read_and_says_so():
    session, engine = make(style=READER)
    done = finished(ask(session, tale(), END, spoiler_limit=2))
    assert "Mirabel" in done.text and "Tancred" not in done.text and "Ysolde" not in done.text
    assert values(done.notes[0])["place"] == "Chapter 2" and "not" in done.notes[0].split()


def test_an_end_is_told_by_the_model_where_summaries_are():
    def reply(ids, params):
        return encoded("The patient Ysolde walked to the old harbour before dark.")

    session, engine = make(reply, style=TELLER)
    done = finished(ask(session, tale(), END))
    assert engine.prompts and all("Ysolde" in one and "Tancred" not in one for one in prompts(engine))
    assert done.stats.new_tokens > 0 and "Ysolde walked" in done.text


@pytest.mark.parametrize("style", [READER, TELLER], ids=["own", "told"])
def test_an_end_has_its_last_part_even_where_the_parts_before_tell_more(style):
    """Robin Hood did not die: of the last parts' sentences none of the very last one was chosen."""
    book = tale(days=40)
    text = book.text + "".join(f"“Bury me below oak {at}, Mirabel, for I die.”\n\n" for at in range(60))
    sections = (*book.sections[:3], replace(book.sections[3], end=len(text)))
    session, engine = make(lambda ids, params: encoded("Ysolde died."), style=style)
    done = finished(ask(session, replace(book, text=text, sections=sections, sha256="spoken"), END))
    assert any(one.book_start >= len(book.text) for one in done.stands)


def test_of_a_short_last_chapter_most_is_told():
    """Of six paragraphs that end a book one sentence stood in the answer, not what it comes to."""
    book = tale(days=40)
    last = [
        "Ysolde sold the harbour to a merchant from Dorn for ninety crowns.",
        "The bell of the chapel fell from its tower in the following winter.",
        "Oddo was sentenced to six years and died in the prison of Halmar.",
        "Mirabel left the town on a grain ship and never wrote a letter.",
        "A clerk found the missing ledger below the stairs of the mill.",
        "Nobody ever opened that green chest of the drowned pilot again.",
    ]
    text = book.text + "".join(f"{one}\n\n" for one in last)
    sections = (*book.sections, Section("Chapter 5", len(book.text), len(text)))
    session, _engine = make(style=READER)
    done = finished(ask(session, replace(book, text=text, sections=sections, sha256="short"), END))
    assert sum(one in done.text for one in last) > 4


def with_last_words(book: Document, *paragraphs: str, chapter: int = 3) -> Document:
    """The book, one of whose chapters (from 0) ends with these."""
    at, words = book.sections[chapter].end, "".join(f"{one}\n\n" for one in paragraphs)
    moved = [
        replace(
            one, start=one.start + len(words) * (one.start >= at), end=one.end + len(words) * (one.end >= at)
        )
        for one in book.sections
    ]
    text = book.text[:at] + words + book.text[at:]
    return replace(book, text=text, sections=tuple(moved), sha256=f"last {book.sha256} {chapter}")


TWIST = ("Ysolde turned around.", "“There never was a harbour,” she said. “I sold it to Oddo.”")


@pytest.mark.parametrize("style", [READER, TELLER, replace(READER, summaries="told")], ids=str)
def test_an_end_ends_with_the_last_words_also_where_somebody_says_them(style):
    """A twist in the last line of a book, which somebody speaks, was not told."""
    book = with_last_words(tale(days=40), *TWIST, "THE END", "[1] See the note on harbours.")
    session, _engine = make(lambda ids, params: encoded("Ysolde walked to the harbour."), style=style)
    events = ask(session, book, END)
    done = finished(events)
    assert done.text.endswith(f"\n>\n> {TWIST[0]}\n>\n> {TWIST[1]}")
    assert "note on" not in done.text and "THE END" not in done.text
    assert len(worded_by(overview._last_lines, *(piece.text for piece in done.pieces))) == 1
    quoted = find_quotes(done.text, book)[-1]
    assert quoted.found is not None and quoted.chapter == "Chapter 4"
    assert all(done.text.count(one) == 1 for one in TWIST), "it stands there once"
    for event in events:
        if isinstance(event, SummaryDraft):
            pieces = (*event.before, *event.telling, *event.after)
            assert "".join(piece.text for piece in pieces).endswith(TWIST[1]), "from the first moment"


def test_the_last_words_are_those_of_what_may_be_read():
    book = with_last_words(
        with_last_words(tale(), *TWIST), "“Nobody rows on Sundays,” said Mirabel.", chapter=1
    )
    for limit in ({"spoiler_limit": 2}, {"chapters": (1, 2)}, {"selected_chapters": (2,)}):
        done = finished(ask(make(style=READER)[0], book, END, **limit))
        assert done.text.endswith("“Nobody rows on Sundays,” said Mirabel.") and "sold" not in str(done)


def test_what_it_is_about_is_its_summary_and_a_kept_one_is_not_told_again():
    said = encoded("They walked to the market before dark.")
    session, engine = make(lambda ids, params: said, style=TELLER)
    ask(session, tale(), None)
    read = len(engine.prompts)
    done = finished(ask(session, tale(), ABOUT))
    summary = finished(ask(session, tale(), None, summary_length="paragraph"))
    assert read and len(engine.prompts) == read and done.text == summary.text


def test_people_are_counted_without_the_model_each_with_a_sentence_of_the_book():
    session, engine = make(style=READER)
    book = tale()
    events = ask(session, book, WHO)
    done = finished(events)
    assert engine.prompts == [] and done.stats.new_tokens == 0
    first = done.text.split("\n\n")[0]
    said, quoted = first.split("\n")
    assert "Oddo" in said and figures(said) == ["61", "1", "4", "1"]
    assert quoted == ("> “I am late,” said Oddo, who was the owner of the ferry.")
    assert [one in done.text for one in PEOPLE] == [True] * 4
    assert sum(isinstance(event, Delta) for event in events) == 4, "one after the other"
    assert all(quote.found is not None for quote in find_quotes(done.text, book))
    assert Evidence(book).marks(done.text) == (), "what was counted is no sentence to be held to the book"


def test_who_is_counted_and_not_named_is_told_by_number(monkeypatch):
    """The list of those named less often ended after 32 names, as if there were no more."""
    monkeypatch.setattr(overview, "_INTRODUCED", 1)
    monkeypatch.setattr(overview, "_NAMED", 2)
    _counted, less_often = finished(ask(make(style=READER)[0], tale(), WHO)).notes
    assert values(less_often)["count"] == 1
    monkeypatch.setattr(overview, "_NAMED", 3)
    _counted, all_of_them = finished(ask(make(style=READER)[0], tale(), WHO)).notes
    assert "count" not in values(all_of_them)


def told_by(opening: str) -> Document:
    text = opening + "“I am late,” said Oddo. I walked to the old ferry, and my lamp was lit.\n\n" * 40
    return Document("Log", "", "txt", text, (Section("One", 0, len(text)),), sha256=opening[:9])


def test_who_tells_the_book_is_answered_by_the_sentence_that_names_whoever_it_is():
    """A passage with somebody else's name was the answer."""
    session, engine = make(style=READER)
    book = told_by("Call me Ishmael. “My name is Oddo,” said the pilot.\n\n")
    done = finished(ask(session, book, "Who is the narrator?"))
    assert engine.prompts == [] and "Ishmael" in done.text.split("\n")[0]
    assert "> Call me Ishmael." in done.text and "pilot" not in done.text and done.notes
    assert Evidence(book).marks(done.text) == ()


@pytest.mark.parametrize("opening", ["It was late.\n\n", "“My name is Oddo,” said the pilot.\n\n"])
def test_of_a_narrator_without_a_name_the_program_says_that(opening: str):
    session, engine = make(style=READER)
    book = told_by(opening)
    done = finished(ask(session, book, "Who tells the story?"))
    assert done.text.startswith(UNFOUND) and "“I”" in done.text and engine.prompts == []
    assert Evidence(book).marks(done.text) == ()
    other = finished(ask(session, tale(), "Who tells the story?"))
    assert other.text.startswith(UNFOUND) and other.text.split("\n")[0] != done.text.split("\n")[0]


def test_people_behind_the_limit_are_not_named():
    session, _ = make(style=READER)
    done = finished(ask(session, tale(), WHO, spoiler_limit=2))
    assert "Mirabel" in done.text and "Tancred" not in str(done) and "Ysolde" not in str(done)


def test_a_text_that_names_nobody_says_so_and_shows_the_nearest_passages():
    text = "The main thing about wind is that it is moved air, of the character of all that is warm.\n\n" * 40
    essay = Document("Essay", "", "txt", text, (Section("Wind", 0, len(text)),), sha256="essay")
    session, engine = make(style=READER)
    done = finished(ask(session, essay, WHO))
    assert done.text.startswith(UNFOUND) and "\n> " in done.text and engine.prompts == []
    assert "people" in done.text and not done.notes


def test_a_book_in_another_language_says_that_its_people_are_not_looked_for():
    text = "Der Wärter Odo zündete die Lampe an, und die Leute im Dorf sagten, dass niemand kam.\n\n" * 40
    book = Document("Licht", "", "txt", text, (Section("Eins", 0, len(text)),), sha256="licht")
    done = finished(ask(make(style=READER)[0], book, "Wer sind die Hauptfiguren?"))
    assert done.text.startswith(UNFOUND) and "English" in done.text and not done.notes
    assert done.text.count(".") == 2, "and no advice about the question's words"


def partly_german(book: Document) -> Document:
    """The book, and half as much again in German."""
    german = "„Guten Tag“, sagte Konrad, und er ging zu dem Hafen, der nicht weit war.\n\n"
    text = book.text + german * (len(book.text) // len(german) // 2)
    sections = (*book.sections, Section("Zwei", len(book.text), len(text)))
    return replace(book, text=text, sections=sections, sha256=f"partly {book.sha256}")


@pytest.mark.parametrize(
    ("book", "question"),
    [(tale(), WHO), (told_by("Call me Ishmael. "), TELLER_ASKED), (told_by("So. "), TELLER_ASKED)],
    ids=["people", "narrator", "nobody"],
)
def test_of_a_book_that_is_partly_german_nobody_is_said_to_be_found_there(book: Document, question: str):
    """Its people were counted as if Konrad were none of them."""
    done = finished(ask(make(style=READER)[0], partly_german(book), question))
    assert len(worded_by(overview._unlooked, *done.notes)) == 1 and "Konrad" not in done.text.split("\n")[0]
    assert not worded_by(overview._unlooked, *finished(ask(make(style=READER)[0], book, question)).notes)


def test_one_chapter_ends_where_it_ends():
    """The last pages, not the whole of it again."""
    book = tale(1, days=99, sha256="one")
    done = finished(ask(make(style=replace(READER, part_tokens=800))[0], book, END))
    assert done.stands and min(one.book_start for one in done.stands) > len(book.text) // 2


def test_a_short_book_ends_in_its_last_quarter():
    """The end of a story of twelve chapters was told from two thirds of it."""
    book = tale(12, days=6, sha256="short")
    done = finished(ask(make(style=replace(READER, part_tokens=800, whole_tokens=900))[0], book, END))
    assert done.stands and min(one.book_start for one in done.stands) >= book.sections[8].start
    told, _last_lines = done.text.split("\n> ", 1)
    assert len(told.split()) < len(book.text.split()) / 10


@pytest.mark.parametrize(("chapters", "least"), [(6, 4 / 6), (1, 0.6)], ids=["short chapters", "one chapter"])
def test_the_end_of_what_is_one_part_is_its_last_quarter(chapters: int, least: float):
    """A play that was read in one go ended on its first page."""
    book = tale(chapters, days=18 // chapters, sha256=f"in one {chapters}")
    done = finished(ask(make(style=replace(READER, part_tokens=2500))[0], book, END))
    assert done.stands and min(one.book_start for one in done.stands) >= least * len(book.text)


def test_a_model_that_read_the_book_whole_answers_itself():
    """It needs no summary made of parts."""
    session, engine = make(style=replace(STYLE, whole_tokens=None), context_tokens=20_000)
    done = finished(ask(session, tale(), END))
    assert done.text == "It is so." and END in prompts(engine)[-1]


def test_a_later_turn_repeats_what_was_answered():
    session, engine = make(style=READER)
    done = finished(ask(session, tale(), WHO))
    later = finished(ask(session, tale(), ABOUT, history=turns(WHO, done)))
    assert later.text and later.text != done.text


def test_an_end_has_a_page():
    """In a paragraph the book's last pages had no room, and an end is about them."""
    session, _ = make(style=replace(READER, part_tokens=2000))
    done = finished(ask(session, long_book(4, sentences=60), END))
    assert len(done.text.split()) > 140
