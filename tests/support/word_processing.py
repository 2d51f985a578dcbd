"""Documents of word processors made on the spot: DOCX and RTF with styles, outline levels, notes, tables."""

from __future__ import annotations

from tests.support.documents_made import zipped

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def word_paragraph(text: str, *, style: str = "", properties: str = "", note: int = 0) -> str:
    """A paragraph of a Word document. `note`: the number of a footnote behind its text."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    mark = f'<w:r><w:footnoteReference w:id="{note}"/></w:r>' if note else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r>{mark}</w:p>"


def word_table(*rows: list[str]) -> str:
    """A table of a Word document."""
    cells = ("".join(f"<w:tc>{word_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def word_style(key: str, name: str, *, based_on: str = "", level: int | None = None) -> str:
    """A paragraph style. `level`: of the outline, from 0."""
    base = f'<w:basedOn w:val="{based_on}"/>' if based_on else ""
    outline = f'<w:pPr><w:outlineLvl w:val="{level}"/></w:pPr>' if level is not None else ""
    opening = f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/>'
    return f"{opening}{base}{outline}</w:style>"


def word_document(body: str, *, styles: str = "", notes: dict[int, str] | None = None) -> bytes:
    """A DOCX with these paragraphs, styles and footnotes."""
    footnotes = "".join(
        f'<w:footnote w:id="{number}">{word_paragraph(text)}</w:footnote>'
        for number, text in (notes or {}).items()
    )
    relations = "".join(
        f'<Relationship Id="{kind}" Type="{_OFFICE}/{kind}" Target="{kind}.xml"/>'
        for kind in ("styles", "footnotes")
    )
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" '
            'ContentType="application/xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
            "word/footnotes.xml": f'<w:footnotes xmlns:w="{_WORD}">{footnotes}</w:footnotes>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}'
            "</Relationships>",
        }
    )


def rich_text(*parts: str, styles: str = "") -> bytes:
    """An RTF of these pieces of source."""
    sheet = rf"{{\stylesheet{{\s0 Normal;}}{styles}}}"
    return (r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Times;}}" + sheet + "".join(parts) + "}").encode()


def open_document_table(*rows: list[str]) -> str:
    """A table of an OpenDocument text."""
    cells = (
        "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row)
        for row in rows
    )
    lines = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    return f"<table:table>{lines}</table:table>"
