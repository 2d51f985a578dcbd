"""Judging reading: the scores by hand, the cases by what they may not contain, the figures by their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quality import quality
from benchmarks.quality.reading import cases, figures, run, scores
from core.errors import UserError
from core.events import Finished, SourceSpan, Stats
from core.evidence.support import UNFOUND

TALES = [
    {
        "story": name,
        "first_section": 1,
        "sections": [f"{name} met {animal}s.\n\nIt was late." for animal in animals],
        "questions": [
            {"question": f"Whom did {name} meet ({n})?", "answers": [f"{animal}s"], "sections": [n]}
            for n, animal in enumerate(animals, 1)
        ],
    }
    for name, animals in (("Ann", ["lion", "tiger", "eagle", "whale"]), ("Bob", ["robin", "swan"]))
]


def test_f1_counts_shared_words_and_takes_the_best_answer():
    """Without articles, case and punctuation: 2 of 3 words said, 2 of 2 wanted."""
    assert scores.f1("The big red cow.", ["a horse", "Big cow"]) == pytest.approx(0.8)
    assert scores.f1("A horse", ["cow"]) == 0
    assert scores.contains("It was the big cow, she said.", ["a big cow"])
    assert not scores.contains("It was a bigger cow", ["big cow"])


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("The passage does not say.", True),
        ("the passage does not say who", True),
        ("", True),
        ("The passage says so.", False),
    ],
)
def test_a_refusal_is_known_by_its_words(said: str, refused: bool):
    """A model that says more behind it has refused all the same."""
    assert scores.said_refusal(said, "The passage does not say.") is refused


def test_rouge_counts_each_gram_as_often_as_both_have_it():
    """Bigrams of "the cat sat" and "the cat ran": one of two each way; a second writer may be nearer."""
    assert scores.rouge("The cat sat", ["the cat ran"], 2) == pytest.approx(0.5)
    assert scores.rouge("The cat sat", ["dogs", "the cat sat"], 1) == 1
    assert scores.rouge("the the the", ["the cat"], 1) == pytest.approx(0.4)


def test_unknown_names_are_counted_inside_sentences():
    """The first word of a sentence has its capital anyway."""
    assert scores.unknown_names("Then came Ann. Later Bob and Carl left.", "ann met Bob") == (1, 3)


@pytest.mark.parametrize(
    ("below", "counted"),
    [
        ("", (0, 0)),
        ("Chapter 2:\n> Then she saw the sea. It was grey,", (1, 1)),  # a line ends elsewhere in the book
        ("Chapter 2:\n> Then she saw the …", (1, 1)),
        ("Chapter 2:\n> … she saw the sea. It …", (1, 1)),
        ("Chapter 2:\n> Then she saw the lake …", (1, 0)),
        ("Chapter 2:\n> Then she saw a sea.", (1, 0)),
        ("Chapter 2:\n> hen she saw the sea.", (1, 0)),
        ("Chapter 1:\n> Ann ran.\n\nChapter 2:\n> It was blue.", (2, 1)),
    ],
)
def test_a_quotation_is_exact_when_its_words_stand_in_the_text(below: str, counted: tuple[int, int]):
    """Each counts, not each answer; what the answer itself says is no quotation."""
    text = "Ann ran.\n\nThen she saw\nthe sea. It was  grey, and wide."
    assert scores.quotes(f"> She ran.\n\n{below}", text) == counted


def test_a_summary_in_circles_has_few_runs_of_words_of_its_own():
    """Sixteen words three times over have 16 runs of four in 45; words of their own have as many as runs."""
    said = [f"word{number}" for number in range(48)]
    assert scores.circling(" ".join(said[:16] * 3))
    assert not scores.circling(" ".join(said[:30] * 2)) and not scores.circling(" ".join(said))


@pytest.mark.parametrize(
    ("said", "cut"),
    [
        ("He went. She", True),
        ("He went, “and then,” he said,", True),
        ("At three (or four", True),
        ("He went.", False),
        ("“Who goes?” ", False),
        ('She called it a "perfume."', False),
        ("他走了。", False),
    ],
)
def test_a_summary_in_the_middle_of_a_sentence_has_no_end(said: str, cut: bool):
    """Marks that close behind the full stop belong to it."""
    assert scores.mid_sentence(said) is cut


HEARD = [
    (2.0, -1.0, -9.0, False),
    (1.0, -2.0, -8.0, False),
    (3.0, -3.0, -7.0, True),
    (9.0, -4.0, -6.0, False),
]


def test_by_words_alone_another_passage_is_first():
    """The rows are in the model's order, where the right one is third."""
    assert not scores.first_by_words(HEARD, 1)
    assert scores.first_by_words(HEARD, 2) and not scores.first_by_words([], 3)
    assert scores.first_by_words([(1.0, False), (2.0, True)], 1), "of a model that puts none in order"


