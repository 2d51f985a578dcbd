"""What a mark says of a sentence, and what it must not let through."""

from __future__ import annotations

import gc
import weakref

import pytest

from core.documents.document import Document, Section
from core.events import AttentionEvidence
from core.evidence.attention_evidence import strongest
from core.evidence.support import Evidence

PARAGRAPHS = (
    "Ogilvy, the astronomer, lived at Ottershaw and looked through his telescope every night.",
    "Early in the morning poor Ogilvy found the cylinder on the common near the pits.",
    "Henderson came from London. He ran to the railway station to telegraph the news to his editor.",
    "The brother of Henderson had never owned a horse. In June 1894 he walked 40 miles to Leatherhead.",
    "The Martians were slain by the bacteria against which their systems were unprepared.",
    "I should never have heard of it had I not met Stent, the well-known geologist, at Chobham.",
)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    filler = (
        " ".join(f"The keeper counted sheep number {at} upon the quiet hill." for at in range(30)) + "\n\n"
    )
    text = "".join(one + "\n\n" + filler for one in PARAGRAPHS)
    return Evidence(Document("Mars", "", "txt", text, (Section("One", 0, len(text)),)))


def text_of(evidence: Evidence) -> str:
    return evidence._text


def state(evidence: Evidence, sentence: str) -> str:
    (mark,) = evidence.marks(sentence)
    return mark.state


def test_word_for_word_is_quoted(evidence):
    """The place of a quotation is exact, however its quotes and spaces are written."""
    (mark,) = evidence.marks("He ran to the railway  station to telegraph the news to his editor.")
    assert mark.state == "quoted"
    text = text_of(evidence)[slice(*mark.place)]
    assert text == "He ran to the railway station to telegraph the news to his editor"


@pytest.mark.parametrize(
    ("sentence", "place"),
    [
        ("Ogilvy was an astronomer who lived at Ottershaw.", "Ogilvy, the astronomer"),
        ("The cylinder on the common was found by Ogilvy in the morning.", "found the cylinder"),
        ("Bacteria slew the unprepared Martians.", "slain by the bacteria"),
        # the book denies something else about the man
        ("Stent was a well-known geologist at Chobham.", "not met Stent"),
        ("3. Ogilvy, an astronomer, lived at Ottershaw.", "Ogilvy, the astronomer"),  # an item's number
        ("Henderson's brother walked 40 miles in June 1894.", "walked 40 miles"),
    ],
)
def test_sentence_in_other_words_agrees_at_its_place(evidence, sentence, place):
    (mark,) = evidence.marks(sentence)
    assert mark.state == "agrees"
    assert place in text_of(evidence)[slice(*mark.place)]


@pytest.mark.parametrize(
    "refusal",
    [
        "The passage does not say.",
        "The book does not seem to say. No passage shares a word with the question: ask with names or words.",
        "What may be read of the book does not seem to say.",
    ],
)
def test_saying_that_the_book_does_not_say_is_no_sentence_to_be_found_in_it(evidence, refusal):
    """Below it stood "no place in the book was found for its 1 sentence", and its circle led anywhere."""
    assert evidence.marks(refusal, "Who stole the picture?") == ()
    (after,) = evidence.marks(f"{refusal.split('. ')[0].rstrip('.')}.\n\nOgilvy was an astronomer.")
    assert after.end > len("The passage does not say.")


@pytest.mark.parametrize(
    "sentence",
    [
        "Henderson was an astronomer who lived at Ottershaw.",  # another person of the book
        "Gatsby, the astronomer, lived at Ottershaw.",  # a name the book does not know
        "Ogilvy did not live at Ottershaw as an astronomer.",  # denied
        "Henderson's brother owned a horse.",  # the denial left out
        "Henderson's brother walked 400 miles in June 1894.",  # another number
        "The committee approved the quarterly budget.",  # nothing of it
        "A lighthouse was struck by a whale at dawn.",
    ],
)
def test_what_the_book_does_not_say_has_no_mark(evidence, sentence):
    """A mark on a wrong sentence is worse than none: swapped names, denials and numbers must fall through."""
    assert state(evidence, sentence) == "nothing"


