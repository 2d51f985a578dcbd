"""Web pages as a browser saves them, made of a sample: a text with the menus, teasers and comments of a site
around it, and a whole book as one page. Each is told with the paragraphs that belong to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"
MENU = (
    "Home",
    "World",
    "Politics",
    "Business",
    "Science",
    "Culture",
    "Sport",
    "Opinion",
    "Weather",
    "Archive",
)
TEASERS = (
    "Ferry company raises fares for the third time this year",
    "Why the herring came back, and what it means for the north",
    "Ten harbours you should see before the summer ends",
    "Council votes to keep the old market hall open until spring",
    "The woman who repairs clocks that nobody else will touch",
    "Storm warning lifted for the whole of the eastern coast",
)
COMMENTS = (
    "I was there in the nineties and it looked nothing like this, thanks for bringing it back to me.",
    "Surely the author means the other island? My grandfather always told it differently.",
    "Great read. More of this and less football please, if anybody in the office is listening.",
    "I do not agree with the last part at all, and I doubt that anybody checked it before it went out to all "
    "of us who pay for this paper. The lamp was never lit in that year, as the records of the harbour show.",
)
CHINESE = (
    "灯塔建在岛的北端，距离海岸约三公里。一八七二年春天，理事会决定在那里试用电灯，这在整个海岸上还是第一次。",
    "看守人每天傍晚点灯，每天早晨把灯熄灭，并在日志里写下天气、过往的船只和用掉的煤。",
    "冬天的时候，船有时三个星期都不能靠岸，岛上的人只能吃咸鱼和干面包，等风停下来。",
    "工程师带来了十九个木箱，每个箱子上都有红色的号码，里面装的是四十八块磁铁和一台蒸汽机。",
    "灯第一次点亮的那个晚上，村里的人都站在码头上，没有人说话，因为那道光比他们想象的要白得多。",
    "一年以后，理事会算了账，发现这盏灯比油灯贵三倍，于是把机器拆了下来，运回了首都。",
)
Saved = tuple[str, list[str]]  # a page, and the paragraphs that belong to it


def book_parts() -> list[str]:
    """The sample's paragraphs and, with "# ", its chapter titles."""
    text = (SAMPLES / "the-light-on-the-holm.md").read_text(encoding="utf-8").split("---", 2)[2]
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def prose(first: int, count: int) -> list[str]:
    """So many of the sample's longer paragraphs."""
    return [part for part in book_parts() if len(part) > 80 and part[0] != "#"][first : first + count]


def page_of(title: str, body: str, language: str = "en") -> str:
    """A page with a style sheet and a script."""
    head = f"<meta charset=utf-8><title>{title}</title><style>.a{{color:red}}</style><script>var a=1</script>"
    return f'<!doctype html><html lang="{language}"><head>{head}</head><body>{body}</body></html>'


def links_of(words: Sequence[str]) -> str:
    """A list of links to other pages."""
    items = (f'<li><a href="/{number}-{word[:4]}.html">{word}</a></li>' for number, word in enumerate(words))
    return f"<ul>{''.join(items)}</ul>"


def paragraphs_of(parts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in parts)


