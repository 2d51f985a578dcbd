"""Every format and encoding people keep books in."""

from __future__ import annotations

import io
from pathlib import Path

import pypdf
import pytest

from core.documents import read_document
from core.errors import PasswordNeeded
from tests.support.documents_made import BODY, epub, read, refused, word_file
from tests.support.typeset import typeset

PROSE = (
    "Der Fluß lag still. Über die Brücke ging „niemand“ – außer dem Müller, der müde war und auf die Straße "
    "sah, "
    "als käme dort jemand. "
) * 12


# ---- text ----


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
)
def test_western_text_in_any_encoding(encoding: str, tmp_path: Path):
    document = read(tmp_path, "book.txt", PROSE.encode(encoding))
    assert " ".join(document.text.split()) == PROSE.strip()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        (
            "koi8-r",
            "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. ",
        ),
        (
            "cp1251",
            "Все смешалось в доме Облонских. Жена узнала, что муж был в связи с бывшею в их доме "
            "француженкою. ",
        ),
        (
            "gb18030",
            "第一回　甄士隐梦幻识通灵，贾雨村风尘怀闺秀。此开卷第一回也，作者自云曾历过一番梦幻之后。",
        ),
        (
            "big5",
            "話說天下大勢，分久必合，合久必分。周末七國分爭，并入於秦。及秦滅之後，楚漢分爭，又并入於漢。",
        ),
        (
            "shift_jis",
            "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で泣いていた。",
        ),
        (
            "euc_kr",
            "나는 그 사람을 항상 선생님이라고 불렀다. "
            "그래서 여기에서도 그냥 선생님이라고만 쓰고 본명은 밝히지 않겠다. ",
        ),
        (
            "cp1255",
            "בראשית ברא אלהים את השמים ואת הארץ והארץ היתה תהו ובהו וחשך על פני תהום ורוח אלהים מרחפת על פני "
            "המים ",
        ),
        (
            "cp1253",
            "Η Ιθάκη σ' έδωσε τ' ωραίο ταξίδι. Χωρίς αυτήν δεν θα βγαινες στον δρόμο. Άλλα δεν έχει να σε "
            "δώσει πια. ",
        ),
    ],
)
def test_the_worlds_scripts_in_their_old_encodings(encoding: str, text: str, tmp_path: Path):
    document = read(tmp_path, "book.txt", (text * 20).encode(encoding))
    assert text.split()[0] in document.text


def test_mojibake_is_repaired_and_said_so(tmp_path: Path):
    """UTF-8 once saved as Windows-1252 shows as â€œ and Ã¼."""
    garbled = PROSE.encode("utf-8").decode("cp1252", errors="ignore")
    document = read(tmp_path, "book.txt", garbled.encode("utf-8"))
    assert "Brücke" in document.text and "außer" in document.text and "Ã" not in document.text
    assert any("repaired" in warning for warning in document.warnings)


def test_healthy_text_is_left_as_it_is(tmp_path: Path):
    text = "São Paulo, Ângela, “naïve”, Ãlvaro – 100 €, ½ pound."
    document = read(tmp_path, "book.txt", text.encode("utf-8"))
    assert document.text == text and not document.warnings


@pytest.mark.parametrize(
    "line, read",
    [
        (
            "“_Now_!” he said, and read the _Pall Mall Gazette_.",
            "“Now!” he said, and read the Pall Mall Gazette.",
        ),
        (
            "The ship _Thunder\nChild_ came up the river, and nobody spoke a word, so near it was.",
            "The ship Thunder\nChild came",
        ),
        ("It calls read_text and __init__ with 5_000_000 of them.", "read_text and __init__ with 5_000_000"),
        ("Fill in your name: ____________ and _the date_.", "name: ____________ and the date."),
    ],
)
def test_underscores_that_stand_for_italics_go(line: str, read: str, tmp_path: Path):
    """Answers and quotations had them in the middle of their sentences."""
    path = tmp_path / "told.txt"
    path.write_text(f"Chapter 1\n\n{line}\n\nThe end came soon after that, and all of them went home.\n")
    assert read in read_document(path).text


def test_wrapped_lines_are_joined_and_verse_is_not(tmp_path: Path):
    prose = (
        "It was late in the year when the two of them set out upon the\nroad that leads over the hills to "
        "the sea, and the well-\n"
        "known inn."
    )
    verse = "Tyger Tyger, burning bright,\nIn the forests of the night;"
    document = read(tmp_path, "book.txt", f"{prose}\n\n{verse}\n".encode())
    assert document.text.split("\n\n") == [
        prose.replace("well-\nknown", "well-known").replace("\n", " "),
        verse,
    ]