@pytest.mark.parametrize(
    ("told", "agrees", "swapped"),
    [
        (
            "Émile wohnte lange Jahre in der alten Mühle am Fluss.",
            "In der alten Mühle am Fluss wohnte Émile viele Jahre.",
            "In der alten Mühle am Fluss wohnte Łukasz viele Jahre.",
        ),
        (
            "Пьер много лет жил в старом доме у широкой реки.",
            "В старом доме у широкой реки долго жил Пьер.",
            "В старом доме у широкой реки долго жил Андрей.",
        ),
    ],
)
def test_names_of_other_alphabets_are_names(told: str, agrees: str, swapped: str):
    text = told + "\n\n" + "\n\n".join(f"{number} 0 0 0." for number in range(200))
    own = Evidence(Document("", "", "txt", text, (Section("", 0, len(text)),)))
    assert state(own, agrees) == "agrees"
    assert state(own, swapped) == "nothing"


@pytest.mark.parametrize(
    ("question", "borne_out"),
    [("What had Henderson's brother never owned?", True), ("What had Henderson's brother owned?", False)],
)
def test_a_denial_may_stand_in_the_question(evidence, question: str, borne_out: bool):
    """What he had never owned is "a horse", and what he had owned is not."""
    (passage,) = evidence.nearest(question, 1)
    assert evidence.support("A horse.", passage, question).bears_out is borne_out
    assert not evidence.support("Gatsby's horse.", passage, question).bears_out


@pytest.mark.parametrize(
    ("answer", "borne_out"),
    [
        ("Counting sheep.", True),
        ("Looks through his telescope.", True),
        ("Gatsby.", False),
        ("Gatsbying.", False),
    ],
)
def test_another_form_of_a_word_of_the_book_is_no_unknown_name(evidence, answer, borne_out):
    """A short answer begins with a verb, and the capital is its place's: the book has "counted"."""
    passage = evidence.passages[0]
    assert evidence.support(answer, passage).bears_out is borne_out


def test_nothing_still_names_the_nearest_passage(evidence):
    """A reader who doubts gets the place to look at."""
    (mark,) = evidence.marks("Henderson was an astronomer who lived at Ottershaw.")
    assert mark.place is None
    assert "Ottershaw" in text_of(evidence)[mark.nearest.start : mark.nearest.end]
    assert evidence.marks("Xyzzy plugh.")[0].nearest is None


def test_each_sentence_has_its_own_mark(evidence):
    answer = (
        "Ogilvy was an astronomer who lived at Ottershaw. He liked jazz.\n\n"
        "- Bacteria slew the unprepared Martians."
    )
    marks = evidence.marks(answer)
    assert [answer[mark.start : mark.end] for mark in marks] == [
        "Ogilvy was an astronomer who lived at Ottershaw.",
        "He liked jazz.",
        "- Bacteria slew the unprepared Martians.",
    ]
    assert [mark.state for mark in marks] == ["agrees", "nothing", "agrees"]


def test_a_few_common_words_are_no_quotation(evidence):
    """ "He ran to the" stands in any book."""
    assert state(evidence, "He ran to the.") == "nothing"


def test_answer_of_one_word_is_held_against_the_book_with_its_question(evidence):
    """ "Bacteria." alone agrees with any page that has the word."""
    (mark,) = evidence.marks("Bacteria.", "What slew the Martians, unprepared as their systems were?")
    assert mark.state == "agrees"
    assert "slain by the bacteria" in text_of(evidence)[slice(*mark.place)]
    assert state(evidence, "Bacteria.") == "nothing"
    (other,) = evidence.marks("Henderson.", "What slew the Martians, unprepared as their systems were?")
    assert other.state == "nothing"


def test_question_finds_its_passages(evidence):
    (first, *_) = evidence.nearest("Who found the cylinder on the common?")
    assert "cylinder" in text_of(evidence)[first.start : first.end]
    assert evidence.nearest("xyzzy") == []


@pytest.mark.parametrize("text", ["", "   \n\n  ", "…", "1 2 3"])
def test_any_text_is_fine(evidence, text):
    """Answers are whatever a model writes."""
    assert all(mark.state == "nothing" for mark in evidence.marks(text))


def test_book_without_words_has_no_evidence():
    empty = Evidence(Document("", "", "txt", "", (Section("", 0, 0),)))
    assert empty.marks("A sentence about it.")[0].state == "nothing"
    assert empty.nearest("A question?") == []


