"""Chapter headings as books write them: "CHAPTER IV. Title", "Book the First", bare numerals, "第三章"."""

from __future__ import annotations

import re
from dataclasses import dataclass


def _list(words: str) -> list[str]:
    return words.split()


def _alternatives(words: str) -> str:
    return "|".join(_list(words))


_PART_NAMES = """book part volume vol act teil buch akt band livre partie acte tome parte livro libro acto
    tomo atto deel boek del bok osa część část часть книга том חלק"""
# a line with one of these is never a section inside a chapter
_PLAIN_NAMES = """chapter chap kapitel kapitlet chapitre capítulo capitulo capitolo hoofdstuk luku rozdział
    kapitola глава κεφάλαιο bölüm fejezet chương פרק"""
_OTHER_NAMES = """letter canto scene stave section lesson lecture tale fytte adventure brief abschnitt lettre
    carta письмо"""
_PART_WORDS = frozenset(_PART_NAMES.split()) | set("卷巻部篇編")
_CHAPTER_WORDS = frozenset(_PLAIN_NAMES.split()) | set("章回节節话話")
_WORDS = _alternatives(f"{_PLAIN_NAMES} {_OTHER_NAMES} {_PART_NAMES}")
# one, two, three: by which chapters are counted, a line for each language and form
_COUNTED = """eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte elfte zwölfte
    erster zweiter dritter vierter fünfter sechster siebter achter neunter zehnter elfter zwölfter
    erstes zweites drittes viertes fünftes sechstes siebtes achtes neuntes zehntes elftes zwölftes
    premier deuxième troisième quatrième cinquième sixième septième huitième neuvième dixième onzième douzième
    première seconde _ _ _ _ _ _ _ _ _ _
    primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo undécimo duodécimo
    primera segunda tercera cuarta quinta sexta séptima octava novena décima undécima duodécima
    primo secondo terzo quarto quinto sesto settimo ottavo nono decimo undicesimo dodicesimo
    prima seconda terza quarta quinta sesta settima ottava nona decima undicesima dodicesima
    primeiro segundo terceiro quarto quinto sexto sétimo oitavo nono décimo _ _
    primeira segunda terceira quarta quinta sexta sétima oitava nona décima _ _
    een twee drie vier vijf zes zeven acht negen tien elf twaalf
    eerste tweede derde vierde vijfde zesde zevende achtste negende tiende elfde twaalfde
    ett två tre fyra fem sex sju åtta nio tio elva tolv
    första andra tredje fjärde femte sjätte sjunde åttonde nionde tionde elfte tolfte
    pierwszy drugi trzeci czwarty piąty szósty siódmy ósmy dziewiąty dziesiąty jedenasty dwunasty
    pierwsza druga trzecia czwarta piąta szósta siódma ósma dziewiąta dziesiąta jedenasta dwunasta
    první druhá třetí čtvrtá pátá šestá sedmá osmá devátá desátá jedenáctá dvanáctá
    первая вторая третья четвёртая пятая шестая седьмая восьмая девятая десятая одиннадцатая двенадцатая"""
