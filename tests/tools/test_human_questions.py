"""Lessons from encyclopedia, single sentences and questions about the world."""

from __future__ import annotations

from benchmarks.quality.reading.cases import APART
from core.conversation.reading import ReadingStyle
from tools.embedded_reader.human_questions import about_articles, about_sentences, about_the_world

STYLE = ReadingStyle(passage_prompt="Question: {question}")
TALE = {
    "story": "ann",
    "first_section": 1,
    "sections": ["Ann saw a cow.", "It was raining."],
    "questions": [
        {"question": "What did Ann see?", "answers": ["a cow"], "sections": [1]},
        {"question": "What was the weather?", "answers": ["rain"], "sections": [2]},
        {"question": "What is it about?", "answers": ["Ann"], "sections": [1, 2]},
    ],
}


def said(lessons) -> dict[str, tuple[str, str]]:
    """Kind and answer by question."""
    return {
        branch.asked.removeprefix("Question: "): (branch.kind, branch.answer)
        for lesson in lessons
        for branch in lesson.branches
    }


def test_what_an_article_does_not_say_is_refused_beside_what_it_says():
    """And of every tenth passage nothing is taught: it is what the benchmark asks about."""
    passages = [
        {
            "passage": f"River {n} flows.",
            "questions": [
                {"question": f"What flows ({n})?", "answers": [f"river {n}"]},
                {"question": f"What stands ({n})?", "answers": []},
            ],
        }
        for n in range(2 * APART)
    ]
    found = said(about_articles(passages, STYLE, "0"))
    taught = [n for n in range(2 * APART) if n not in (0, APART)]
    assert found == {f"What flows ({n})?": ("fact", f"River {n}.") for n in taught} | {
        f"What stands ({n})?": ("foreign", STYLE.refusal) for n in taught
    }


def test_every_sentence_is_asked_about_in_the_text_it_stands_in():
    """Questions without an answer are left out: nobody says whether the sentence has one."""
    sentences = [
        {
            "sentence": f"Bird {n} sang.",
            "questions": [
                {"question": f"What did bird {n} do?", "answers": ["sang"]},
                {"question": f"Why bird {n}?", "answers": []},
            ],
        }
        for n in range(30)
    ]
    lessons = about_sentences(sentences, STYLE, "0")
    assert said(lessons) == {f"What did bird {n} do?": ("fact", "Sang.") for n in range(30)}
    for lesson in lessons:
        for branch in lesson.branches:
            assert branch.asked.split("did ")[1].removesuffix(" do?").capitalize() in lesson.text


def test_what_is_asked_about_the_world_is_refused_where_the_section_does_not_say_it():
    """Beside the questions that this section alone answers; of one that says it nobody knows."""
    asked = [
        {
            "story": "ann",
            "section": 1,
            "text": TALE["sections"][0],
            "questions": [
                {"question": "What gives milk?", "answer": "A cow."},
                {"question": "What is hay?", "answer": "Dry grass."},
            ],
        },
        {
            "story": "bob",
            "section": 1,
            "text": "Bob.",
            "questions": [{"question": "Who?", "answer": "A man"}],
        },
    ]
    found = said(about_the_world([TALE], asked, STYLE, "0"))
    assert found == {"What did Ann see?": ("fact", "A cow."), "What is hay?": ("foreign", STYLE.refusal)}
