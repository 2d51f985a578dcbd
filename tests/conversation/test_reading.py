"""How a book is read: whole or in parts, nothing lost, nothing hidden."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conversation.asking import asked_of_passage
from core.conversation.chapter_names import chapter_names
from core.conversation.reading import ReadingStyle, _left_out, book_chapters, plan_reading
from core.documents import read_document
from core.documents.document import Document, Section
from core.errors import UserError
from core.text.words import in_language
from tests.support.said import values, worded_by


class Words:
    """One token per word."""

    def count(self, text: str) -> int:
        return len(text.split())


def book(
    *lengths: int, titles: tuple[str, ...] = (), kinds: tuple[str, ...] = (), paragraph: int = 10
) -> Document:
    """Chapters of so many words, in paragraphs of `paragraph` words."""
    text, sections = "", []
    for i, length in enumerate(lengths):
        words = [f"c{i}w{j}" for j in range(length)]
        paragraphs = [" ".join(words[j : j + paragraph]) for j in range(0, length, paragraph)]
        start, text = len(text), text + "\n\n".join(paragraphs) + "\n\n"
        sections.append(
            Section(
                titles[i] if titles else f"Chapter {i + 1}. Of {i}",
                start,
                len(text),
                kind=kinds[i] if kinds else "chapter",
            )
        )
    return Document("A Book", "", "txt", text, tuple(sections))


STYLE = ReadingStyle(part_tokens=100, whole_tokens=200)


def plan(document: Document, **options):
    return plan_reading(
        document, Words(), **{"context_tokens": 1000, "style": STYLE, "reserve": 100, **options}
    )


def test_short_book_is_read_whole():
    made = plan(book(50, 60))
    assert (made.mode, made.tokens, len(made.parts)) == ("full", 110, 1)


def test_long_book_is_read_along_its_chapters():
    made = plan(book(90, 40, 50, 95))
    assert made.mode == "chunked"
    assert [part.label for part in made.parts] == [
        "Chapter 1: Of 0",
        "Chapters 2–3: “Of 1” to “Of 2”",
        "Chapter 4: Of 3",
    ]
    assert [part.tokens for part in made.parts] == [90, 90, 95]
    assert "275" in made.notes[0] and "3 parts" in made.notes[0]


def test_long_chapter_is_cut_at_paragraphs_into_even_pieces():
    """Cutting at a fixed length leaves a tail of a few words that is summarised like a chapter."""
    document = book(250)
    made = plan(document, reading_mode="chunked")
    assert [part.label for part in made.parts] == [f"Chapter 1: Of 0, part {i} of 3" for i in (1, 2, 3)]
    assert all(80 <= part.tokens <= 90 for part in made.parts)
    assert all(document.text[part.start - 2 : part.start] == "\n\n" for part in made.parts[1:])


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=12),
    st.sampled_from([7, 30, 500]),
    st.integers(20, 150),
)
@settings(deadline=None, max_examples=80)
def test_every_word_is_read_exactly_once(lengths: list[int], paragraph: int, part_tokens: int):
    """A part border that loses or doubles text, whatever the paragraphs are like."""
    if not sum(lengths):
        return
    document = book(*lengths, paragraph=paragraph)
    made = plan(document, reading_mode="chunked", style=ReadingStyle(part_tokens=part_tokens))
    assert (
        " ".join(document.text[part.start : part.end] for part in made.parts).split() == document.text.split()
    )
    assert all(part.tokens <= 1.6 * part_tokens + 2 for part in made.parts)


def test_text_without_spaces_is_cut_too():
    """One endless word must not become one endless part."""

    class Characters:
        def count(self, text: str) -> int:
            return len(text)

    document = Document("", "", "txt", "x" * 1000, (Section("", 0, 1000),))
    made = plan_reading(document, Characters(), context_tokens=500, style=STYLE, reserve=100)
    assert len(made.parts) == 10
    assert "".join(document.text[part.start : part.end] for part in made.parts) == document.text


def test_whole_is_refused_with_the_numbers():
    with pytest.raises(
        UserError, match=r"1,200 tokens; 900 fit .*1,000 less 100.*in parts, or fewer of its chapters"
    ):
        plan(book(1200), reading_mode="full")


def test_whole_goes_beyond_what_auto_would_read_at_once():
    document = book(300, 300)
    assert plan(document).mode == "chunked"
    assert plan(document, reading_mode="full").mode == "full"


def test_chapters_narrow_and_the_rest_is_named():
    made = plan(book(50, 60, 70, 80), chapters=(2, 3))
    assert made.parts[0].label == "Chapters 2–3: “Of 1” to “Of 2”"
    assert (made.tokens, made.left_out) == (130, ("Chapter 1: Of 0", "Chapter 4: Of 3"))


def test_ticked_chapters_alone_are_read_and_the_rest_is_named():
    document = book(50, 60, 70, 80, 90)
    made = plan(document, selected_chapters=(5, 1, 2))
    assert made.mode == "chunked" and made.tokens == 200
    assert made.left_out == ("Chapters 3–4: “Of 2” to “Of 3”",)
    read = " ".join(document.text[part.start : part.end] for part in made.parts)
    assert "c2w" not in read and "c3w" not in read and "c0w0" in read and "c1w59" in read and "c4w89" in read
    passages = plan(document, selected_chapters=(1, 4), reading_mode="retrieval")
    assert [part.label for part in passages.parts] == ["Chapter 1: Of 0", "Chapter 4: Of 3"]
    assert plan(document, selected_chapters=(2,)).parts[0].label == "Chapter 2: Of 1"
    with pytest.raises(UserError, match="this book has 5"):
        plan(document, selected_chapters=(2, 6))


def test_front_and_back_matter_is_left_out_and_named():
    document = book(
        30,
        50,
        60,
        40,
        titles=("Preface", "One", "Two", "Licence"),
        kinds=("front", "chapter", "chapter", "back"),
    )
    made = plan(document)
    assert made.tokens == 110
    assert worded_by(_left_out, *made.left_out) == list(made.left_out)
    before, after = made.left_out
    assert (values(before)["title"], values(after)["title"]) == ("Preface", "Licence")
    assert before.template != after.template


@pytest.mark.parametrize("chapters", [(0, 1), (2, 1), (1, 5)])
def test_chapters_that_do_not_exist_are_refused(chapters):
    with pytest.raises(UserError, match="this book has 4"):
        plan(book(50, 60, 70, 80), chapters=chapters)


def test_book_without_text_is_refused():
    with pytest.raises(UserError, match="no text"):
        plan(Document("Empty", "", "txt", " \n ", (Section("", 0, 3),)))


def test_heading_of_a_part_belongs_to_the_chapter_after_it():
    document = book(
        3,
        90,
        3,
        95,
        titles=(
            "BOOK ONE. THE COMING",
            "CHAPTER ONE. THE EVE OF THE WAR",
            "BOOK TWO. AFTER",
            "CHAPTER ONE. UNDER FOOT.",
        ),
        kinds=("part", "chapter", "part", "chapter"),
    )
    assert [section.start for section in book_chapters(document)] == [0, document.sections[2].start]
    made = plan(document, reading_mode="chunked")
    assert [part.label for part in made.parts] == [
        "Book One, chapter 1: The Eve of the War",
        "Book Two, chapter 1: Under Foot",
    ]


@pytest.mark.parametrize(
    ("title", "label"),
    [
        ("IV Time Travelling", "Chapter IV: Time Travelling"),
        ("Epilogue", "Epilogue"),
        ("CHAPTER 12. Biographical.", "Chapter 12: Biographical"),
        ("7", "Chapter 7"),
        ("Chapter Nine", "Chapter Nine"),
        ("I, Robot", "I, Robot"),
        ("One Evening", "One Evening"),
        ("Ill Winds", "Ill Winds"),
        ("", "Section 1"),
        ('THE "THUNDER CHILD"', 'The "Thunder Child"'),
        ("Mr. Crane", "Mr. Crane"),
    ],
)
def test_labels_read_like_a_table_of_contents(title: str, label: str):
    document = book(90, 90, 90, titles=(title, "B", "C"))
    assert plan(document, reading_mode="chunked").parts[0].label == label


@pytest.mark.parametrize(
    ("name", "chapters"), [("the-time-machine.txt", 17), ("the-war-of-the-worlds.epub", 27)]
)
def test_real_books_are_read_from_first_to_last_sentence(shared_data, name: str, chapters: int):
    document = read_document(shared_data / "books" / name)
    assert len(book_chapters(document)) == chapters
    made = plan(document, context_tokens=8192, style=ReadingStyle(part_tokens=1500, whole_tokens=1500))
    assert made.mode == "chunked"
    assert sum(part.tokens for part in made.parts) == pytest.approx(made.tokens, rel=0.01)
    assert all(part.tokens <= 1.4 * 1500 for part in made.parts)
    assert min(part.tokens for part in made.parts) > 100
    read = [document.text[part.start : part.end] for part in made.parts]
    assert not any("Gutenberg" in text for text in (*read, *made.left_out)), "a notice is nothing of the book"
    assert len({part.label for part in made.parts}) == len(made.parts)


def test_a_question_about_a_passage_names_the_refusal_it_may_be_answered_with():
    """A model that is not told the very words cannot refuse in a way that is noticed."""
    style = ReadingStyle()
    prompt = asked_of_passage(style, " Who has {keys}? ")
    assert prompt.endswith("Who has {keys}?")
    assert style.refusal in prompt
    own = ReadingStyle(passage_prompt="Q: {question}\nA:")
    assert asked_of_passage(own, "Who?") == "Q: Who?\nA:"


def test_numbers_of_chapters_keep_their_capitals():
    """ "Chapter Xviii": a title in capitals is calmed, the number in it is not."""
    titles = ("CHAPTER XVIII. THE MIX", "CHAPTER XIX", "LETTER IV.\u2014TO MRS. SAVILLE")
    made = book(50, 60, 70, titles=titles)
    names = [one.title for one in chapter_names(made, book_chapters(made))]
    assert names == ["Chapter XVIII. The Mix", "Chapter XIX", "Letter IV.\u2014To Mrs. Saville"]
    assert plan(made, chapters=(1, 2)).parts[0].label == "Chapters XVIII\u2013XIX: The Mix"


def test_a_chapter_that_says_its_number_in_words_is_called_as_the_book_does():
    """ "Kapitel One: The Bell" was said on a German page; of several the numbers are in figures."""
    made = book(50, 60, 70, titles=("CHAPTER ONE: THE BELL", "CHAPTER TWO: THE FOG", "III"))
    with in_language("de"):
        assert plan(made, chapters=(1, 1)).parts[0].label == "Chapter One: The Bell"
        assert plan(made, chapters=(1, 2)).parts[0].label.startswith("Kapitel 1–2")
    made = book(50, 60, titles=("CHAPTER THIRTY", "CHAPTER FORTY-ONE"))
    assert plan(made, chapters=(1, 2)).parts[0].label == "Chapters 30–41"