_NUMBER_OF = {
    word: number
    for line in _COUNTED.split("\n")
    for number, word in enumerate(line.split(), 1)
    if word != "_"
}
_NUMBER_WORDS = _alternatives(
    f"""one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred first second
    third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
    sixteenth seventeenth eighteenth nineteenth twentieth last the and premi[eè]re primer tercer
    {" ".join(sorted(_NUMBER_OF, key=len, reverse=True))}
    ראשון שני שלישי רביעי חמישי שישי שביעי שמיני תשיעי עשירי ראשונה שנייה"""
)
_ROMAN = r"(?=[ivxlcdm])m{0,3}(?:c[md]|d?c{0,4})(?:x[cl]|l?x{0,4})(?:i[xv]|v?i{0,4})"
_HEBREW = "[א-ת]{1,2}['\u05f3\u05f4]?"
_NUMBER = rf"(?:\d{{1,4}}|{_ROMAN}|{_HEBREW}(?=$|[\s.:,;—–-])|(?:(?:{_NUMBER_WORDS})\b[\s-]*)+)"
_REST = r"(?P<rest>.*)\Z"
_LABEL = re.compile(
    rf"(?P<word>{_WORDS})\b\.?\s+(?P<number>{_NUMBER})(?=$|[\s.:,;—–\-\])])[.:\])]*\s*[—–\-]*\s*{_REST}",
    re.I | re.S,
)
_REVERSED = re.compile(
    rf"(?P<number>(?:the\s+)?(?:{_NUMBER_WORDS})|\d{{1,4}}\.)\s+(?P<word>{_WORDS})\b[.:]?\s*{_REST}",
    re.I | re.S,
)
_CHINESE = "[0-9０-９一二三四五六七八九十百千零〇两兩]+"
_CJK = re.compile(
    rf"第\s*(?P<number>{_CHINESE})\s*(?P<word>[章回节節卷巻部篇編话話幕])\s*[:：、.．]?\s*{_REST}", re.S
)
_CJK_REVERSED = re.compile(
    rf"(?P<word>[卷巻])[之第]?\s*(?P<number>{_CHINESE})(?=$|[\s:：、])\s*[:：、]?\s*{_REST}", re.S
)
# volumes in two or three: 上, 中, 下
_CJK_VOLUME = re.compile(rf"(?P<number>[上中下])(?:[卷巻部篇編]\s*(?=$|\s)|\s+){_REST}", re.S)
_CJK_NUMBERED = re.compile(
    rf"(?:その)?(?P<number>[一二三四五六七八九十百〇]{{1,5}})(?:[、.．]\s*|\s+|\Z){_REST}", re.S
)
_NUMBERED = re.compile(rf"(?P<number>\d{{1,3}}|{_ROMAN})(?:(?P<stop>[.:)—–])\s*|\s+|\Z){_REST}", re.I | re.S)
_SPECIAL_NAMES = _alternatives(
    r"""prologue epilogue introduction introductory preface foreword afterword conclusion postscript interlude
    prelude coda finale envoi appendix(?:\s+\w{1,4})? contents table\s+of\s+contents index bibliography
    glossary notes endnotes acknowledge?ments dedication prolog epilog vorwort einleitung nachwort inhalt
    prólogo epílogo introducción prefazione prologo epilogo introduzione avant-propos préface épilogue
    序 序章 序言 前言 楔子 引子 尾声 尾聲 后记 後記 终章 終章 番外 はじめに おわりに まえがき あとがき
    пролог эпилог предисловие введение послесловие
    הקדמה מבוא פתח\s+דבר אחרית\s+דבר"""
)
# above the list of who is who in a play
_CAST = _alternatives(
    r"""dramatis\s+person(?:ae|æ) persons?\s+(?:of|in|represented\s+in)\s+the\s+(?:play|drama|dialogue)
    persons\s+represented cast\s+of\s+characters (?:list\s+of\s+)?characters(?:\s+(?:of|in)\s+the\s+play)?
    (?:handelnde\s+)?personen(?:verzeichnis)? (?:les\s+)?personnages personaggi personajes personagens
    действующие\s+лица"""
)
_CAST_LIST = re.compile(rf"(?:the\s+)?(?:{_CAST})[.:]?", re.I)
_SPECIAL = re.compile(
    rf"(?:the\s+)?(?:(?:first|second|third)\s+)?(?:{_SPECIAL_NAMES}|{_CAST})"
    rf"(?:[.:]?|\s*[:—–]\s*[^\n]{{1,50}}[^.,;:\s])\Z",
    re.I,
)
_FRAMED = re.compile(r"[—–-]\s*([^\W\d]+)\s*[—–-]\Z")  # "— I —", but not the page number "- 12 -"
_ENDS_LIKE_PROSE = re.compile(r"[,;:\-]\Z")
_MAX_CHARS = 120
CELL_END = " | "  # between the cells of a table's row


@dataclass(frozen=True, slots=True)
class Heading:
    """A line read as a heading. `word`: "chapter", "part", ... or "" for bare numerals, "special" for
    Epilogue and its kind.
    """

    word: str
    number: int | None
    rest: str  # the title after the label; "" when it is a bare label
    form: str = ""  # of the number: "digits" | "roman" | "chinese" | "words"

    @property
    def is_part(self) -> bool:
        """A label that usually stands above chapters."""
        return self.word in _PART_WORDS

    @property
    def is_chapter(self) -> bool:
        """ "Chapter" in some language: what such a line says is not to be doubted."""
        return self.word in _CHAPTER_WORDS

    @property
    def is_bare(self) -> bool:
        """Only "Chapter 4", the name may follow on a line of its own."""
        return not self.rest and self.word != "special"


