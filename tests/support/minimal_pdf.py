"""PDFs written by hand: objects as they are, and pages of text in any script without an embedded font."""

from __future__ import annotations

from collections.abc import Sequence

# of a page and of its letters, in points; a letter is as wide as it is high
WIDTH, HEIGHT, SIZE, LEADING = 420, 595, 10, 14
Placed = tuple[float, float, str]  # x and y of the first letter as drawn, from left to right
_TO_UNICODE = (
    "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /U def /CMapType 2 def 1 "
    "begincodespacerange "
    "<0000> <FFFF> endcodespacerange 1 beginbfrange <0000> <FFFF> <0000> endbfrange endcmap end end"
)


def pdf_of(objects: Sequence[str], root: int = 1) -> bytes:
    """A PDF with these objects (numbered from 1) and a correct cross-reference table."""
    body, offsets = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    return (
        body
        + (
            f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<</Size "
            f"{len(objects) + 1}/Root {root} 0 R>>\n"
            f"startxref\n{len(body)}\n%%EOF"
        ).encode()
    )


def text_pdf(pages: Sequence[Sequence[Placed]], *, extra: str = "") -> bytes:
    """Pages of text whose codes are the characters themselves; `extra` is drawn on every page.

    A piece needs two letters: PDFium skips single ones without a glyph.
    """
    kids = " ".join(f"{6 + 2 * index} 0 R" for index in range(len(pages)))
    font = (
        "/BaseFont/Plain/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>/DW "
        "1000/FontDescriptor<</FontName/Plain"
        "/Type/FontDescriptor/Flags 4/FontBBox[0 -200 1000 800]/Ascent 800/Descent -200/CapHeight "
        "700/ItalicAngle 0/StemV 80>>"
    )
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>",
        "<</Type/Font/Subtype/Type0/BaseFont/Plain/Encoding/Identity-H/DescendantFonts[4 0 R]/ToUnicode 5 0 "
        "R>>",
        f"<</Type/Font/Subtype/CIDFontType2{font}>>",
        f"<</Length {len(_TO_UNICODE)}>>stream\n{_TO_UNICODE}\nendstream",
    ]
    for index, page in enumerate(pages):
        drawn = "".join(
            f"BT /F {SIZE} Tf 1 0 0 1 {x} {y} Tm <{text.encode('utf-16-be').hex()}> Tj ET\n"
            for x, y, text in page
        )
        drawn += extra
        resources = f"/MediaBox[0 0 {WIDTH} {HEIGHT}]/Resources<</Font<</F 3 0 R>>>>"
        objects += [
            f"<</Type/Page/Parent 2 0 R{resources}/Contents {7 + 2 * index} 0 R>>",
            f"<</Length {len(drawn)}>>stream\n{drawn}endstream",
        ]
    return pdf_of(objects)