def test_questions_about_another_place_have_no_answer_in_the_passage():
    """Neither a neighbour's question, whose answer may stand here too, nor one of the gold section."""
    found = cases.with_passage(TALES, None, 0)
    for one in found:
        answers = [
            a
            for tale in TALES
            for q in tale["questions"]
            for a in q["answers"]
            if q["question"] == one.question
        ]
        assert (answers[0] in one.text) is (one.kind == "own")
    kinds = [one.kind for one in found]
    assert kinds.count("own") == kinds.count("foreign") == 6
    assert kinds.count("elsewhere") == 4  # two sections of Ann's four have two that are far, two have one
    assert cases.with_passage(TALES, None, 0) == found != cases.with_passage(TALES, None, 1)


def test_the_gold_place_of_a_whole_story_is_where_its_section_stands():
    """Sections are put in paragraphs; the ranges must hold the section's words."""
    for one in cases.of_stories(TALES, None, 0):
        (start, end) = one.gold[0]
        assert one.answers[0] in one.text[start:end] and one.text[start:end].endswith("late.")


def test_a_sample_is_part_of_the_whole():
    """So many of the same questions."""
    few = {(q.story, q.question) for q in cases.of_stories(TALES, 3, 0)}
    assert len(few) == 3 and few < {(q.story, q.question) for q in cases.of_stories(TALES, None, 0)}


def test_questions_about_books_say_which_are_not_answered(tmp_path: Path):
    """Both files' questions, in one form."""
    fact = {"question": "Who?", "answer_keywords": ["ann"]}
    (tmp_path / "facts.json").write_text(json.dumps({"books": [{"file": "b.txt", "facts": [fact]}]}))
    line = {"book": "a.txt", "question": "When?", "answer": None, "keywords": []}
    (tmp_path / "books.jsonl").write_text(json.dumps(line))
    found = cases.book_questions(tmp_path, tmp_path)
    assert [(one["book"], one["keywords"]) for one in found] == [("a.txt", []), ("b.txt", ["ann"])]
    assert found[0]["path"] == tmp_path / "a.txt"


