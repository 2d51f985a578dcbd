"""The marks of answers as numbered footnotes: where each leads, and its number in the text. Knows nothing of
the form that text is written in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.render.markdown import Citation
from app.store.turns import StoredTurn, displayed_text, level_pieces
from core.text.words import localized
from core.text.words import translated as _

UNSURE = "○"  # behind a sentence that may not be right, as far as the book shows


class Footnotes:
    """Numbers the places that marks lead to. `cited`: the marks of the answers by their turns' numbers;
    `sign`: what stands in the text for a footnote of this number.
    """

    def __init__(self, cited: Mapping[int, Sequence[Citation]] | None, sign: Callable[[int], str]) -> None:
        self._cited, self._sign = cited or {}, sign
        self._numbers: dict[tuple[int, str], int] = {}
        self._cited_as: dict[int, Citation] = {}

    @property
    def places(self) -> list[tuple[int, str]]:
        """The number of each footnote so far, and where it leads."""
        return [(number, where) for (_offset, where), number in self._numbers.items()]

    @property
    def citations(self) -> dict[int, Citation]:
        """The mark of each footnote so far, by its number."""
        return dict(self._cited_as)

    def text_of(self, turn: StoredTurn) -> str:
        """A turn's text as it is shown, with the sign behind each mark that leads into the book, and UNSURE
        behind each sentence that the page has it behind.
        """
        shown_marks = (
            one for one in self._cited.get(turn.number, ()) if _leads(one) or one.kind == "nothing"
        )
        marks = sorted(((one.end, one) for one in shown_marks), key=lambda mark: mark[0])
        pieces = level_pieces(turn) if turn.role == "assistant" else None
        if not marks or not pieces:
            return displayed_text(turn)
        shown, at = [], 0
        for text, _level in pieces:
            inside = [(end - at, one) for end, one in marks if at < end <= at + len(text)]
            at += len(text)
            cut, said = 0, localized(text)
            for end, one in inside:
                upto = end if said == text else len(said)  # in another language the words stand elsewhere
                sign = self._sign(self._number(one)) if _leads(one) else f" {UNSURE}"
                shown += [said[cut:upto], sign]
                cut = upto
            shown.append(said[cut:])
        return "".join(shown)

    def _number(self, citation: Citation) -> int:
        number = self._numbers.setdefault((citation.offset, citation.where), len(self._numbers) + 1)
        self._cited_as.setdefault(number, citation)
        return number


def unsure_legend(text: str) -> tuple[str, ...]:
    """What UNSURE says, where it stands in this text."""
    said = _("Not sure that this is right.")
    return (f"{UNSURE} {said}",) if UNSURE in text else ()


def _leads(one: Citation) -> bool:
    """Whether it leads to what bears a sentence out, or is a quotation that stands in the book."""
    return one.offset is not None and one.kind != "nothing" and bool(one.where)
