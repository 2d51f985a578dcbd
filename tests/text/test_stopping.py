"""Stop strings in a stream of tokens: found wherever they begin and end, and nothing else is held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.text.stopping import StopStrings

TEXT = st.text(alphabet="abé", max_size=30)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3)


class Vocabulary:
    """Tokens of one to three characters."""

    def __init__(self, text: str, cuts: list[int]) -> None:
        self.pieces: list[str] = []
        while text:
            size = cuts[len(self.pieces) % len(cuts)]
            self.pieces.append(text[:size])
            text = text[size:]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


@given(text=TEXT, stops=STOPS, cuts=st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_the_answer_is_what_comes_before_the_first_stop_string(text: str, stops: list[str], cuts: list[int]):
    """Whatever the tokens: across their borders, several in one, one inside another."""
    vocabulary = Vocabulary(text, cuts)
    finder, shown, read = StopStrings(stops, vocabulary.decode), "", ""
    for token, piece in enumerate(vocabulary.pieces):
        read += piece
        ended = finder(token)
        assert ended == any(stop in read for stop in stops)
        if ended:
            end = min(read.find(stop) for stop in stops if stop in read)
            characters, tokens = finder.kept
            assert characters == end and end >= len(shown), "what was shown belongs to the stop string"
            assert end <= len("".join(vocabulary.pieces[:tokens])) < end + 3 and (tokens == 0) == (end == 0)
            return
        held = finder.unsettled(read)
        assert held == max(
            (n for stop in stops for n in range(1, len(stop)) if read.endswith(stop[:n])), default=0
        )
        shown = read[: len(read) - held]
    assert finder.kept is None and not any(stop in text for stop in stops)


def test_half_a_character_is_waited_for():
    """A stop string of which a token holds one byte only."""
    finder = StopStrings(["é"], lambda ids: bytes(ids).decode("utf-8", errors="replace"))
    assert [finder(byte) for byte in "né".encode()] == [False, False, True]
    assert finder.kept == (1, 1)
