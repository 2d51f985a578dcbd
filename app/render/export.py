"""A conversation as a file of its own: Markdown, or a page of HTML, to read elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.render.footnotes import Footnotes, unsure_legend
from app.render.markdown import Citation, answer_html
from app.render.origin import held, incomplete
from app.render.templating import render
from app.store.notebook import Bookmark
from app.store.turns import StoredTurn, displayed_text
from core.documents.document import Document
from core.text.words import listed_texts
from core.text.words import translated as _

Noted = tuple[str, str, str]  # the words at a bookmark, their place, the note
HEADING_CHARS = 200
_HEADING = re.compile(r"^(#{1,6})(?=[ \t])", re.MULTILINE)
# what Markdown, also Obsidian's, would take for marks
_MARKS = re.compile(r"[\\`*_\[\]<>#~|$]|&(?=#?\w+;)|==|%%|^[-+=]", re.MULTILINE)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# lines that begin what does not end with their paragraph: headings, also by what stands under them, and code
_REACHES = re.compile(r"^([ \t]{0,3})(?=#{1,6}(?:[ \t]|$)|(?:-+|=+)[ \t]*$|```|~~~)", re.MULTILINE)
# a footnote's number until the text is HTML; \ufdd0 is no character of any text
SIGN, _SIGNED = "\ufdd0{}\ufdd0".format, re.compile("\ufdd0([0-9]+)\ufdd0")


@dataclass(frozen=True, slots=True)
class ConversationFile:
    """What is written of a conversation. `notes`: the book's bookmarks with their notes, as words;
    `bookmarks`: as they are, to be brought in elsewhere; `cited`: the marks of the answers by their turns'
    numbers, which become footnotes with chapter and page; `made`: where it comes from (app.render.origin);
    `spoiler_limit`: of the conversation.
    """

    book: Document | None
    title: str
    turns: Sequence[StoredTurn]
    notes: Sequence[Noted] = ()
    cited: Mapping[int, Sequence[Citation]] | None = None
    made: str = ""
    bookmarks: Sequence[Bookmark] = ()
    spoiler_limit: int | None = None


def as_markdown(talk: ConversationFile) -> str:
    """A page of Markdown."""
    lines, footnotes = [as_heading(talk.title, 1), ""], Footnotes(talk.cited, "[^{}]".format)
    for turn in talk.turns:
        text = footnotes.text_of(turn)
        lines += [_heading(text) if turn.role == "user" else _below_a_question(text), ""] if text else []
        lines += [part for said in _beside(turn) for part in (f"*{verbatim(said)}*", "")]
    lines += [part for said in unsure_legend("\n".join(lines)) for part in (f"*{said}*", "")]
    lines += footnotes_markdown(footnotes)
    notes = notes_markdown(_("Bookmarks and notes"), talk.notes)
    parts = ("\n".join(lines).rstrip(), notes, f"*{verbatim(talk.made)}*" if talk.made else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def verbatim(text: str) -> str:
    """A person's or a book's words in Markdown, to be seen as they are."""
    return _MARKS.sub(r"\\\g<0>", text)


def as_heading(title: str, level: int) -> str:
    """A title on one line of Markdown."""
    return f"{'#' * level} {verbatim(' '.join(title.split()))}"


def without_tags(answer: str) -> str:
    """An answer's Markdown, in which no HTML is."""
    return _TAG.sub(r"\\<", answer)


def own_markdown(note: str) -> str:
    """A person's Markdown, links and all, that makes no heading of the file, no HTML, and no code of the
    rest.
    """
    return _REACHES.sub(r"\1\\", without_tags(note))


def footnotes_markdown(footnotes: Footnotes) -> list[str]:
    """A line each."""
    return [f"[^{number}]: {verbatim(where)}" for number, where in footnotes.places]


def _heading(question: str) -> str:
    """A question as a heading; a long one, or one of several lines, by its beginning, and whole below."""
    line = " ".join(question.split())
    if len(line) <= HEADING_CHARS and "\n" not in question.strip():
        return as_heading(line, 2)
    begun = line[:HEADING_CHARS].rsplit(" ", 1)[0]
    return f"{as_heading(begun, 2)} …\n\n{verbatim(question.strip())}"


def _below_a_question(text: str) -> str:
    """An answer's headings, levels below the heading that its question is."""
    further = max(0, 3 - min((len(one[1]) for one in _HEADING.finditer(text)), default=3))
    return _HEADING.sub(lambda one: "#" * min(6, len(one[1]) + further), without_tags(text))


def notes_markdown(heading: str, notes: Sequence[Noted], below: Callable[[str], str] = own_markdown) -> str:
    """The book's words as quotations, each with its place, and `below` what it makes of the note; empty
    without any.
    """
    parts = [_noted(words, place, below(note)) for words, place, note in notes]
    return "\n\n".join([f"## {heading}", *parts]) if parts else ""


def _noted(words: str, place: str, note: str) -> str:
    quoted = "\n".join(f"> {verbatim(line)}" for line in words.splitlines())
    return "\n\n".join(part for part in (quoted, f"({verbatim(place)})", note) if part)


def _beside(turn: StoredTurn) -> list[str]:
    """What is said below a turn, a line each."""
    said = held(turn)
    if turn.role == "user" and turn.extra.get("instructions"):
        with_these = _("Instructions: {text}").format(text=turn.extra["instructions"])
        said.append(" ".join(with_these.split()))
    if turn.extra.get("sources"):
        read = listed_texts(turn.extra["sources"], "; ")
        said.append(_("Read for this answer: {sources}").format(sources=read))
    return said


def as_html(talk: ConversationFile) -> str:
    """A page that needs nothing else."""
    footnotes = Footnotes(talk.cited, SIGN)
    shown = [
        (one.role, _shown(one, footnotes), _beside(one)) for one in talk.turns if one.text or incomplete(one)
    ]
    return reading_page(
        talk.book,
        talk.title,
        shown,
        notes=[(_("Bookmarks and notes"), talk.notes)],
        footnotes=footnotes.places,
        legend=unsure_legend("".join(text for _role, text, _below in shown)),
        made=talk.made,
    )


def reading_page(
    book: Document | None,
    title: str,
    turns: Sequence[tuple[str, str, Sequence[str]]],
    *,
    notes: Sequence[tuple[str, Sequence[Noted]]] = (),
    footnotes: Sequence[tuple[int, str]] = (),
    legend: Sequence[str] = (),
    made: str = "",
) -> str:
    """A page of HTML. `turns`: role, text, and the lines below it; `notes`: under a heading each; `legend`:
    what signs in the text say.
    """
    about = [book.title, book.author] if book else []
    return render(
        "exported.html",
        title=title,
        about=[one for one in about if one and one != title],
        turns=turns,
        notes=[(heading, some) for heading, some in notes if some],
        footnotes=footnotes,
        legend=legend,
        made=made,
    )


def _shown(turn: StoredTurn, footnotes: Footnotes) -> str:
    return displayed_text(turn) if turn.role == "user" else answer_markup(turn, footnotes)


def answer_markup(
    turn: StoredTurn,
    footnotes: Footnotes,
    link: Callable[[int], str] = '<sup><a href="#place-{0}">{0}</a></sup>'.format,
) -> Markup:
    """An answer as HTML with its paragraphs, lists and quotations; its `footnotes`, whose sign is SIGN, as
    what `link` makes of their numbers.
    """
    shown = answer_html(((footnotes.text_of(turn), ""),))
    return Markup(_SIGNED.sub(lambda found: link(int(found[1])), str(shown)))
