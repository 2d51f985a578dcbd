"""What the page's choices mean to the engine."""

from __future__ import annotations

from app.desk.actions import dispatch, make_wish


def send(desk, **data: str) -> None:
    dispatch(desk, data)


def test_sampling_is_the_models_own_unless_the_reader_wants_another(desk):
    names = {"temperature", "top_p", "repetition_penalty"}
    assert not names & make_wish(desk).params.keys()
    for key, value in (("temperature", "0.7"), ("max_new_tokens", "64"), ("seed", "5"), ("stop", '["END"]')):
        send(desk, act="set", id=key, value=value)
    params = make_wish(desk).params
    assert params["temperature"] == 0.7 and params["max_new_tokens"] == 64 and params["seed"] == 5
    assert params["stop"] == ("END",) and "top_p" not in params
    send(desk, act="set", id="temperature", value="auto")
    assert "temperature" not in make_wish(desk).params


def test_no_seed_means_another_one_every_time(desk):
    seeds = {make_wish(desk).params["seed"] for _ in range(4)}
    assert len(seeds) == 4 and 0 not in seeds


def test_the_choices_beside_summarize_reach_the_wish(desk):
    send(desk, act="from", value="2")
    send(desk, act="length", value="chapters")
    send(desk, act="fit", value="sections")
    wish = make_wish(desk)
    assert (wish.chapters, wish.summary_length, wish.fit) == ((2, 2), "chapters", "sections")
    send(desk, act="to", value="1")
    assert make_wish(desk).chapters == (1, 2), "the other way round means the same"
    send(desk, act="from", value="99")
    send(desk, act="to", value="")
    assert desk.chapters == (0, 0) and make_wish(desk).chapters is None


def test_the_books_own_sentences_are_one_of_the_lengths_and_keep_the_length(desk):
    send(desk, act="length", value="chapters")
    assert desk.preferences.origin("summaries") == "default", "what was not chosen is not set"
    send(desk, act="length", value="own")
    wish = make_wish(desk)
    assert (wish.summaries, wish.summary_length) == ("own", "chapters")
    send(desk, act="length", value="page")
    wish = make_wish(desk)
    assert (wish.summaries, wish.summary_length) == ("auto", "page")