def title_key(text: str) -> str:
    """What two spellings of one title have in common: letters and digits, without the word "chapter"."""
    plain = re.sub(r"\b(?:chapter|chap)\b\.?", " ", text.casefold())
    return re.sub(r"[\W_]+", "", plain)


def read_heading(text: str) -> Heading | None:
    """
    The heading that `text` is, or None. Only the form is judged; whether it is one is for the whole book to
    say."""
    line = " ".join(text.split()).strip("*_[]= ")
    framed = _FRAMED.match(line)
    line = framed.group(1) if framed else line
    if not line or len(line) > _MAX_CHARS:
        return None
    if _SPECIAL.match(line):
        return Heading("special", None, line)
    for pattern in (_LABEL, _REVERSED, _CJK, _CJK_REVERSED):
        found = pattern.match(line)
        if found and _title_like(found["rest"]):
            number = to_number(found["number"])
            return Heading(found["word"].lower(), number, found["rest"].strip(), _form(found["number"]))
    found = _CJK_VOLUME.match(line)
    if found and len(found["rest"]) <= 20 and _title_like(found["rest"]):
        return Heading("部", "上中下".index(found["number"]) + 1, found["rest"].strip(), "chinese")
    found = _CJK_NUMBERED.match(line)
    if found and len(found["rest"]) <= 30 and not re.search(r"[。，！？」]", found["rest"]):
        return Heading("", to_number(found["number"]), found["rest"].strip(), "chinese")
    return _numbered(line)


def is_cast_list(title: str) -> bool:
    """Whether a heading stands above the persons of a play."""
    return _CAST_LIST.fullmatch(" ".join(title.split())) is not None


def _numbered(line: str) -> Heading | None:
    """A heading of a numeral alone, or with a title after it."""
    found = _NUMBERED.match(line)
    if not found or not _title_like(found["rest"]):
        return None
    if not (found["number"].isdigit() or found["number"].isupper()):
        return None
    # "I Introduction" may be a heading, "I went home" is not
    pronoun = found["number"] == "I" and found["rest"] and not found["stop"]
    if pronoun and not found["rest"].istitle() and not found["rest"].isupper():
        return None
    return Heading("", to_number(found["number"]), found["rest"].strip(), _form(found["number"]))


def _form(number: str) -> str:
    if number.strip(" .").isdigit():
        return "digits"
    if re.match(_CHINESE, number):
        return "chinese"
    return "roman" if re.fullmatch(_ROMAN, number.lower()) else "words"


def _title_like(rest: str) -> bool:
    """What follows a label may be a title, not the rest of a sentence ("Chapter two was hard to write,")."""
    rest = rest.strip()
    if not rest:
        return True
    return (
        len(rest) <= 90
        and CELL_END not in rest
        and not _ENDS_LIKE_PROSE.search(rest)
        and not rest[0].islower()
    )


def to_number(text: str) -> int | None:
    """12, XII, twelve, "the first", 十二 as a number; None when it is none."""
    text = text.strip(" .-").lower()
    if text.isdigit():
        return int(text)
    if re.fullmatch(_ROMAN, text):
        return _roman(text)
    if text and text[0] in "一二三四五六七八九十百千零〇两兩":
        return _chinese(text)
    return _spelt(text)


def _roman(text: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}[char] for char in text]
    return sum(
        -value if value < following else value
        for value, following in zip(values, values[1:] + [0], strict=True)
    )


def _chinese(text: str) -> int:
    digits = {char: index for index, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
    total, current = 0, 0
    for char in text:
        if char in digits:
            current = digits[char]
        else:
            total += max(1, current) * {"十": 10, "百": 100, "千": 1000}.get(char, 1)
            current = 0
    return total + current


_UNITS = _list(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
)
_TENS = _list("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = _list(
    """zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
)


def _spelt(text: str) -> int | None:
    total = 0
    for word in re.split(r"[\s-]+", text):
        if word in _UNITS:
            total += _UNITS.index(word)
        elif word in _TENS:
            total += 10 * _TENS.index(word)
        elif word in _ORDINALS:
            total += _ORDINALS.index(word)
        elif word in _NUMBER_OF:
            total += _NUMBER_OF[word]
        elif word == "hundred":
            total = max(1, total) * 100
    return total or None
