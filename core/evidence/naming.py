"""Who a sentence of a summary speaks of: one that begins with a pronoun says it only behind the sentence that
names him. No model here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from core.text.ranking import terms

_LEADS = (
    r"(?:(?:then|later|finally|eventually|however|so|and|but|when|while|as|after|before|once|now)\b,?\s+)?"
)
_PRONOUN = r"(?:he|she|it|they|him|her|them|his|hers|its|their)\b"
_POINTS = re.compile(rf"{_LEADS}(?:{_PRONOUN}|(?:this|that|these|those)\b)", re.IGNORECASE)
_TIMES = r"(?:\w+(?:days?|uary|ember|ober)|March|April|May|June|July|August)\b"
_SOMEBODY = (
    rf"(?:(?:I|we|you|who|which|(?!{_TIMES})[A-Z][a-z]{{2,}})\b"
    r"|(?:and|but|or|for|that|as|than|when|if|because|while|what|where|before|after)\s(?:he|she|they)\b)"
)
_NO_PLACE = r"(?<!\bin)(?<!\bat)(?<!\bon)(?<!\bof)(?<!\bto)(?<!\bnear)(?<!\bfrom)(?<!\bthe)"
_IN_WHICH_HE = (  # "In three strides he", with nobody between
    r"(?:in|on|at|by|with|from|for|to|of|under|over|through|during|after|before|since|until|upon|into|there"
    r"|thus|yet|or|nor|where|how|why|never|perhaps|still|soon|\w+ly|\w+ing)\b"
    r"(?-i:(?:(?:\s(?:the\s)?[A-Z]\w+)+(?=,|\s(?:he|she|they)\b))?"
    rf"(?:(?!{_NO_PLACE}\s{_SOMEBODY})[^.;:!?]){{0,60}}?)\s(?:he|she|they)\b"
)
_NOUN = r"(?:the|an?|my|our|your|some|any|no|one|two|[A-Z][a-z]{2,})\b"
_I_AND_HE = (  # "I told him"
    rf"(?:I|we|you)\b(?-i:(?:\s(?!{_NOUN})[\w’']+){{1,6}}?)\s(?:he|she|him|her|his|hers)\b"
)
_NAME_AND_IT = (  # "Mara gave it to him"; not "Mara thought it best", "Mara saw a boat and took it"
    r"(?-i:(?:[A-Z][\w’'.-]+\s){1,3})"
    rf"(?-i:(?:(?!{_NOUN}|(?:[Hh]is|[Hh]er|[Tt]heir|[Tt]h(?:at|is|ese|ose))\b)[a-z’']+\s){{1,3}}?)"
    r"(?:him\b|them\b|her\b(?!\s\w)|it\b(?!\s(?:is|was|would|had|has|seemed|hard|best|better|necessary|clear"
    r"|difficult|easy|impossible|possible|strange|plain|wise|out)\b))"
)
_ONE_OF_THEM = (  # "The second was"
    r"(?:the\s)?(?:first|second|third|fourth|fifth|last|others?|latter|former|one|rest|two|three|both|neither"
    r"|either|another|none|each|some|most|many|few|this|that|these|those|\w+teen|twenty|thirty|forty|fifty"
    r"|sixty|four|five|six|seven|eight|nine|ten|eleven|twelve|\d+)\s"
    r"(?:was|is|were|are|had|has|have|did|would|could|came|went|of\s(?:them|these|those))\b"
)
_ENGLISH = rf"{_LEADS}(?:{_PRONOUN}|{_IN_WHICH_HE}|{_I_AND_HE}|{_NAME_AND_IT}|{_ONE_OF_THEM})"
_ER = r"(?:er|sie|es|ihn|ihm|ihnen)\b"
_GERMAN = (
    r"(?:(?:dann|da|später|schließlich|endlich|bald|nun|jetzt|und|aber|doch|denn|so|als|wenn|während|nachdem"
    r"|bevor|ehe|sobald|seit|bis|weil|ob|plötzlich|auch|nur|selbst)\b,?\s+)?"
    rf"(?:{_ER}|(?:ihre?|seine?|deren|dessen)[mnrs]?\b"
    # "Deshalb", "Davon": what for, of what
    r"|(?:des(?:halb|wegen)|dar(?:um|auf(?:hin)?|an|aus|in|über|unter)|d(?:a|or)(?:her|hin)"
    r"|da(?:bei|durch|für|gegen|mit|nach|neben|raufhin|von|vor|zu|zwischen)|trotzdem|dennoch|außerdem|dort)\b"
    # "Dieser war": "dieser alte Mann" says which
    r"|(?:dies(?:e[rsmn]?)?|jene[rsmn]?|beide|letztere[rsmn]?|erstere[rsmn]?)\s(?-i:(?=[a-zäöüß])"
    r"(?!(?:\w+e[rsmn]?\s){1,3}[A-ZÄÖÜ]))"
    r"|(?:d(?:er|ie|as)\s)?(?:andere|erste|zweite|dritte|letzte|eine|das|der|die|keine|einige|manche|viele)"
    r"[rsn]?\s(?:war|ist|sind|waren|hatte|hatten|hat|haben|wurden?|kam|kamen|ging|gingen"
    r"|von\s(?:ihnen|diesen|denen))\b"
    rf"|(?:ich|wir)\s\w+\s(?-i:(?:\w+\s)?{_ER})"  # "Ich sagte ihm"
    # "Am Abend ging er", with no name behind the verb
    r"|(?:in|im|am|an|auf|aus|bei|beim|mit|nach|vor|von|vom|zu|zum|zur|um|über|unter|durch|ohne|seit|hier|oft"
    r"|immer|nie|niemals|vielleicht|wieder|noch|wo|wie|warum|gestern|heute|morgens|abends|nachts|einmal"
    r"|eines|jede[nrs])\b(?-i:[^.,;:!?]{0,50}?\s[a-zäöüß]+\s(?:er|sie)\b))"
)
_IT = "[他她它牠祂]"
_CHINESE = (
    rf"(?:但是?|可是?|然而|不过|而且|并且|而|当|如果|因为|虽然|忽然|突然|后来|不久|最后|终于|现在|只有)?，?(?:{_IT}"
    r"|于是|因此|因而|所以|接着|随后|随即|然后|便|遂|只见|这[是才就使让种样些时]|那[是就样些时]|[此其那](?:人|后|时|中)"
    r"|其[余他实]|前者|后者|两人|二人|第[二三四五六][个位封]?是"
    # "第二天她", "我告诉他"
    rf"|(?:[第次当那这一某每][^，。；：！？]{{0,3}}[天日年月晚夜次]|早上|早晨|晚上|夜里|中午|下午|傍晚|从此|在[^，。；：！？]{{1,9}})，?{_IT}"
    rf"|我们?[^，。；：！？]{{1,4}}{_IT})"
)
_WITHOUT_NAME = re.compile(rf"{_ENGLISH}|{_GERMAN}|{_CHINESE}", re.IGNORECASE)
_WORD = (
    r"(?!(?:in|on|at|with|by|to|from|and|or|was|were|is|are|had|have|already|present|days|parts|pages|letters"
    r"|lines|notes|who|whom|that|which|of|I|we|he|she|they|it|the|an?|no|his|her|my|our)\b)[\w’'-]++"
)
_ENDS_THERE = (  # not "those boats that", "the three mates—Starbuck", "the second assistant, William Tate"
    r"(?!(?:\s(?!(?:was|were|is|are|had|has)\b)[\w’'-]++){0,2}?"
    r"(?:,?\s(?:who|whom|whose|which|that|of|where|when|as)\b|,\s(?-i:[A-Z])|\s?[—–:(]))"
)
_OF_SEVERAL = (
    r"(?:two|three|four|five|six|seven|others?|same|latter|former|second|third|fourth|fifth|sixth)\s"
    r"(?!(?:times?|day|morning|hand|side|end|way|floor|storey|hundred|thousand|\w+est)\b)"
)
_POINTS_INSIDE = re.compile(  # "in those years", "by that tiller", "hid the three men", "such people"
    rf"\b(?:those|these)\s{_WORD}{_ENDS_THERE}"
    r"|(?:\b(?:in|on|at|by|from|to|of|with|for|after|before|since|until|during)\s|\A)"
    rf"that\s{_WORD}{_ENDS_THERE}"
    rf"|(?<!\bone to )(?<!\bone from )\bthe\s{_OF_SEVERAL}{_WORD}{_ENDS_THERE}"
    r"|\bsuch\s(?:[\w-]+\s)?(?:people|men|women|children|\w+[^s\W]s)\b(?!\s(?:as|that)\b)"
    r"|\bthat\s(?:was|is)\s(?:the\scase|so|all|why|how)\b"
    r"|\A(?:of|among|between)\s(?:his|her|its|their)\b",
    re.IGNORECASE,
)
_OF_A_PERSON = re.compile(r"(?:(he|she)|(his|her))\b\s+(?=\w)", re.IGNORECASE)
_TITLE = r"(?:(?:Mr|Mrs|Ms|Dr|St)\.|Miss|Captain|Sir|Lady|Lord|Aunt|Uncle|Father|Professor)"
TITLES = frozenset(terms("Mr Mrs Ms Dr St Miss Captain Sir Lady Lord Aunt Uncle Father Professor"))
_SUBJECT = re.compile(rf"(?:{_TITLE}\s+)?(?:[A-Z][\w’'-]+)(?:\s+[A-Z][\w’'-]+)*")
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b")
_QUOTED = re.compile(r"[“\"][^”\"]*[”\"]")


def points_back(sentence: str) -> bool:
    """Whether it begins with a word that stands for somebody, or something, named before."""
    return _POINTS.match(sentence) is not None


def needs_another(sentence: str) -> bool:
    """Whether who, or what, it speaks of is named in a sentence before it: behind any other it says it of
    somebody else. "This letter" says which, "in those years" does not; "In three strides he" and "I told him"
    begin with no such word.
    """
    return bool(is_nameless(sentence) or _POINTS_INSIDE.search(unquoted(sentence)))


def is_nameless(sentence: str) -> bool:
    """Whether it begins as one whose subject stands in the sentence before: "He", "In three strides he"."""
    return _WITHOUT_NAME.match(sentence) is not None


def in_first_person(sentence: str) -> bool:
    """Whether it says "I" outside of what it quotes: a telling is told in the third person."""
    return _FIRST_PERSON.search(unquoted(sentence)) is not None


def subject_name(sentence: str, is_name: Callable[[str], bool]) -> str | None:
    """The name that the sentence begins with, title and all; None where it begins with none, or has another
    one, too: a pronoun behind it may mean either.
    """
    names = [one for one in _SUBJECT.finditer(sentence) if is_name(one.group().split()[-1])]
    last = {one.group().split()[-1] for one in names}
    sole = names and names[0].start() == 0 and len(last) == 1
    return names[0].group() if sole else None


def named(sentence: str, before: str, is_name: Callable[[str], bool]) -> str | None:
    """`sentence` with the name that its first word stands for: that of the sentence right `before` it, if it
    is certain (`subject_name`). None where it is not.
    """
    pronoun = _OF_A_PERSON.match(sentence)
    name = subject_name(before, is_name) if pronoun else None
    return f"{name if pronoun[1] else name + '’s'} {sentence[pronoun.end() :]}" if name else None


def unquoted(sentence: str) -> str:
    """What the sentence says itself, without what it quotes."""
    return _QUOTED.sub(" ", sentence)
