"""What reading a book yields: clean text, its chapters and its pages. Values only."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields, replace

from core.documents.listed_chapters import without_later
from core.documents.word_count import count_words
from core.errors import UserError
from core.text.packing import from_json, to_json_text
from core.text.words import marked as N_
from core.text.words import translated as _

# Counts on whenever the same file gives another text or other chapters than before.
READER_VERSION = 10
# What a version may read otherwise than the one before: files of these formats, any with pages before the
# first chapter ("front"), and those of a format that have some behind the last ("txt back") or a footnote's
# mark left ("markdown [^"). The first of them counts for all that were read before it, whatever they are.
READ_OTHERWISE = {
    7: frozenset({"pdf", "markdown", "front"}),
    8: frozenset({"pdf", "epub", "fb2", "html", "front"}),
    9: frozenset({"txt back", "markdown back", "html back", "epub back"}),
    10: frozenset({"markdown [^"}),
}

# titles of the sections that hold what a publisher put before and behind a book: nothing of the book
NOTICES = (N_("Project Gutenberg header"), N_("Project Gutenberg licence"))
FRONT_MATTER = N_("Front matter")  # of what stands before the first heading and has no title of its own
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+|[ivxlcdm]+")


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter as the reader knows it: `text[start:end]` of its document, in characters."""

    title: str
    start: int
    end: int
    level: int = 1  # 1 = part or chapter, 2 = chapter inside a part
    # "chapter" | "part" (a title page between chapters) | "front" | "back"
    kind: str = "chapter"