@pytest.mark.parametrize(
    "heading",
    [
        "CHAPTER {roman}",
        "Chapter {number}. The Name",
        "{roman}.",
        "Chapter the {word}",
        "Kapitel {number}",
        "Глава {number}",
        "第{chinese}章 名字",
        "{number}",
    ],
)
def test_chapters_are_found_by_their_headings(heading: str, tmp_path: Path):
    names = [
        {"number": number, "roman": roman, "word": word, "chinese": chinese}
        for number, roman, word, chinese in zip(
            range(1, 6),
            ["I", "II", "III", "IV", "V"],
            ["First", "Second", "Third", "Fourth", "Fifth"],
            "一二三四五",
            strict=True,
        )
    ]
    titles = [heading.format(**name) for name in names]
    body = (
        "The rain went on and nobody came to the door of the house by the lake that day, or the day after. "
        * 8
    )
    document = read(tmp_path, "book.txt", "\n\n\n".join(f"{title}\n\n{body}" for title in titles).encode())
    assert [section.title for section in document.chapters] == titles


def test_text_without_headings_is_cut_evenly(tmp_path: Path):
    paragraph = (
        "They walked on without a word and the afternoon passed over them like a cloud without rain. " * 6
    )
    document = read(tmp_path, "book.txt", "\n\n".join([paragraph] * 100).encode())
    sizes = [len(document.text[section.start : section.end].split()) for section in document.chapters]
    assert len(sizes) > 2 and max(sizes) < 1.2 * min(sizes)


# ---- markdown, html, docx ----


def test_markdown(tmp_path: Path):
    source = (
        "---\ntitle: The Lake\nauthor: A. Writer\n---\n\n# One\n\nFirst [link](http://example.org) "
        "text.\n\n## Deep\n\nMore.\n\n"
        "Two\n===\n\nSecond text.\n"
    )
    document = read(tmp_path, "book.md", source.encode())
    assert (document.format, document.title, document.author) == ("markdown", "The Lake", "A. Writer")
    assert [section.title for section in document.chapters] == ["One", "Two"]
    assert "First link text." in document.text


def test_html(tmp_path: Path):
    source = (
        "<!DOCTYPE html><html lang=fr><head><title>Le Lac</title><meta name=author content='A. "
        "Auteur'><script>var x='no';</script>"
        "</head><body><h1>Un</h1><p>Premier&nbsp;texte<br>suite<p>Sans fin<h1>Deux</h1><p>C<sup>2</sup> "
        "na&iuml;ve "
        "<b>gras</b>.</body>"
    )
    document = read(tmp_path, "page.html", source.encode("cp1252"))
    assert (document.format, document.title, document.author) == ("html", "Le Lac", "A. Auteur")
    assert [section.title for section in document.chapters] == ["Un", "Deux"]
    assert "naïve gras." in document.text and "no" not in document.text.split()


def test_docx(tmp_path: Path):
    document = read(
        tmp_path,
        "book.docx",
        word_file(
            [
                ("Heading1", "One"),
                ("", "First text – with “quotes”."),
                ("Heading1", "Two"),
                ("", "Second text."),
            ]
        ),
    )
    assert (document.format, document.title, document.author) == ("docx", "The Lake", "A. Writer")
    assert [section.title for section in document.chapters] == ["One", "Two"]
    assert "First text – with “quotes”." in document.text


def test_epub_chapters_are_cut_at_anchors_and_joined_across_files(tmp_path: Path):
    pages = {
        "a.xhtml": f'<h2 id="c1">One</h2>{BODY}<h2 id="c2">Two</h2>{BODY}',
        "b.xhtml": f'{BODY}<h2 id="c3">Three</h2>{BODY}',
    }
    nav = "".join(
        f'<li><a href="{target}">{title}</a></li>'
        for target, title in (("a.xhtml#c1", "One"), ("a.xhtml#c2", "Two"), ("b.xhtml#c3", "Three"))
    )
    document = read(tmp_path, "book.epub", epub(pages, nav=nav))
    assert [section.title for section in document.chapters] == ["One", "Two", "Three"]
    sizes = [len(document.text[section.start : section.end].split()) for section in document.chapters]
    assert sizes == [81, 161, 81]


def test_epub_with_a_missing_item_opens_with_a_warning(tmp_path: Path):
    document = read(tmp_path, "book.epub", epub({"a.xhtml": f"<h2>One</h2>{BODY}"}, missing=("gone.xhtml",)))
    assert "boats" in document.text
    assert any("gone.xhtml" in warning for warning in document.warnings)


def test_epub_notes_and_printed_pages(tmp_path: Path):
    page = (
        '<h2>One</h2><p><span epub:type="pagebreak" title="7"/>The mate wept.<sup><a href="#n">3</a></sup> '
        f"Then he sang.</p>{BODY}"
        f'<p><span epub:type="pagebreak" title="8"/>Later.</p>'
    )
    document = read(tmp_path, "book.epub", epub({"a.xhtml": page}))
    assert "The mate wept.[3] Then he sang." in document.text
    assert (
        document.page_at(document.text.index("The mate")) == "7"
        and document.page_at(document.text.index("Later")) == "8"
    )


