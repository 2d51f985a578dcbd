"""Which series a file says it belongs to, and as which volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents_made import BODY, epub, read

COLLECTION = (
    '<meta property="belongs-to-collection" id="c1">The  Wend\nBooks</meta>'
    '<meta refines="#c1" property="collection-type">{kind}</meta>'
    '<meta refines="#c1" property="group-position">{at}</meta>'
)
SET = (
    '<meta property="belongs-to-collection" id="c0">A box</meta>'
    '<meta refines="#c0" property="collection-type">set</meta>'
)
CALIBRE = (
    '<meta name="calibre:series" content="Old &amp; New"/><meta name="calibre:series_index" content="{at}"/>'
)


@pytest.mark.parametrize(
    ("metadata", "series"),
    [
        ("", ("", None)),
        (COLLECTION.format(kind="series", at="2"), ("The Wend Books", 2.0)),
        (SET + COLLECTION.format(kind="series", at="2.5.1"), ("The Wend Books", 2.5)),
        (SET, ("", None)),
        ('<meta property="belongs-to-collection">Bare</meta>', ("Bare", None)),
        (CALIBRE.format(at="3.0"), ("Old & New", 3.0)),
        (CALIBRE.format(at="0"), ("Old & New", 0.0)),  # what was before the first
        (CALIBRE.format(at="nan"), ("Old & New", None)),
        (COLLECTION.format(kind="series", at="7") + CALIBRE.format(at="3"), ("The Wend Books", 7.0)),
        (COLLECTION.format(kind="set", at="7") + CALIBRE.format(at="3"), ("Old & New", 3.0)),
        (f'<meta name="calibre:series" content="{"x" * 900}"/>', ("x" * 200, None)),
    ],
)
def test_an_epub_names_its_series(metadata: str, series: tuple, tmp_path: Path):
    document = read(tmp_path, "lake.epub", epub({"a.xhtml": BODY}, metadata=metadata))
    assert (document.series, document.volume) == series


def test_a_fictionbook_names_its_series(tmp_path: Path):
    info = '<title-info><book-title>Lake</book-title><sequence name="Wend" number="4"/></title-info>'
    text = (
        f"<FictionBook><description>{info}</description><body><section>{BODY}</section></body></FictionBook>"
    )
    document = read(tmp_path, "lake.fb2", text)
    assert (document.series, document.volume) == ("Wend", 4.0)


def test_a_damaged_package_costs_the_series_alone(tmp_path: Path):
    book = epub({"a.xhtml": BODY}, extra={"O/p.opf": "<package><metadata>"})
    document = read(tmp_path, "lake.epub", book)
    assert (document.series, document.volume) == ("", None) and "boats" in document.text
