"""Small books of our own in scripts that need care: without spaces, with inflection, right to left."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Small:
    """A book: its first chapter is about a keeper, its second about a map. `sought` is not written as it
    stands there."""

    code: str
    title: str
    chapters: tuple[tuple[str, str], ...]
    words: int
    sentences: int  # of the first chapter's paragraph
    question: str  # about the second chapter
    sought: str
    stands: str


BOOKS = (
    Small(
        "zh",
        "灯塔看守人",
        (
            ("第一章 灯", "老看守人每天傍晚点亮灯。他在日志里写道：“今夜无人到来。”风很大！海上没有船吗？"),
            ("第二章 地图", "抽屉里有一张旧地图。地图上画着一座没有名字的岛。少女把它藏在钢琴里。"),
        ),
        64,
        4,
        "谁藏了地图？",
        "旧地图",
        "旧地图",
    ),
    Small(
        "ja",
        "灯台守",
        (
            (
                "第一章 明かり",
                "灯台守は毎晩、明かりをともした。「誰も来ない」と日誌に書いた。嵐が近づいている！",
            ),
            ("第二章 地図", "引き出しに古い地図があった。少女はそれをピアノの中に隠した。"),
        ),
        62,
        3,
        "地図はどこに隠されたか。",
        "ﾋﾟｱﾉ",
        "ピアノ",
    ),
    Small(
        "ru",
        "Смотритель маяка",
        (
            (
                "Глава первая. Огонь",
                "Смотритель зажигал лампу каждый вечер. Он писал в журнале: «Никто не пришёл». "
                "Шторм был близко!",
            ),
            ("Глава вторая. Карта", "В ящике лежала старая карта. Девочка спрятала её в рояль."),
        ),
        25,
        3,
        "Где была карта?",
        "никто не пришел",
        "Никто не пришёл",
    ),
    Small(
        "he",
        "שומר המגדלור",
        (
            ("פרק ראשון: האור", "השומר הדליק את המנורה בכל ערב. הוא כתב ביומן: „איש לא בא”. הסערה התקרבה!"),
            ("פרק שני: המפה", "במגירה הייתה מַפָּה ישנה. הילדה הסתירה אותה בתוך הפסנתר."),
        ),
        23,
        3,
        "איפה הייתה מפה ישנה?",
        "מפה ישנה",
        "מַפָּה ישנה",
    ),
)


def as_text(book: Small) -> str:
    return "\n\n".join(f"{title}\n\n{text}" for title, text in book.chapters)