def test_a_tenth_of_the_encyclopedias_passages_is_asked_about(tmp_path: Path):
    """What is asked about in the others may be taught."""
    asked = [{"question": "Who?", "answers": ["Ann"]}, {"question": "Why?", "answers": []}]
    lines = [{"title": "T", "passage": f"Passage {n}.", "questions": asked} for n in range(21)]
    (tmp_path / "squad2.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = cases.of_passages(tmp_path, None, 0)
    assert sorted({one.text for one in found}) == ["Passage 0.", "Passage 10.", "Passage 20."]
    assert sorted({(one.question, one.kind) for one in found}) == [("Who?", "own"), ("Why?", "unsaid")]
    assert len(cases.of_passages(tmp_path, 4, 0)) == 4


def test_a_run_that_ends_early_has_a_sample_of_the_stories():
    """In the order of their names a run cut short would have judged the first ones only."""
    tales = [{**TALES[1], "story": f"{number:02d}"} for number in range(20)]
    for asked in (cases.of_stories(tales, None, 0), cases.with_passage(tales, None, 0)):
        order = [one.story for one in asked]
        grouped = list(dict.fromkeys(order))
        assert sorted(order, key=grouped.index) == order, "questions about one story in a row"
        assert grouped != sorted(grouped) and sorted(grouped) == [tale["story"] for tale in tales]


def test_a_question_without_answer_or_section_is_not_asked():
    """Other splits may have some; the best F1 over no answers is none."""
    bare = {"question": "Why?", "answers": [], "sections": [1]}
    lost = {"question": "How?", "answers": ["so"], "sections": [99]}
    tales = [{**tale, "questions": [*tale["questions"], bare, lost]} for tale in TALES]
    asked = [*cases.of_stories(tales, None, 0), *cases.with_passage(tales, None, 0)]
    assert not {"Why?", "How?"} & {one.question for one in asked if one.kind == "own"}


class _Answers:
    """In the program's place: answers everything with one word."""

    def __init__(self, model: str, mode: str, *, folder: Path | None) -> None:
        self.name = model

    def of_gold(self, one: cases.Question) -> dict:
        own = {"f1": 1.0, "contains": True} if one.answers else {}
        return {"kind": one.kind, "question": one.question, "said": "lion", "refused": False, **own}

    def of_story(self, one: cases.Question) -> dict:
        found = {"passage_at_1": False, "passage_at_3": True, "heard": HEARD, "quotes": 2, "exact": 1}
        return {"question": one.question, "said": "lion", "f1": 0.5, **found}

    def of_summaries(self, one: cases.Story) -> dict:
        return {"story": one.name, "said": "It was.", "rouge1": 0.3, "rouge2": 0.1} | NAMELESS


NAMELESS = {"unknown_names": 0, "names": 0}
KEYS = {
    "f1_gold",
    "f1_story",
    "answered_foreign",
    "refused_own",
    "passage_at_1",
    "passage_at_3",
    "rouge1",
    "rouge2",
    "unknown_names",
    "quotes_exact",
    "words_at_1",
    "words_at_3",
    "summary_circling",
    "summary_mid_sentence",
}


def _judged(folder: Path, *options: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Program", _Answers)
        patch.setattr("sys.argv", ["quality", "--reading", str(folder), "--split", "new", "--json", *options])
        quality.main()


@pytest.mark.parametrize("minutes", ["60", "0.000000001"])
def test_the_last_line_has_every_figure(minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Of any split and in any time: each part has its share, and the last is not left out."""
    (tmp_path / "fairytaleqa-new.jsonl").write_text("\n".join(map(json.dumps, TALES)))
    story = {"story": "s", "text": "A tale.", "questions": [{"summaries": ["It was."]}]}
    (tmp_path / "squality-new.jsonl").write_text(json.dumps(story))
    _judged(tmp_path, "--minutes", minutes)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(line) >= KEYS
    assert minutes != "60" or all(isinstance(line[key], int | float) for key in KEYS)
    assert line["asked"] == {"gold": 16, "story": 6, "summaries": 1}
    assert line["cases"] == (line["asked"] if minutes == "60" else {"gold": 1, "story": 1, "summaries": 1})


def test_a_split_that_is_not_there_is_named(tmp_path: Path):
    """Before the model is loaded."""
    with pytest.raises(UserError, match="fairytaleqa-new.jsonl"):
        _judged(tmp_path)


def test_figures_name_what_was_not_run():
    """None, not nought: nothing was measured there."""
    rows = {
        "gold": [
            {"kind": "own", "f1": 0.5, "contains": True, "refused": False},
            {"kind": "own", "f1": 0.0, "contains": False, "refused": True},
            {"kind": "foreign", "refused": False},
            {"kind": "elsewhere", "refused": True},
        ]
    }
    found = figures.reading_figures(rows)
    assert (found["f1_gold"], found["refused_own"]) == (0.25, 0.5)
    assert (found["answered_foreign"], found["answered_elsewhere"]) == (1, 0)
    assert found["f1_story"] is None and found["rouge1"] is None
    (table,) = figures.reading_tables(found)
    assert len(table.rows) == 5 and table.notes == ("4 questions with a passage.",)


def test_figures_of_quotations_words_and_summaries():
    """Quotations are summed, not averaged by row; rows that were kept without them count for nothing."""
    right, wrong = (1.0, 0.0, 0.0, True), (2.0, 0.0, 0.0, False)
    judged = {"f1": 0.5, "passage_at_1": True, "passage_at_3": True}
    summary = {"rouge1": 0.4, "rouge2": 0.1} | NAMELESS
    books = {"keywords": [], "refused": True}
    rows = {
        "story": [
            judged | {"heard": [right, wrong], "quotes": 1, "exact": 0},
            judged | {"heard": [right, (0.5, 0.0, 0.0, False)], "quotes": 0, "exact": 0},
            judged,
        ],
        "books": [books | {"quotes": 3, "exact": 3}, books],
        "summaries": [
            summary | {"said": said} for said in ("It was so.", "so it was " * 9, "Ann ran.", "No")
        ],
    }
    found = figures.reading_figures(rows)
    assert found["quotes_exact"] == 0.75
    assert (found["words_at_1"], found["words_at_3"]) == (0.5, 1)
    assert (found["summary_circling"], found["summary_mid_sentence"]) == (0.25, 0.5)
    (table,) = figures.reading_tables(found)
    assert "`summaries: own`" in table.notes[1] and "nearest reference" in table.notes[1]
    assert figures.reading_figures({})["quotes_exact"] is figures.reading_figures({})["words_at_1"] is None


STORY = "Ann met a lion. It was late.\n\nThen she\nwent home."


class _Asked(run.Program):
    """The program, with what it says given."""

    def __init__(self, said: str) -> None:
        self.said, self.mode, self._read = said, "", lambda path: cases.document("b", STORY)

    def _done(self, ask):
        return Finished("stop", self.said, Stats(), stands=(SourceSpan(0, 7, 0, 9, borne_out=False),)), 1.0

    def _found(self, ask):
        return [], []


def test_a_row_counts_its_quotations():
    """In the text that was asked about: of a story, and of a book."""
    program = _Asked("A lion.\n\nThe text:\n> Then she went …\n\nThe text:\n> Ann met a tiger.")
    story = program.of_story(cases.Question("own", "s", STORY, "Whom?", ("a lion",), ((0, 15),)))
    book = program.of_books({"book": "b.txt", "path": Path("b.txt"), "question": "Whom?", "keywords": []})
    assert [(row["quotes"], row["exact"]) for row in (story, book)] == [(2, 1)] * 2
    assert not story["marked"] and not book["marked"], "what is not borne out bears no mark"


def test_wrong_answers_and_marks_are_counted_of_all_questions_about_books():
    """A right answer, one that is wrong, one to what the book does not say, and a refusal; two have marks."""
    asked = {"keywords": ["lion"], "in_three": True, "quotes": 0}
    books = [
        {**asked, "refused": False, "right": True, "marked": True},
        {**asked, "refused": False, "right": False, "marked": False},
        {"keywords": [], "refused": False, "marked": True, "quotes": 0},
        {**asked, "refused": True, "right": False, "marked": False},
    ]
    found = figures.reading_figures({"books": books})
    assert (found["books_wrong"], found["marked_right"], found["marked_wrong"]) == (0.5, 1.0, 0.5)
    assert found["books_right"] == pytest.approx(1 / 3, abs=1e-4)


def test_what_is_quoted_where_nothing_is_given_counts_of_what_the_books_answer():
    asked = {"keywords": ["lion"], "in_three": True, "quotes": 0, "right": False, "marked": False}
    books = [
        {**asked, "refused": True, "shown": True},
        {**asked, "refused": True, "shown": False},
        {**asked, "refused": False, "shown": True},
        {"keywords": [], "refused": True, "marked": False, "quotes": 0},
    ]
    assert figures.reading_figures({"books": books})["books_shown"] == 0.5


def test_a_passage_of_an_encyclopedia_is_asked_about_as_a_pasted_text_is():
    """Half of the questions look answerable and are not."""
    own = cases.Question("own", "1. T", STORY, "Whom?", ("a lion",))
    rows = [
        _Asked("A lion.\n\nThe text:\n> Ann met a lion.").of_squad2(own),
        _Asked(f"{UNFOUND} Nearest passages:\n\nThe text:\n> Ann met a lion.").of_squad2(own),
        _Asked("A goat.").of_squad2(cases.Question("unsaid", "1. T", STORY, "When?", ())),
    ]
    found = figures.reading_figures({"squad2": rows})
    assert (found["f1_squad2"], found["refused_squad2"], found["answered_squad2"]) == (0.5, 0.5, 1.0)


ACROSS = "The lion slept. He ate a goat. | He drank wine. Then he sang of the lion. "
CUT = ACROSS.index("|")
HALVES = [(0, CUT), (CUT, len(ACROSS))]


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        (["a goat"], {0}),  # though the smaller part of the section
        (["wine"], {1}),
        (["the goat", "some wine"], {0, 1}),  # either writer may be right
        (["it was the lion"], {1}),  # the word stands in the first half, too, but outside of the section
        (["bread"], {1}),  # in other words than the section's: most of it lies there
    ],
)
def test_the_part_of_a_section_that_has_the_answer_is_right(answers: list[str], right: set[int]):
    """Wherever passages end, and however much of the section lies in each."""
    section = (ACROSS.index("He ate"), len(ACROSS))
    assert scores.holding(ACROSS, [section], answers, HALVES) == {HALVES[at] for at in right}


def test_every_section_that_holds_an_answer_counts():
    assert scores.holding(ACROSS, [(0, 5), (CUT + 2, CUT + 9)], ["he"], HALVES) == set(HALVES)
