"""Whether a sentence that was told of a part of a book may stand in its summary. No model here."""

from __future__ import annotations

import os
from collections.abc import Iterable

from core.conversation.part_summaries import SummaryLine
from core.conversation.supported_sentences import TellableSpan, said_before
from core.evidence.naming import in_first_person
from core.evidence.passages import sentence_spans
from core.text.levelled import LevelledText


def standing_line(
    told: LevelledText, stretch: TellableSpan, least: float, before: Iterable[SummaryLine]
) -> SummaryLine | None:
    """The first sentence of `told` as it may stand: told in the third person, in nearly the words of the book
    (`least` of them), of somebody who is named, and not yet said. None where it may not.
    """
    for start, end in sentence_spans(told.text, 0, len(told.text))[:1]:
        decoded = told[start:end].on_one_line()
        line = None if in_first_person(decoded.text) else stretch.near(decoded.text, least)
        if line is not None and not said_before(line, list(before)):
            return line._replace(pieces=_as_it_stands(decoded, line.text).pieces)
    return None


def _as_it_stands(decoded: LevelledText, text: str) -> LevelledText:
    """The levels of a sentence as it stands, which may begin otherwise than what was decoded."""
    same = len(os.path.commonprefix([decoded.text[::-1], text[::-1]]))
    return LevelledText.plain(text[: len(text) - same]) + decoded[len(decoded.text) - same :]