@pytest.mark.parametrize(
    ("answer", "borne_out"),
    [
        ("Ogilvy, the astronomer.", True),
        ("at Ottershaw", True),
        ("happy", True),  # of a word or two, a feeling say, the words cannot tell
        ("Stent, the geologist.", False),  # a name of another passage
        ("the great comedian of vaudeville theatres", False),
        ("He looked through it 95 times.", False),
    ],
)
def test_one_passage_bears_an_answer_out_or_does_not(evidence, answer: str, borne_out: bool):
    (passage,) = evidence.nearest("Who is Ogilvy, the astronomer of Ottershaw?", 1)
    found = evidence.support(answer, passage, "Who is Ogilvy?")
    assert found.bears_out == borne_out
    assert 0 <= found.own <= 1 and passage.start <= found.place[0] < found.place[1] <= passage.end


@pytest.mark.parametrize(
    ("answer", "borne_out"),
    [("Eight.", False), ("Eighty-eight.", True), ("Her brother.", False), ("Two sisters.", True)],
)
def test_a_part_of_a_word_is_not_what_the_book_says(answer: str, borne_out: bool):
    text = "The widow was eighty-eight, had two sisters and a brother-in-law, and lived in a sea-house."
    found = Evidence(Document("B", "", "txt", text, (Section("One", 0, len(text)),), sha256="h"))
    (passage,) = found.passages
    assert found.support(answer, passage, "How old is the widow?").bears_out == borne_out


def test_a_question_word_is_no_name_that_the_book_lacks(evidence):
    assert evidence.unknown_names("<b>Who</b> is Mortimer?") == ["Mortimer"]


def test_a_noun_of_a_german_question_is_no_name_that_the_book_lacks(evidence):
    """German writes all of them large: "Not in this book: Papagei"."""
    assert evidence.unknown_names("Was sagt der alte Papagei im Garten zu seiner Tochter Mathilde?") == [
        "Mathilde"
    ]
    assert evidence.unknown_names("Welche Farbe hat Mortimers Hut?") == ["Mortimers", "Hut"], "not known"
    assert evidence.unknown_names("Did his brother die in Leeds or in Ulm?") == ["Leeds", "Ulm"]


def test_where_a_passage_is_about_a_question(evidence):
    (passage,) = evidence.nearest("Who is Ogilvy, the astronomer of Ottershaw?", 1)
    start, end = evidence.support("", passage, "Who lived at Ottershaw?").place
    assert text_of(evidence)[start:end].startswith("Ogilvy, the astronomer")
    evidence.support("", passage, "")  # nothing to look for is no error


def test_a_chapters_title_is_no_part_of_the_place_unless_it_is_all_of_it():
    """A quotation that ran on from the heading began with a sentence the book does not have."""
    text = "Twenty-Three Clocks\n\nThe railway owned twenty-three clocks. Pell was responsible for them."
    evidence = Evidence(Document("B", "", "txt", text, (Section("Twenty-Three Clocks", 0, len(text)),)))
    (passage,) = evidence.passages
    place = evidence.support("Twenty-Three", passage, "How many clocks did the railway own?").place
    assert text[slice(*place)] == "The railway owned twenty-three clocks."
    bare = Evidence(Document("B", "", "txt", text[:19], (Section("Twenty-Three Clocks", 0, 19),)))
    assert bare.support("Clocks", bare.passages[0]).place == (0, 19)


def test_what_quotes_the_book_or_says_nothing_of_it_gets_no_mark(evidence):
    """A circle behind "The book does not seem to say" would say that this, too, stands nowhere."""
    found = "Ogilvy, the astronomer, lived at Ottershaw and looked through his telescope every night."
    answer = f"At Ottershaw he lived, that astronomer.\n\nChapter 1, p. 3:\n> {found}"
    (mark,) = evidence.marks(answer)
    assert mark.end == answer.index("\n")
    refused = f"The book does not seem to say. Nearest passages:\n\nChapter 1, p. 3:\n> {found}"
    assert evidence.marks(refused) == ()
    assert len(evidence.marks("He said: the astronomer lived there.\n\nWhat: ever.")) == 2