@dataclass(frozen=True, slots=True)
class Document:
    """A whole book as text. Sections are in reading order, do not overlap and cover the text."""

    title: str
    author: str
    format: str  # "txt" | "markdown" | "html" | "epub" | "pdf" | "docx"
    text: str
    sections: tuple[Section, ...]
    # character offset at which each page begins; empty without pages
    page_starts: tuple[int, ...] = ()
    # printed page numbers, as many as page_starts; empty when unknown
    page_labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    sha256: str = ""  # of the file's bytes
    # pages left out because they are pictures, which OCR may be able to read
    pictures: int = 0
    # of the rules that cut this text into chapters; 0 for books read before they were counted
    reader_version: int = 0
    # which series the file says it belongs to, and as which volume; "" and None where it does not say
    series: str = ""
    volume: float | None = None
    article: bool = False  # of a web page, without what stands around it
    # the other way to read the file, as `packed`: all of the page whose article this is, or the reverse
    other_reading: str = ""
    # see `packed`; not of one that was cut (dataclasses.replace leaves it out)
    _packed: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def outdated(self) -> bool:
        """Read by older rules than today's, which may give its file a better text or better chapters."""
        if self.reader_version < min(READ_OTHERWISE) - 1:
            return True
        around = {one.kind for one in self.sections if one.title not in NOTICES}
        concerned = {self.format}
        if "front" in around:
            concerned.add("front")
        if "back" in around:
            concerned.add(f"{self.format} back")
        if "[^" in self.text:
            concerned.add(f"{self.format} [^")
        later = (one for version, one in READ_OTHERWISE.items() if version > self.reader_version)
        return any(concerned & one for one in later)

    @property
    def words(self) -> int:
        """The words of the whole text; Chinese and Japanese are counted by characters."""
        return count_words(self.text)

    @property
    def chapters(self) -> tuple[Section, ...]:
        """The sections that are the book itself, without part titles, front and back matter: what summaries
        read.
        """
        return tuple(section for section in self.sections if section.kind == "chapter")

    @property
    def outside(self) -> tuple[Section, ...]:
        """The sections before and behind the book itself, which summaries and answers leave out, but for a
        publisher's notices, and title and author alone. None where the book has no chapters: then it is taken
        as it is.
        """
        named = set(_WORD.findall(f"{self.title} {self.author}".lower()))
        return tuple(
            section
            for section in self.sections
            if section.kind in ("front", "back")
            and section.title not in NOTICES
            and self.chapters
            and not named.issuperset(_WORD.findall(self.text[section.start : section.end].lower()))
        )

    def only(self, chapters: Collection[int]) -> Document:
        """The book with nothing but white space outside these of its chapters (1-based): places stay what
        they are, and nothing else can be found.
        """
        text, end = "", 0
        for number, one in enumerate(self.chapters, 1):
            if number in chapters:
                text, end = text + " " * (one.start - end) + self.text[one.start : one.end], one.end
        return replace(self, text=text + " " * (len(self.text) - end), other_reading="")

    def up_to(self, chapter: int | None) -> Document:
        """The book as somebody knows it who has read up to the end of its `chapter` (1-based): nothing behind
        is in it, neither text nor titles nor pages, nor the titles that its list of chapters has of them.
        None: all of it.

        Raises UserError when there is no such chapter.
        """
        if chapter is None:
            return self
        chapters = self.chapters or [one for one in self.sections if self.text[one.start : one.end].strip()]
        if not 1 <= chapter <= len(chapters):
            said = _("The limit is chapter {number}, and this book has {count}. Choose one of them.")
            raise UserError(said.format(number=chapter, count=len(chapters)))
        end = chapters[chapter - 1].end
        pages = bisect_left(self.page_starts, end)
        return replace(
            self,
            text=self._known_until(end),
            sections=tuple(section for section in self.sections if section.end <= end),
            page_starts=self.page_starts[:pages],
            page_labels=self.page_labels[:pages],
            other_reading="",
        )

    def read_otherwise(self) -> Document:
        """All of the web page whose article this is, or its article again; under the title it has here."""
        other = Document.unpacked(self.other_reading.encode("utf-8", "surrogatepass"))
        here = replace(self, other_reading="").packed.decode("utf-8", "surrogatepass")
        return replace(other, title=self.title, other_reading=here)

    def before(self, end: int | None) -> Document:
        """The book as somebody knows it who has read up to the character `end`, maybe in the middle of a
        chapter. None: all of it.
        """
        if end is None or end >= len(self.text):
            return self
        pages = bisect_left(self.page_starts, end)
        begun = (section for section in self.sections if section.start < end)
        return replace(
            self,
            text=self._known_until(end),
            sections=tuple(replace(section, end=min(section.end, end)) for section in begun),
            page_starts=self.page_starts[:pages],
            page_labels=self.page_labels[:pages],
        )

    def _known_until(self, end: int) -> str:
        """The text up to there, whose list of chapters names none that begins there or behind."""
        front = self.chapters[0].start if self.chapters else 0
        behind = [section for section in self.sections if section.start >= front]
        known = sum(section.start < end for section in behind)
        return without_later(self.text[:end], min(front, end), [one.title for one in behind], known)

    def section_at(self, offset: int) -> Section:
        """The section that holds the character at `offset`."""
        starts = [section.start for section in self.sections]
        return self.sections[max(0, bisect_right(starts, offset) - 1)]

    def heading_end(self, section: Section) -> int:
        """Where the heading of a section ends in the text: the first lines that have words of its title
        alone, with its number above them or not. Where the section starts if its title is not printed there.
        """
        title, end = set(_WORD.findall(section.title.lower())), section.start
        for line in _LINE.finditer(self.text, section.start, section.end):
            words = _WORD.findall(line.group().lower())
            if words and title.issuperset(words):
                end = line.end()
            elif not words or len(words) > 2 or not _NUMBER.fullmatch(words[-1]):
                break
        return end

    def page_at(self, offset: int) -> str | None:
        """The label (else the 1-based number) of the page at `offset`; None when the format has no pages."""
        if not self.page_starts:
            return None
        index = max(0, bisect_right(self.page_starts, offset) - 1)
        return self.page_labels[index] if self.page_labels else str(index + 1)

    @property
    def packed(self) -> bytes:
        """The JSON text, UTF-8 on one line, that it was read from, else is made into once: what the reading
        process wrote is what the shelf keeps and what the engine is handed.
        """
        if self._packed is None:
            text = to_json_text(self.to_json(), ensure_ascii=False)
            object.__setattr__(self, "_packed", text.encode("utf-8", "surrogatepass"))
        return self._packed

    @classmethod
    def unpacked(cls, packed: bytes) -> Document:
        """The inverse of `packed`. Raises ValueError, TypeError or KeyError where it is torn or none."""
        document = cls.from_json(from_json(packed))
        object.__setattr__(document, "_packed", packed)
        return document

    def to_json(self) -> dict:
        """A plain dict that `from_json` turns back into an equal Document."""
        values = asdict(self)
        del values["_packed"]
        return values

    @classmethod
    def from_json(cls, data: dict) -> Document:
        """The inverse of `to_json`. Fields that other versions of the reader stored are passed over."""
        known = {one.name for one in fields(cls) if one.init}
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        sections = tuple(Section(**section) for section in data["sections"])
        return cls(**{key: value for key, value in plain.items() if key in known} | {"sections": sections})
