"""PDF to a manuscript: text by PDFium, page labels and outline by pypdf."""

from __future__ import annotations

import re
from collections.abc import Callable

import pypdfium2

from core.documents.blocks import Block, Manuscript, Mark
from core.documents.clean import one_line
from core.documents.language import guess_language
from core.errors import DocumentError, PasswordNeeded


def read_pdf(data: bytes, name: str, *, password: str | None, progress: Callable[[str, float | None], None],
             ocr: bool) -> Manuscript:
    """The text of every page, one block per paragraph end."""
    try:
        pdf = pypdfium2.PdfDocument(data, password=password)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise PasswordNeeded(f"{name} is protected by a password. Give the password to open it.") from error
        raise DocumentError(f"{name} is a damaged PDF and cannot be opened.") from error
    blocks: list[Block] = []
    first_of_page: list[int] = []
    for number in range(len(pdf)):
        progress("Reading pages", number / len(pdf))
        first_of_page.append(len(blocks))
        text = pdf[number].get_textpage().get_text_range().replace("\r\n", "\n").replace("\ufffe", "")
        parts = [one_line(part) for part in re.split(r"(?<=[.!?”\"])\n", text)]
        blocks += [Block(part, breaks=((0, number),) if index == 0 else ()) for index, part in enumerate(filter(None, parts))]
    if not blocks:
        raise DocumentError(f"{name} has no text layer: its pages are images, as in a scan. Run OCR on it first.")
    marks = [Mark(one_line(item.get_title()), item.level + 1, first_of_page[dest.get_index()])
             for item in pdf.get_toc(max_depth=6) if (dest := item.get_dest()) and (dest.get_index() or 0) < len(first_of_page)]
    meta = pdf.get_metadata_dict()
    return Manuscript("pdf", blocks, title=meta.get("Title", ""), author=meta.get("Author", ""), marks=marks, pages=len(pdf),
                      language=guess_language(block.text for block in blocks))
