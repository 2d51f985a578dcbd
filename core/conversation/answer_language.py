"""In which language is answered: the prompts around a text are English, and pull what is said there."""

from __future__ import annotations

from core.conversation.reading import ReadingStyle
from core.documents.document import Document
from core.text.language_detection import foreign
from core.text.words import translated as _


def in_its_language(style: ReadingStyle, question: str) -> str:
    """The question, with the wish for an answer in its language where that is not the prompts' own."""
    wish = "" if style.english or not foreign(question) else f"\n{style.language_wish}"
    return question.strip() + wish


def in_language_of(text: str, style: ReadingStyle, prompt: str) -> str:
    """The prompt of a summary, with the same wish after the text that is summarised: nobody asks there."""
    return prompt if style.english or not foreign(text) else f"{prompt}\n{style.summary_language_wish}"


def english_only(style: ReadingStyle, question: str | None, book: Document) -> tuple[str, ...]:
    """What is to be known of a question in a language that the model does not answer in, or about a book in
    one: asked in English, that would be read no better.
    """
    if not (style.english and question):
        return ()
    if unread := no_english(style, book):
        return unread
    if not foreign(question):
        return ()
    return (_("This model answers in English only. Ask in English, or choose another model."),)


def no_english(style: ReadingStyle, book: Document) -> tuple[str, ...]:
    """The same of a book."""
    if not (style.english and foreign(book.text)):
        return ()
    return (_("This model reads and answers in English only. For this book, choose another model."),)
