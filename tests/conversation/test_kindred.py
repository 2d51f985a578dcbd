"""Words that mean much the same: by the rows a model gives them, and what a question finds by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.conversation.kindred import Kindred
from core.evidence.support import Evidence
from core.model.loader import weights_in
from core.text.ranking import Ranking, terms
from core.text.tokenizer import Tokenizer
from tests.conversation.ferry import reader, told
from tests.fakes import CharTokenizer
from tests.talks import STYLE, ask, finished, make

# where tokens point: "sermon" nearly as "preach", "bread" away from both, all around one common direction
ROWS = {
    "Ġpreach": (1.0, 0.0, 0.0),
    "Ġpreaching": (0.8, 0.3, 0.0),
    "Ġsermon": (0.9, -0.2, 0.1),
    "Ġbread": (-0.9, 0.4, 0.0),
    "▁loaf": (-0.8, 0.5, 0.1),
    "Ġthe": (0.9, 0.0, 0.0),  # says nothing
    "sermon": (1.0, 0.0, 0.0),  # the rest of a longer word
    "Ġqu": (1.0, 0.0, 0.0),
    "Ġ123": (1.0, 0.0, 0.0),
}
TOKENS = dict(enumerate(ROWS))
COMMON = torch.tensor([3.0, 3.0, 3.0])


def rows(ids: list[int]) -> torch.Tensor:
    return torch.tensor([ROWS[TOKENS[one]] for one in ids]) + COMMON


KINDRED = Kindred(lambda: TOKENS, rows)


def test_words_are_kin_that_point_the_same_way():
    """A term's forms count together, what all words have in common for nothing, and none is its own kin."""
    found = KINDRED(
        terms("Who preaches to the unheard-of?"), terms("A sermon, loaves of bread, and preaching")
    )
    assert [one for one, _ in found["preach"]] == ["sermon"] and 0.8 < found["preach"][0][1] < 1
    assert [one for one, _ in KINDRED(["loaf"], ["sermon", "bread"])["loaf"]] == ["bread"]


@pytest.mark.parametrize("word", ["the", "qu", "123", "zeppelin"])
def test_what_is_no_word_of_one_token_has_no_kin(word: str):
    assert KINDRED([word], ["sermon", "preach"]) == {} and KINDRED(["preach"], [word]) == {}


def test_the_embedded_model_knows_what_a_question_means(embedded_model_dir: Path):
    """Its own rows, by its own tokens."""
    embedding = weights_in(embedded_model_dir).tensor("model.embed_tokens.weight")
    kindred = Kindred(Tokenizer.load(embedded_model_dir).tokens, lambda ids: embedding[torch.as_tensor(ids)])
    among = terms("A sermon, bread, a cannon, guns, the pulpit, organisms, an animal and a colonel.")
    found = kindred(terms("Who preached of the creatures? Which weapon did the captain have?"), among)
    nearest = {term: [word for word, _ in kin] for term, kin in found.items()}
    assert nearest["preach"] == ["sermon"] and nearest["captain"] == ["colonel"]
    assert set(nearest["creatur"]) == {"animal", "organism"} and nearest["weapon"][0] == "gun"


def test_a_text_that_says_it_otherwise_is_ranked_behind_one_that_says_it():
    """And before one that does not; the kin of a term count less than itself, more where there are more."""
    texts = [
        terms(text) for text in ("He ate bread.", "He gave a sermon.", "He did preach.", "Sermon, sermon.")
    ]
    ranking = Ranking(texts)
    assert ranking.words == ["eat", "bread", "giv", "sermon", "preach"]
    plain, kin = (ranking.scores("Who preaches?", kin) for kin in (None, {"preach": [("sermon", 0.9)]}))
    assert plain[:2] == [0.0, 0.0] and plain[2] == kin[2]
    assert kin[0] == 0.0 < kin[1] < kin[3] < kin[2]


def test_a_book_is_asked_about_its_own_words():
    """The terms of the question among those of the book, of which each passage is scored by its kin."""
    asked: list[tuple[list[str], list[str]]] = []

    def kindred(about: list[str], among: list[str]) -> dict[str, list[tuple[str, float]]]:
        asked.append((list(about), list(among)))
        return {"preach": [("priest", 1.0)]}

    evidence = Evidence(told())
    assert evidence.pointed_at("Who preaches?") == []
    near = [passage.chapter for passage, _ in evidence.pointed_at("Who preaches?", kindred)]
    assert near == ["Chapter 2", "Chapter 1", "Chapter 3"]  # and the neighbours of what was found
    assert asked[0][0] == ["preach"] and {"priest", "ferryman", "copper"} <= set(asked[0][1])


class Words(CharTokenizer):
    """With a few tokens that are words."""

    def tokens(self) -> dict[int, str]:
        return dict(enumerate(("Ġparson", "Ġpriest", "Ġboats", "Ġmorals")))


@pytest.mark.parametrize("known", [True, False])
def test_a_passage_is_found_that_says_it_with_another_word(known: bool):
    """By the rows of the session's own model; only of one that was measured to gain by it."""
    style = replace(STYLE, kindred=known)
    points = torch.tensor([[1.0, 0.1], [1.0, 0.2], [-1.0, 0.1], [-1.0, -0.4]])
    model = SimpleNamespace(embed=lambda ids: points[torch.as_tensor(ids)])
    answers = reader({"did not believe": "The priest did not believe the ferryman."})
    session, _ = make(answers, style=style, tokenizer=Words(), model=model)
    said = finished(ask(session, told(), "Who is the parson?", fit="passages")).text
    assert said.startswith("The priest did not believe" if known else "The book does not seem to say.")
