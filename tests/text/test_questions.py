"""Which questions ask about a book as a whole, and which only look like it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.text.questions import asked_of_whole, asked_who

ASKED = {
    "end": """
        How does it end? | What happens at the end? | Tell me how the book ends. | What is the ending?
        How does everything turn out in the end? | Does it have a happy ending?
        What happens in the last chapter?
        Wie geht es aus? | Was passiert am Ende? | Wie endet die Geschichte? | Wie ist der Schluss des Romans?
        Was geschieht im letzten Kapitel? | Verrate mir den Ausgang der Geschichte
        结局是什么？ | 故事怎么结束？ | 最后发生了什么？ | 最后一章讲了什么？ | 请说说这部小说的结局
        """,
    "about": """
        What is it about? | What's this book about? | Can you summarize the story for me? | What is the plot?
        What happens in the story? | Tell me about this book | What has happened so far?
        Worum geht es? | Wovon handelt das Buch? | Fasse die Geschichte zusammen. | Was ist der Inhalt?
        Was ist bisher geschehen?
        这本书讲了什么？ | 故事的主要内容是什么？ | 概括一下情节 | 书里发生了什么？ | 到目前为止发生了什么？
        """,
    "people": """
        Who is in it? | Who's in it? |
        Who are the main characters? | Who is the protagonist? | Which characters appear in the story?
        Who is in the book? | Name the most important people in the novel. | WHO ARE THE MAIN CHARACTERS
        Wer sind die Hauptfiguren? | Wer kommt in dem Buch vor? | Nenne die wichtigsten Personen.
        Wie heißen die Hauptfiguren?
        主要人物有哪些？ | 主人公是谁？ | 这个故事里有谁？ | 介绍一下主要人物
        """,
    "narrator": """
        Who is the narrator? | Who's the narrator of this book? | What is the narrator's name?
        Who narrates it? |
        Who tells the story? | Who is telling this story? | By whom is the story told?
        Who narrates the novel? |
        From whose point of view is the story told? | What is the name of the narrator?
        """,
}
OTHER = """
    How does the duel end? | What is the letter about? | Why does it end so sadly? | Where does the story end?
    Who wrote the book? | Who told the story? | What happens to Joe at the end? | How does chapter 3 end?
    What did he do at the end? | And how did it end? | Who is Estella? | How do the characters change?
    What do the characters eat? | What is the most important moment? | What happened? | Summarise chapter 2.
    What does the narrator say? | Who is the narrator's wife? | Why does the narrator go to sea?
    Wie endet der Brief? | Wer stirbt am Ende? | Worum geht es in dem Brief? | Wie heißt der Hund?
    谁杀了国王？ | 他最后去了哪里？ | 这封信讲了什么？ | 这本书是谁写的？ | ... |
    """


def each(text: str) -> list[str]:
    return [one.strip() for line in text.splitlines() for one in line.split("|") if one.strip()]


@pytest.mark.parametrize(("kind", "question"), [(kind, one) for kind in ASKED for one in each(ASKED[kind])])
def test_every_wording_is_understood(kind: str, question: str):
    """A button's wording alone would leave those who type to a passage lookup."""
    assert asked_of_whole(question) == kind


@pytest.mark.parametrize("question", each(OTHER))
def test_one_word_more_asks_about_something_in_the_book(question: str):
    assert asked_of_whole(question) is None


def test_the_books_title_is_no_word_more():
    asked = "Who are the main characters in Moby Dick?"
    assert asked_of_whole(asked) is None
    assert asked_of_whole(asked, "Moby Dick; Or, The Whale") == "people"
    assert asked_of_whole("Who is Dracula?", "Dracula") is None


@pytest.mark.wide
def test_no_question_about_a_passage_is_taken_for_one_about_the_book(shared_data: Path):
    """Of those that people asked about articles and tales."""
    folder = shared_data / "reading"
    if not folder.is_dir():
        pytest.skip("no questions to try")
    asked = [
        one["question"]
        for name in ("squad2", "fairytaleqa-train", "fairytaleqa-val")
        for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
        for one in json.loads(line)["questions"]
    ]
    assert len(asked) > 10_000 and [one for one in asked if asked_of_whole(one)] == []


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Who is Osric Vane?", "Osric Vane"),
        ("who was Judge Bellweather in this novel ?", "Judge Bellweather"),
        ("Who’s Pip", "Pip"),
        ("Wer ist Mr. Hyde?", "Mr. Hyde"),
        ("谁是Ahab？", "Ahab"),
        ("Ahab是谁？", "Ahab"),
        ("Who is Mr. Hyde really?", "Mr. Hyde really"),  # nobody's name
        ("Who killed Osric Vane?", None),
        ("Who is it?  ", "it"),
        ("Where is Osric Vane?", None),
        ("Who is?", None),
    ],
)
def test_whom_a_question_asks_for(question: str, name: str | None):
    assert asked_who(question) == name
