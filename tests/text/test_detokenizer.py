"""Streaming text: nothing broken, nothing lost, linear time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.text.detokenizer import Detokenizer, printable


def decode_bytes(ids) -> str:
    """A byte-level vocabulary: each id is one byte; 256 and above are two-byte tokens."""
    return b"".join(bytes([i]) if i < 256 else bytes(divmod(i - 256, 256)) for i in ids).decode(
        "utf-8", errors="replace"
    )


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn")) | st.just("\n")))
def test_pieces_add_up_and_are_never_broken(text: str):
    """Tokens cut anywhere inside a character: the same text must come without a replacement character."""
    detokenizer = Detokenizer(decode_bytes)
    pieces = [detokenizer.feed(byte) for byte in text.encode()] + [detokenizer.flush()]
    assert "".join(pieces) == text.replace("\ufffd", "")
    assert not any("\ufffd" in piece for piece in pieces)


def test_unfinished_character_at_the_end_is_dropped():
    detokenizer = Detokenizer(decode_bytes)
    assert [detokenizer.feed(byte) for byte in "né".encode()[:2]] == ["n", ""]
    assert detokenizer.flush() == ""


def test_invalid_bytes_do_not_hold_the_stream_back_for_ever():
    """A model that emits garbage once must not mute the rest of the answer."""
    detokenizer = Detokenizer(decode_bytes)
    text = "".join(detokenizer.feed(byte) for byte in b"\xff" * 9 + b"and then words")
    assert text.endswith("and then words")


def test_words_joined_by_their_neighbours_keep_their_spaces():
    """A sentencepiece decoder drops the first space of what it is given."""
    words = ["\u2581Once", "\u2581upon", "\u2581a", "\u2581time"]
    detokenizer = Detokenizer(lambda ids: "".join(words[i] for i in ids).replace("\u2581", " ").lstrip(" "))
    assert [detokenizer.feed(i) for i in range(4)] == ["Once", " upon", " a", " time"]


def test_long_answers_cost_no_more_per_token():
    """Decoding the whole answer for every token is quadratic."""
    longest = 0

    def decode(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    detokenizer = Detokenizer(decode)
    assert "".join(detokenizer.feed(1) for _ in range(5000)) == "x" * 5000
    assert longest < 20


def test_control_characters_do_not_reach_the_page():
    assert printable("a\x00b\x1b[31mc\ufffd\nd\te") == "ab[31mc\nd\te"