@pytest.mark.parametrize(
    ("extra", "scheme"),
    [
        (
            {
                "META-INF/encryption.xml": "<encryption><EncryptedData><EncryptionMethod "
                'Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/>'
                "</EncryptedData></encryption>",
                "META-INF/rights.xml": "<rights/>",
            },
            "Adobe",
        ),
        ({"META-INF/license.lcpl": "{}"}, "LCP"),
        ({"META-INF/sinf.xml": "<s/>"}, "FairPlay"),
    ],
)
def test_drm_is_refused_by_name(extra: dict[str, str], scheme: str, tmp_path: Path):
    assert scheme in refused(tmp_path, "book.epub", epub({"a.xhtml": BODY}, extra=extra))


def test_entity_bomb_in_an_epub_costs_nothing(tmp_path: Path):
    bomb = (
        '<!DOCTYPE html [<!ENTITY a "lol lol lol lol lol lol lol lol">'
        + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 20}">' for n in range(8))
        + "]><html><body><p>Start &i; end.</p></body></html>"
    )
    document = read(tmp_path, "book.epub", epub({"a.xhtml": BODY}, extra={"O/a.xhtml": bomb}))
    assert len(document.text) < 1000 and "Start" in document.text


def test_file_cut_off_after_the_licence_still_opens(tmp_path: Path):
    head = (
        "The Project Gutenberg EBook of The Lake\n\nTitle: The Lake\n\n*** START OF THIS PROJECT "
        "GUTENBERG EBOOK THE LAKE ***\n"
    )
    document = read(tmp_path, "book.txt", head.encode())
    assert [(section.start, section.end) for section in document.sections] == [(0, len(document.text))]


def test_chinese_lines_are_joined_without_spaces(tmp_path: Path):
    line = "却说那女娲氏炼石补天之时，于大荒山无稽崖炼成高经十二丈方经二十四丈顽石"
    document = read(tmp_path, "book.txt", f"{line}\n{line}\n{line}\n\n{line}\n{line}\n".encode())
    assert document.text == f"{line * 3}\n\n{line * 2}"


# ---- pdf ----


def printed(chapters: list[tuple[str, list[str]]]) -> bytes:
    return typeset("The Lake", "A. Writer", chapters)[0]


LAKE = [
    ("One", ["The boats lay at anchor and nobody spoke. " * 20]),
    ("Two", ["Then the wind came and all of them sang. " * 20]),
]


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_encrypted_pdf_asks_for_its_password_and_opens_with_it(algorithm: str, tmp_path: Path):
    path = tmp_path / "book.pdf"
    path.write_bytes(encrypted(printed(LAKE), "sesame", algorithm))
    for wrong in (None, "", "other"):
        with pytest.raises(PasswordNeeded):
            read_document(path, password=wrong)
    document = read_document(path, password="sesame")
    assert [section.title for section in document.chapters] == ["One", "Two"] and "sang" in document.text


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_pdf_encrypted_for_nobody_just_opens(algorithm: str, tmp_path: Path):
    document = read(tmp_path, "book.pdf", encrypted(printed(LAKE), "", algorithm))
    assert [section.title for section in document.chapters] == ["One", "Two"]


def test_password_that_nobody_asked_for_does_no_harm(tmp_path: Path):
    path = tmp_path / "book.pdf"
    path.write_bytes(printed(LAKE))
    assert read_document(path, password="sesame") == read_document(path)


def encrypted(data: bytes, password: str, algorithm: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    writer.encrypt(user_password=password, owner_password="owner", algorithm=algorithm)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.mark.wide
def test_outline_levels_and_page_labels_of_a_real_book(shared_data: Path):
    """Roman numbers before the first page, parts above their chapters."""
    document = read_document(shared_data / "books" / "viking-tales.pdf")
    assert document.page_labels[:3] == ("i", "ii", "iii") and document.page_labels[14] == "7"
    assert [section.title for section in document.sections if section.kind == "part"] == [
        "I In Norway",
        "II West-Over-Seas",
    ]
    start = next(section.start for section in document.sections if section.title == "The Baby")
    assert document.page_at(start) == "7"


def test_title_of_a_pdf_without_one_is_on_its_first_page(shared_data: Path):
    document = read_document(shared_data / "hostile" / "pdf-no-outline-ligatures.pdf")
    assert (document.title, document.author) == ("Alice in Wonderland", "Lewis Carroll")


def test_html_contents_lead_to_chapters_and_note_links_do_not(tmp_path: Path):
    links = "".join(
        f'<p><a href="#c{n}">{title}</a></p>' for n, title in enumerate(("Morning", "Noon", "Night"))
    )
    chapters = "".join(
        f'<p id="c{n}">{title}</p><p>The bell rang.<a href="#n{n}">[{n}]</a> '
        f"{'Nobody came to the door. ' * 20}</p>"
        for n, title in enumerate(("Morning", "Noon", "Night"))
    )
    notes = "".join(f'<p id="n{n}">[{n}] A note of some length about the bell.</p>' for n in range(3))
    page = (
        "<html><head><title>Bells | Project "
        f"Gutenberg</title></head><body>{links}{chapters}{notes}</body></html>"
    )
    document = read(tmp_path, "book.html", page.encode())
    assert [section.title for section in document.chapters] == ["Morning", "Noon", "Night"]
