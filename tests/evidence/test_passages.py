"""Passages cover the book, end where paragraphs do and know their place."""

from __future__ import annotations

import pytest

from core.documents.document import Document, Section
from core.evidence.passages import LEAST_WORDS, MOST_WORDS, book_passages, sentence_spans


def book(*chapters: str, pages: tuple[int, ...] = (), kinds: tuple[str, ...] = ()) -> Document:
    text, sections = "", []
    for number, chapter in enumerate(chapters):
        kind = kinds[number] if kinds else "chapter"
        sections.append(Section(f"Chapter {number + 1}", len(text), len(text) + len(chapter), kind=kind))
        text += chapter
    return Document("A Book", "", "txt", text, tuple(sections), page_starts=pages)


def paragraphs(*lengths: int) -> str:
    return "".join(" ".join(f"word{at}" for at in range(words)) + ".\n\n" for words in lengths)


@pytest.mark.parametrize(
    "lengths", [(10,), (100,) * 9, (399, 3), (250, 250), (30,) * 40, (1200,), (5, 1200, 5), (1,) * 700]
)
def test_every_word_of_a_chapter_stands_in_one_passage(lengths):
    """A word between two passages could never be found, one in two would be found twice."""
    document = book(paragraphs(*lengths), paragraphs(20))
    found = book_passages(document)
    inside = [document.text[one.start : one.end] for one in found]
    assert " ".join(inside).split() == document.text.split()


def test_passages_are_of_readable_length_and_end_with_paragraphs():
    """A passage cut in a sentence cannot be quoted; one of thirty words says too little to be found."""
    document = book(paragraphs(*[90] * 30))
    found = book_passages(document)
    lengths = [len(document.text[one.start : one.end].split()) for one in found]
    assert all(length <= MOST_WORDS for length in lengths)
    assert all(length >= LEAST_WORDS for length in lengths[:-1])
    assert all(document.text[one.start : one.end].rstrip().endswith(".") for one in found)


def test_long_paragraph_is_cut_at_sentences():
    """Joyce's last chapter is one paragraph: it must not become one passage of 20,000 words."""
    sentence = "A " + " ".join(["word"] * 18) + " end. "
    document = book(sentence * 100)
    found = book_passages(document)
    assert len(found) >= 5
    assert all(document.text[one.start : one.end].endswith("end. ") for one in found)


def test_passage_knows_its_chapter_and_page():
    """The reader opens the book at the page that a passage names."""
    first, second = paragraphs(300), paragraphs(300)
    document = book(first, second, pages=(0, 500, len(first), len(first) + 900))
    assert [(one.chapter, one.page) for one in book_passages(document)] == [
        ("Chapter 1", "1"),
        ("Chapter 2", "3"),
    ]


def test_front_matter_is_no_evidence():
    """A licence in front of the book must not be quoted as its text."""
    document = book(paragraphs(300), paragraphs(300), kinds=("front", "chapter"))
    assert [one.chapter for one in book_passages(document)] == ["Chapter 2"]


def test_characters_of_chinese_count_as_words():
    """Text without spaces must not become one passage a chapter."""
    document = book(("他慢慢地走到河边去看水。" * 20 + "\n\n") * 10)
    found = book_passages(document)
    assert len(found) > 5
    assert all(one.end - one.start <= 1.3 * MOST_WORDS for one in found)


def test_sentences_keep_their_quotation_marks():
    text = "“Come in,” he said. “I will not!” She went.\n\nNo stop here\n\nLast… one."
    found = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert found == ["“Come in,” he said.", "“I will not!”", "She went.", "No stop here", "Last… one."]


@pytest.mark.parametrize(
    "sentences",
    [
        ["„Wo ist er?“ ", "Anna sah auf das Wasser. ", "„Fort.“"],
        ["»Komm!« ", "Er ging. ", "»Nein.« "],
        ["他走了。", "“你好！”", "她说。", "“再见。”"],
        ["他走了。", "「你好！」", "她說。", "『再見。』"],
        ["他走了。", '"你好！"', "她说。", '"再见。"'],
        ['"走吧。"', '"好。"', "她笑了。"],
        ["Il partit. ", "« Venez ! » ", "Elle vint."],
    ],
)
def test_sentences_of_other_languages_keep_their_quotation_marks(sentences):
    """A German one went on behind its mark; in Chinese a straight mark went to the wrong sentence."""
    text = "".join(sentences)
    found = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert found == [one.strip() for one in sentences]


def test_the_number_of_a_note_is_no_part_of_the_sentence_before_it():
    """“aged eighty-three.[4]” stood in answers and summaries, where no note is."""
    text = "She died aged eighty-three.[4]\n\nHe said “No.”[5][6]\n\nThe third[7] went on."
    said = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert said == ["She died aged eighty-three.", "He said “No.”", "The third[7] went on."]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He shut the gate.[4] He went.", ["He shut the gate.", "He went."]),
        ("He shut the gate.⁴ He went.", ["He shut the gate.", "He went."]),
        ("“No.”[4][5] He went.", ["“No.”", "He went."]),
        ("“No.[*]” He went.", ["“No.[*]”", "He went."]),
        ("„Nein.“[4] Er ging.", ["„Nein.“", "Er ging."]),
        ("他走了。[4]她说：「再见。」[5]", ["他走了。", "她说：「再见。」"]),
        ("See Mr.[4] Hale, at 3.[4] and so on.", ["See Mr.[4] Hale, at 3.[4] and so on."]),
    ],
)
def test_a_sentence_ends_before_the_number_of_its_note(text, sentences):
    """“the gate.[4] He went” was one sentence: what agreed with the one was quoted as both."""
    found = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert found == sentences


def test_full_stops_that_end_nothing():
    """A mark behind "Mr." or behind an item's number would be a mark on no sentence."""
    text = (
        "1. Mr. Bennet met Dr. J. Grey, Rev. Tull, Col. Ash.\n2. “Stop!” said he. …\n\n***\n\nThe 12. of May"
    )
    found = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert found == [
        "1. Mr. Bennet met Dr. J. Grey, Rev. Tull, Col. Ash.",
        "2. “Stop!” said he.",
        "The 12. of May",
    ]


def test_who_speaks_in_a_play_and_a_chapters_number_begin_their_sentence():
    """A quotation ended with the next speaker's name, and lacked its own."""
    spoken = [
        ["FIRST SAILOR. They sell the oil. ", "I saw it.\n"],
        ["VEY. [Without.] Harrow, ahoy! ", "I am HIS. ", "He is mine.\n\n"],
        ["XXIII. The road was long. ", "It rained.\n\n"],
        ["THE END."],
    ]
    sentences = [one for lines in spoken for one in lines]
    text = "".join(sentences)
    found = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    assert found == [one.strip() for one in sentences]