def news() -> Saved:
    """A newspaper's article: a box of links in its midst, teasers and more comments than text below it."""
    text = prose(0, 12)
    menu = f'<header class="site-header"><nav>{links_of(MENU)}</nav></header>'
    cookies = '<div class="cookie-banner"><p>We use cookies. <a href="/privacy.html">More</a></p></div>'
    related = f'<aside class="related"><h3>More on this subject</h3>{links_of(TEASERS[:3])}</aside>'
    article = (
        "<article><h1>The Light on the Holm</h1><p class=byline>By Isaac Rudd · 21 November 1872</p>"
        f"{paragraphs_of(text[:6])}{related}<h2>What the year cost</h2>{paragraphs_of(text[6:])}</article>"
    )
    boxes = (
        f'<div class="teaser"><a href="/t{number}.html"><h3>{teaser}</h3></a><p>{told[:180]} …</p></div>'
        for number, (teaser, told) in enumerate(zip(TEASERS, prose(60, 6), strict=True))
    )
    teasers = f'<section class="teasers"><h2>Most read</h2>{"".join(boxes)}</section>'
    said = (f'<div class="comment"><b>reader{n}</b><p>{COMMENTS[n % 4]}</p></div>' for n in range(12))
    comments = f'<section id="comments"><h2>Comments (12)</h2>{"".join(said)}</section>'
    foot = f"<footer>{links_of(('Imprint', 'Privacy', 'Terms'))}<p>© The Saltby Gazette.</p></footer>"
    body = f"{menu}{cookies}<main>{article}{teasers}{comments}</main>{foot}"
    return page_of("The Light on the Holm - The Saltby Gazette", body), text


def blog() -> Saved:
    """A blog's entry with a list and a quotation, comments, a form and a sidebar."""
    text, items = prose(12, 9), ["It loses seven minutes every Thursday.", "The case is sealed."]
    listed = "".join(f"<li>{item}</li>" for item in items)
    entry = (
        '<div class="post hentry"><h2>The Thursday Clock</h2><div>Posted on <a href="/d.html">May 8</a></div>'
        f"{paragraphs_of(text[:8])}<ul>{listed}</ul><blockquote>{paragraphs_of(text[8:])}</blockquote></div>"
    )
    said = (f'<li class="comment"><cite>nobody{n}</cite>:<p>{COMMENTS[n % 4]}</p></li>' for n in range(8))
    comments = f'<div id="comments"><h3>8 thoughts on it</h3><ol>{"".join(said)}</ol></div>'
    form = '<div id="respond"><h3>Leave a reply</h3><form><p>Your address is not shown.</p></form></div>'
    side = f'<div id="sidebar"><h3>Recent posts</h3>{links_of(TEASERS)}{links_of(MENU)}</div>'
    head = '<div id="header"><h1><a href="/">A Blog of Clocks</a></h1><p>Everything that ticks</p></div>'
    body = f'{head}<div class="content-sidebar-wrap">{entry}{comments}{form}</div>{side}'
    return page_of("The Thursday Clock | A Blog of Clocks", body), text + items


def forum() -> Saved:
    """A thread of ten: what other people say is the text here."""
    text = prose(20, 10)
    posts = (
        f'<div class="post" id="p{n}"><div class="user"><a href="/u{n}.html">keeper{n}</a><br>Posts: {n * 37}'
        f'</div><div class="postbody">{paragraphs_of([said])}</div><div class="signature">Since 19{60 + n}'
        "</div></div>"
        for n, said in enumerate(text)
    )
    head = f'<ul class="menu">{links_of(MENU)}</ul><h1>Which lamp is this?</h1>'
    similar = f'<div class="similar"><h3>Similar threads</h3>{links_of(TEASERS)}</div>'
    return page_of("Which lamp is this? - Lighthouse Forum", head + "".join(posts) + similar), text


def documentation() -> Saved:
    """A page of a manual: code, a table, a list of terms, and a tree of other pages."""
    text, cells = prose(30, 9), ["how often the key is turned before it stops", "the hour of the hands"]
    tree = f"<nav>{links_of([f'Module {letter}' for letter in 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'])}</nav>"
    table = (
        f"<table><tr><td>turns</td><td>{cells[0]}</td></tr><tr><td>hour</td><td>{cells[1]}</td></tr></table>"
    )
    mark = '<a class="headerlink" href="#s">¶</a>'
    body = (
        f'{tree}<div role="main"><h1>Winding a clock{mark}</h1>'
        f"{paragraphs_of(text[:3])}<h2>Options{mark}</h2>"
        f"{paragraphs_of(text[3:6])}<pre>clock.wind(turns=12)</pre>{table}<h2>Faults{mark}</h2>"
        f"{paragraphs_of(text[6:])}<dl><dt>strike</dt><dd>The strokes of the bell.</dd></dl></div>"
        '<div class="related"><a href="/n.html">next</a></div><footer>© 2026. Built with a tool.</footer>'
    )
    return page_of("Winding a clock — Clockwork 3.1", body), [*text, *cells, "clock.wind(turns=12)", "strike"]