def test_a_heading_is_no_sentence_to_be_borne_out(evidence):
    """Of a summary that broke off, whose sentences are looked up as those of any answer."""
    told = "Ogilvy, the astronomer, lived at Ottershaw."
    answer = f"## The eve of the war\n\n{told}\n\n### The falling star"
    (mark,) = evidence.marks(answer)
    assert answer[mark.start : mark.end] == told
    assert len(evidence.marks(f"# {told}\nHe looked through his telescope.")) == 2, "no line of its own"


def starting(evidence: Evidence, words: str) -> int:
    """Where the passage begins that has these words."""
    at = text_of(evidence).index(words)
    return max(one.start for one in evidence.passages if one.start <= at)


def test_where_the_model_looked_decides_between_passages_that_hold_as_much(evidence):
    """Words that stand in several passages alike: the reader is sent where the model was."""
    said = "The keeper counted sheep upon the hill."
    by_words = evidence.marks(said)[0]
    there = starting(evidence, "Ogilvy, the astronomer")
    assert by_words.nearest.start != there and by_words.reasons == ("words",)
    mark = evidence.marks(said, looked=[AttentionEvidence(0, ((there, 0.6), (by_words.nearest.start, 0.1)))])[
        0
    ]
    assert mark.nearest.start == there and mark.reasons == ("looked",)
    assert (mark.state, mark.score) == ("agrees", by_words.score)


def test_a_look_makes_no_sentence_true(evidence):
    """The model looked at Ogilvy's passage and wrote something else: no mark says that they agree."""
    there = starting(evidence, "Ogilvy, the astronomer")
    for said in ("Henderson was an astronomer who lived at Ottershaw.", "Ogilvy bought a yacht in Naples."):
        (mark,) = evidence.marks(said, looked=[AttentionEvidence(0, ((there, 0.9),))])
        assert mark.state == "nothing" and mark.nearest.start == there and "looked" in mark.reasons


def test_a_look_belongs_to_its_sentence(evidence):
    """A look of the next sentence, or of the question, must not move a mark."""
    there = starting(evidence, "The Martians were slain")
    text = "The keeper counted sheep upon the hill. Ogilvy lived at Ottershaw as an astronomer."
    moved = evidence.marks(
        text, looked=[AttentionEvidence(None, ((there, 0.9),)), AttentionEvidence(1, ((there, 0.9),))]
    )
    assert moved[0] == evidence.marks(text)[0]


def test_nearest_passages_by_words_and_by_looks(evidence):
    """Names in the question lead; a look decides where words say little, and alone where they say nothing."""
    martians = starting(evidence, "The Martians were slain")
    look = AttentionEvidence(None, ((martians, 0.6), (starting(evidence, "Henderson came"), 0.1)))
    named = evidence.nearest("Which astronomer lived at Ottershaw?", looked=look)
    assert [one.start for one in named[:2]] == [starting(evidence, "Ogilvy, the astronomer"), martians]
    assert evidence.nearest("What happened in the end?", looked=look)[0].start == martians
    assert evidence.nearest("Who counted sheep?", looked=look)[0].start == martians
    assert evidence.nearest("What happened in the end?") == []


def test_strongest_gives_each_head_one_voice():
    """A head that spends a thousand times as much must not decide alone."""
    found = strongest([[900.0, 100.0, 0.0], [0.0, 0.1, 0.9]], (5, 70, 300))
    assert found == ((5, 0.45), (300, 0.45), (70, 0.1))
    assert strongest([[0.0, 0.0]], (0, 9)) == ((0, 0.0), (9, 0.0))


def test_a_book_that_was_put_away_is_let_go_of_at_once():
    """Text and index of every book opened stayed until Python looked for cycles: of twenty books."""
    text = "\n\n".join(PARAGRAPHS)
    book = Evidence(Document("Mars", "", "txt", text, (Section("One", 0, len(text)),)))
    assert book.marks(PARAGRAPHS[0])[0].state == "quoted"
    left = weakref.ref(book)
    gc.disable()
    try:
        del book
        assert left() is None
    finally:
        gc.enable()


