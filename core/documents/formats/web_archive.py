"""Web pages saved as one file (MHTML) to a manuscript: the page is taken out, its pictures are not."""

from __future__ import annotations

import email
import email.policy

from core.documents.formats.web_page import read_html
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_MOST_PARTS = 5000


def read_mhtml(data: bytes, name: str) -> Manuscript:
    """The first HTML part of the archive. Raises DocumentError for damaged ones and those without a page."""
    try:
        message = email.message_from_bytes(data, policy=email.policy.compat32)
        parts = [part for _number, part in zip(range(_MOST_PARTS), message.walk(), strict=False)]
        page = next((part for part in parts if part.get_content_type() == "text/html"), None)
        content = page.get_payload(decode=True) if page is not None else None
        charset = page.get_content_charset() if page is not None else None
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise DocumentError(
            _("{name} is a damaged web archive (MHTML). Save the web page again.").format(name=name)
        ) from error
    if not content:
        raise DocumentError(_("{name} is a web archive (MHTML) without a web page in it.").format(name=name))
    return read_html(content, charset=charset)
