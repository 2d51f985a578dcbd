"""Which questions ask about a book as a whole: how it ends, what it is about, who is in it, who tells it.

Such a question has words of its kind and beside them only words that any question of the kind may have.
One
word more, "How does the duel end?", and it asks about something in the book. So no wording is known
here, only
words, and a question that is not understood is an ordinary one. English, German, Chinese.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class _Kind:
    """`needs`: groups of sets: a word of every set of one group occurs. `beside`: others that may."""

    needs: tuple[tuple[frozenset[str], ...], ...]
    beside: frozenset[str]


def _words(text: str) -> frozenset[str]:
    """Words between blanks; "_" stands for a blank within one."""
    return frozenset(word.replace("_", " ") for word in text.split())


# what German has before a noun and hardly before a name, with adjectives between: "der graue Papagei"
_GERMAN_NOUN = re.compile(
    r"\b(?i:d(?:er|ie|as|en|em|es)|(?:k?ein|[dms]ein|ihr|unser)(?:e[mnrs]?)?|viele[nr]?"
    r"|im|vom|beim|ins|zum|zur|(?:dies|jen|jed|welch|manch|all)e[mnrs]?)\s+"
    r"(?:[a-zäöüß]+e[mnrs]?\s+){0,2}([A-ZÄÖÜ][^\W\d_]+)"
)

TITLE = "\N{BLACK SQUARE}"  # stands for a word of the book's title
_BOOK = _words(
    """
    book novel story tale text narrative buch buches roman romans geschichte erzählung text textes werk werks
    书 小说 故事 作品
    """
)
# what surrounds any question
_AROUND = _BOOK | _words(
    f"""
    {TITLE} the a an this is are was were be do does did has have of in at by for on there it its s whole
    entire i me us my you your would d want_to_know like_to_know please can could will tell give show
    describe explain know let say what whats briefly short shortly just so well
    der die das den dem des ein eine einen einem einer eines dieses diese dieser diesem diesen es ist sind
    war waren wird gibt in im am an zu zum zur von vom mit für mir uns mich du sie ich bitte kannst kann
    könntest können möchte würde gern gerne wissen will erzähl erzähle erzählen sag sage sagen nenn nenne
    nennen beschreib beschreibe beschreiben erklär erkläre gib verrate was ganze ganzen hier denn eigentlich
    kurz mal
    的 了 吗 呢 啊 呀 吧 是 有 在 里 里面 中 这 这本 本 部 这部 个 这个 篇 我 请 告诉 给 你 您 能
    可以 想 知道 说 说说 一下 简单 简要 什么 它 一个 整 全 那 么 样 会 请问 到底 究竟 用 几句话 话
    """
)
_HAPPENS = _words("happen happens happened going_on passiert passierte geschieht geschah geschehen 发生")

_END = _Kind(
    needs=(
        (
            _words(
                """
                end ends ended ending conclude concludes concluded conclusion finale finally finish finishes
                finished outcome turn_out turns_out turned_out to_an_end last_chapter final_chapter last_page
                last_pages ende endet endete enden geendet schluss schluß ausgang schließlich zuletzt
                letzten_kapitel letzte_kapitel letzten_seite letzten_seiten
                结局 结尾 结束 收尾 收场 末尾 尾声 最终 最后 最后一章 最后一页
                """
            ),
        ),
        (_words("geht ging gehen gegangen hört hörte"), _words("aus auf")),
        (_words("ausgeht ausging ausgehen ausgegangen aufhört"),),
    ),
    beside=_HAPPENS
    | _words(
        """
        how everything things all come comes came final last happy sad good bad kind sort summarise summarize
        summary about spoil wie alles happy end glückliches gutes trauriges sieht gut schlecht fasse zusammen
        怎么 怎样 如何 怎么样 事 事情 好 坏 讲 幸福 悲剧 圆满
        """
    ),
)
_ABOUT = _Kind(
    needs=(
        (
            _words(
                """
                about plot summary summarise summarize synopsis gist theme themes topic subject premise
                storyline overview content contents deal_with deals_with main_idea main_point
                worum wovon um_was inhalt handlung thema themen zusammenfassung zusammenfassen zusammen
                inhaltsangabe
                讲 讲述 关于 内容 大意 概括 总结 概述 梗概 情节 主题 简介 介绍 摘要
                """
            ),
        ),
        (_HAPPENS, _BOOK | {TITLE} | _words("far bisher 到目前为止")),
        (_words("说"), _BOOK),
    ),
    beside=_HAPPENS
    | _words(
        """
        that main central all really so far
        geht ging handelt dreht sich fass fasse überblick bisher hauptthema
        主要 主 故事 是什么 事 事情 怎么 到目前为止 讲的
        """
    ),
)
_CAST = _words(
    """
    character characters protagonist protagonists hero heroes heroine heroines cast dramatis_personae
    hauptfigur hauptfiguren hauptperson hauptpersonen hauptcharakter hauptcharaktere protagonistin
    protagonisten figuren personen charaktere heldin helden
    人物 角色 主角 主人公 男主角 女主角
    """
)
_PEOPLE = _Kind(
    needs=(
        (_CAST,),
        (_words("people persons figures"), _words("who main important central key most")),
        (_words("who whos wer wem wen 谁 人"), _BOOK),
        (_words("who"), _words("about part role")),
        (_words("who whos"), _words("in"), _words("it")),
        (_words("wer wem"), _words("vor handelt rolle hauptrolle mit")),
    ),
    beside=_words(
        """
        who whos which and all main chief central key important principal major leading most called names
        name list appear appears appearing occur occurs play plays part role roles about overview introduce
        wie wer wem wen welche welcher und alle wichtig wichtigste wichtigsten wichtigen zentralen zentrale
        handelnden heißen heißt namen kommt kommen vor treten tritt auf spielt spielen rolle hauptrolle
        handelt mit zähle liste
        谁 人 哪些 哪 几 些 主要 重要 最重要 最 核心 中心 出场 登场 出现 叫 名字 和 都 列出 介绍 位
        """
    ),
)
_NARRATOR = _Kind(
    needs=(
        (_words("narrator narrators storyteller"), _words("who whos whose name named called")),
        (_words("who whos"), _words("narrates narrated narrating")),
        (_words("who whos"), _words("tells telling"), _BOOK | {TITLE}),
        (_words("whom"), _words("told narrated"), _BOOK | {TITLE}),
        (_words("whose"), _words("point_of_view perspective"), _BOOK | {TITLE}),
    ),
    beside=_words("which from voice point_of_view perspective"),
)
_WHO_IS = re.compile(
    r"\s*(?:(?:who(?:\s+(?:is|was)|[’']s)|wer\s+(?:ist|war))\s+(\S.*?)"
    r"(?:\s+in\s+(?:(?:the|this)\s+(?:book|novel|story|text)|(?:dem|diesem)\s+(?:buch|roman)))?"
    r"|谁是(.+?)|(.+?)是谁)[\s.?？!！。]*",
    re.IGNORECASE,
)
KINDS = {"end": _END, "people": _PEOPLE, "about": _ABOUT, "narrator": _NARRATOR}


def asked_of_whole(question: str, title: str = "") -> str | None:
    """Which of KINDS a question about the book of this title is, None for one about something in the book."""
    text = " ".join(re.findall(r"\w+", question.lower()))
    for word in re.findall(r"\w+", title.lower()):
        text = re.sub(rf"\b{word}\b", TITLE, text) if word not in _AROUND else text
    for name, kind in KINDS.items():
        words = _shape(name).findall(text)
        rest = _shape(name).sub("", text)
        if not rest.strip() and any(all(one.intersection(words) for one in group) for group in kind.needs):
            return name
    return None


@cache
def _shape(name: str) -> re.Pattern[str]:
    """Finds the words of a kind, the longest at each place; Chinese has no blanks between them."""
    kind = KINDS[name]
    known = kind.beside.union(_AROUND, *(words for group in kind.needs for words in group))
    return re.compile("|".join(map(_bounded, sorted(known, key=len, reverse=True))))


def _bounded(word: str) -> str:
    return rf"\b{re.escape(word)}\b" if word.isascii() or word[0] < "\u0250" else re.escape(word)


def asked_who(question: str) -> str | None:
    """The name in a question that asks who somebody is, and nothing else; None of another question."""
    asked = _WHO_IS.fullmatch(question)
    return next(filter(None, asked.groups()), None) if asked else None


def german_nouns(question: str) -> list[str]:
    """Words of a question that are written large because German writes every noun so: no names."""
    return _GERMAN_NOUN.findall(question)