def novel() -> Evidence:
    """Two scenes of a crime, each on a page of its own."""
    filler = " ".join(f"The clerk copied deed number {at} in a dusty office." for at in range(30))
    scenes = (
        "The maid sat at her window and saw the murder in the lane. The moon shone. The maid said: 'It was "
        "Mr. Hyde.' He was called away.",
        "The lawyer found much money in the desk. A hundred pounds lay there. The lawyer, who is old, sat.",
        "Lanyon died of a shock. The night after the funeral Utterson opened the letter of Lanyon.",
    )
    text = "\n\n".join(f"{scene}\n\n{filler}" for scene in scenes)
    return Evidence(Document("Crime", "", "txt", text, (Section("One", 0, len(text)),)))


@pytest.mark.parametrize(
    ("question", "wrong", "right"),
    [
        ("Who saw the murder in the lane?", "The moon.", "The maid."),
        ("How much money did the lawyer find in the desk?", "The lawyer.", "A hundred pounds."),
        ("Why did Lanyon die?", "The night after the funeral.", "Lanyon died of a shock."),
        ("What did the maid see in the lane?", "Mr. Hyde.", "The murder in the lane."),
        ("When was the letter of Lanyon opened?", "Utterson.", "The night after the funeral."),
        ("Where was the money of the lawyer?", "The lawyer.", "In the desk."),
        ("Who opened the letter of Lanyon after the funeral?", "Mr. Lanyon.", "Utterson."),
    ],
)
def test_an_answer_of_another_kind_or_in_the_questions_words_has_no_mark(question, wrong, right):
    """Every one of the wrong ones stands near what is asked about, so words alone would bear it out."""
    book = novel()
    (mark,) = book.marks(wrong, question)
    assert (mark.state, mark.place) == ("nothing", None)
    (mark,) = book.marks(right, question)
    assert mark.state in ("agrees", "quoted")


WHITBY = (
    "The housekeeper came to Whitby. It was cold in Whitby, and Mrs. Westenra said that Hiang-Nu saw the "
    "ghost. They stayed at Whitby, and Iris, who is tall, came home in Iris."
)


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        ("Whitby.", False),
        ("At Whitby", False),
        ("Iris.", True),  # one mention alone stands behind "in"
        ("Hiang-Nu", True),
        ("Mrs. Westenra of Whitby", True),
        ("The housekeeper", True),
        ("His grandmothers", True),
        ("Two duchesses", True),
        ("The chamber-maid", True),
        ("The boat", False),
    ],
)
def test_who_is_somebody_and_no_place(said: str, is_one: bool):
    """A place for "who", and no answer where people say "his grandmother": of 919 such answers that people
    gave to FairytaleQA's training questions .81 were taken for one, .87 are now.
    """
    book = Evidence(Document("Ghosts", "", "txt", WHITBY, (Section("", 0, len(WHITBY)),)))
    assert book.answers(said, "Who saw the ghost?") is is_one


def test_a_land_with_a_persons_word_in_it_is_a_place():
    """The last part of a word with a hyphen says what it is."""
    book = Evidence(Document("Tale", "", "txt", WHITBY, (Section("", 0, len(WHITBY)),)))
    assert book.answers("Fairy-Land", "Where did Thomas go?")
    assert not book.answers("Mrs. Westenra", "Where did Thomas go?")
    for said in ("In 1968.", "On the 3rd of May, 1968", "At night.", "In January"):
        assert not book.answers(said, "Where was the letter found?"), "a time had a mark there"
    for said in ("In the spring.", "At 29 Cherry Lane.", "Behind a stove in 1968."):
        assert book.answers(said, "Where was the letter found?")


def test_own_words_of_a_short_answer_stand_near_what_is_asked():
    """The question's own words bring nearly half of what is needed."""
    book = novel()
    (mark,) = book.marks("Dusty deed 12.", "What lay in the desk of the lawyer with much money?")
    assert mark.state == "nothing"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How many fingers did he lose in the mill?", "Two fingers."),
        ("Who visited grandmother yesterday afternoon?", "Greta."),
    ],
)
def test_a_short_text_marks_what_it_says(question, said):
    """A question has words that a pasted note has not; they weighed more than all that the note has."""
    text = (
        "He lost two fingers in the mill. Greta came to see grandmother in the afternoon. She brought cake."
    )
    evidence = Evidence(Document("Note", "", "txt", text, (Section("", 0, len(text)),)))
    (mark,) = evidence.marks(said, question)
    assert mark.state == "agrees"