def encyclopedia() -> Saved:
    """An entry with a box of facts, a table, references and links to change each part."""
    text, rows = prose(40, 18), [f"{number * 7} lamps were delivered" for number in range(8)]
    parts = "".join(
        f'<h2>{title}<span class="mw-editsection">[<a href="/edit{number}.html">edit</a>]</span></h2>'
        + paragraphs_of(text[4 * number : 4 * number + 4])
        for number, title in enumerate(("History", "Construction", "Keepers", "Legacy"))
    )
    table = "".join(f"<tr><td>{1860 + number}</td><td>{row}</td></tr>" for number, row in enumerate(rows))
    sources = "".join(f"<li>^ Harbour Office, Records, volume {number}, 1873.</li>" for number in range(6))
    menu = f'<div id="mw-navigation"><h3>Navigation</h3>{links_of(MENU)}</div>'
    body = (
        f'{menu}<div class="mw-body"><h1>Holm Lighthouse</h1><table class="infobox"><tr><th>Height</th>'
        f"<td>31 m</td></tr></table>{paragraphs_of(text[16:])}{parts}<table>{table}</table>"
        f'<h2>References</h2><ol>{sources}</ol></div><div id="footer"><p>Text is under a licence.</p></div>'
    )
    return page_of("Holm Lighthouse - Encyclopedia", body), text + rows


def chinese() -> Saved:
    """A newspaper's article in Chinese, of which nothing is parted by spaces."""
    menu = links_of(("首页", "国际", "政治", "财经", "科技", "文化", "体育", "观点", "天气", "视频"))
    said = "".join(f'<div class="comment"><p>写得真好，第{n}次读到这样的文章。</p></div>' for n in range(8))
    body = (
        f'<div class="nav">{menu}</div><div class="content"><h1>岛上的灯</h1>{paragraphs_of(CHINESE)}</div>'
        f'<div class="comment-list"><h3>网友评论</h3>{said}</div><div class="footer">版权所有</div>'
    )
    return page_of("岛上的灯_海岸日报", body, "zh"), list(CHINESE)


def whole_book() -> Saved:
    """A book in one page as Project Gutenberg has them, with verse, a note and pictures."""
    parts = book_parts()
    heads = [part[2:] for part in parts if part.startswith("# ")]
    contents = "".join(f'<p><a href="#c{number}">{head}</a></p>' for number, head in enumerate(heads))
    verse = '<div class="poem"><span>The lamp is lit,<br></span><span>the sea is wide,<br></span></div>'
    body, number = "", 0
    for part in parts:
        if part.startswith("# "):
            picture = f'<a href="images/{number}.jpg"><img src="i.jpg"></a>'
            body += f'<h2 id="c{number}">{part[2:]}</h2>{picture}{verse}'
            number += 1
        else:
            body += paragraphs_of([part])
    note = '<div class="footnotes"><h3>NOTES</h3><p><a href="#r">[1]</a> See the records.</p></div>'
    title = "The Light on the Holm"
    return page_of(title, f"<h1>{title}</h1><h2>CONTENTS</h2>{contents}{body}{note}"), parts


def share_and_recall(read: str, text: Sequence[str]) -> tuple[float, float]:
    """How much of the words that were `read` are of the `text`, and how much of its words were read."""
    found, wanted = _words(read), _words(" ".join(text))
    both = (found & wanted).total()
    return both / max(1, found.total()), both / wanted.total()


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[\u4e00-\u9fff]|\w+", text.casefold()))
