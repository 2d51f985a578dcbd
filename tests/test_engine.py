"""The engine on tiny random models: what it reuses, how it ends, and that what one prompt left behind does
not touch the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.errors import UserError
from core.events import Prefill
from core.request import Params
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.modes import GRID_MODES
from tests.support.tiny import engine, oracle, ours


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return engine(ours(oracle()), draft=ours(oracle(tied=True)))


def done(tiny: Engine, context: Context, ids: list[int], params: Params) -> Done:
    *_, last = tiny.generate(context, ids, params)
    return last


@pytest.mark.parametrize("mode", GRID_MODES)
def test_second_prompt_feeds_only_what_is_new(tiny: Engine, mode: str):
    """A follow-up question must not read the book again."""
    context = tiny.new_context(400)
    params = replace(GREEDY, mode=mode)
    answer, _ = run(tiny, context, PROMPT, params)
    following = [*PROMPT, *answer, 5, 6, 7]
    events = list(tiny.generate(context, following, params))
    assert [event.total_tokens for event in events if isinstance(event, Prefill)][-1] <= 3
    assert events[-1].stats.reused_tokens >= len(PROMPT) + len(answer) - 1
    assert (
        context.ids
        == [*following, *(t for e in events[:-1] if isinstance(e, Round) for t in e.tokens)][
            : len(context.ids)
        ]
    )


@pytest.mark.parametrize("mode", GRID_MODES)
def test_second_prompt_equals_fresh_engine(tiny: Engine, mode: str):
    """A used draft or retrieval cache must not leak into the next prompt, whether it continues the first one
    or not.
    """
    params = replace(GREEDY, mode=mode)
    used = tiny.new_context(400)
    answer, _ = run(tiny, used, PROMPT, params)
    for ids in ([*PROMPT, *answer, 9, 8], PROMPT[:70] + PROMPT[:40], PROMPT):
        assert run(tiny, used, ids, params) == run(tiny, tiny.new_context(400), ids, params)


@pytest.mark.parametrize("mode", GRID_MODES)
def test_the_probability_of_something_else_to_say_leaves_the_context_as_it_was(tiny: Engine, mode: str):
    """It must be that of the prompt alone, not behind the answer, and the next prompt must not see it."""
    context, said, params = tiny.new_context(400), [7, 3, 3, 11], replace(GREEDY, mode=mode)
    answer, _ = run(tiny, context, PROMPT, params)
    found = tiny.log_probabilities(context, PROMPT, said)
    with torch.inference_mode():
        fresh = tiny.new_context(400)
        logits = tiny.model.forward([*PROMPT, *said], fresh.cache)[len(PROMPT) - 1 : -1]
    laws = logits.float().log_softmax(-1)
    assert found == pytest.approx([float(laws[i, token]) for i, token in enumerate(said)], abs=1e-3)
    assert context.ids == PROMPT[: len(context.ids)] and len(context.ids) == context.cache.length
    following = [*PROMPT, *answer, 9, 8]
    assert run(tiny, context, following, params) == run(tiny, tiny.new_context(400), following, params)


def test_a_question_whose_probability_was_asked_for_is_not_read_again(tiny: Engine):
    """An answer's first token needs its last token alone; what stands behind it is gone."""
    context, fresh, asked = tiny.new_context(400), tiny.new_context(400), [7, 3, 11]
    run(tiny, context, [*PROMPT, 7], replace(GREEDY, max_new_tokens=1))
    tiny.log_probabilities(context, PROMPT, [*asked, 5, 5, 5], kept=len(asked))
    assert context.ids == [*PROMPT, *asked] and context.cache.length == len(context.ids)
    ids = [*PROMPT, *asked, 9]
    params = replace(GREEDY, mode="autoregressive")
    assert run(tiny, context, ids, params) == run(tiny, fresh, ids, params)


@pytest.mark.parametrize("mode", GRID_MODES)
def test_end_of_sequence_inside_a_round(mode: str):
    """Nothing drafted behind the end is in the answer or the context; the conversation goes on from there."""
    plain = engine(ours(oracle()))
    text, _ = run(
        plain, plain.new_context(400), PROMPT, replace(GREEDY, mode="autoregressive", max_new_tokens=24)
    )
    eos = text[9]
    ending = engine(ours(oracle(), eos=eos), draft=ours(oracle()))
    context = ending.new_context(400)
    answer, reason = run(ending, context, PROMPT, replace(GREEDY, mode=mode, max_new_tokens=24))
    assert (answer, reason) == (text[: text.index(eos) + 1], "stop")
    assert context.ids == [*PROMPT, *answer][: len(context.ids)] and len(context.ids) == context.cache.length
    following = [*PROMPT, *answer, 3, 1, 4]
    assert run(ending, context, following, replace(GREEDY, mode=mode)) == run(
        ending, ending.new_context(400), following, replace(GREEDY, mode="autoregressive")
    )


@pytest.mark.parametrize("mode", GRID_MODES)
def test_a_stop_passage_inside_a_round(tiny: Engine, mode: str):
    """A drafter that is always right emits whole blocks: the passage ends among accepted tokens, and nothing
    behind it is left.
    """
    model = ours(oracle())
    perfect = engine(model, draft=model, gamma=8)
    text, _ = run(
        perfect, perfect.new_context(400), PROMPT, replace(GREEDY, mode="autoregressive", max_new_tokens=24)
    )
    for end in range(4, 12):
        said: list[int] = []

        def ends(token: int, said: list[int] = said, end: int = end) -> bool:
            said.append(token)
            return len(said) == end

        context = perfect.new_context(400)
        events = list(
            perfect.generate(context, PROMPT, replace(GREEDY, mode=mode, max_new_tokens=24), ends=ends)
        )
        answer = [token for event in events if isinstance(event, Round) for token in event.tokens]
        assert answer == said == text[:end] and events[-1].reason == "stop"
        assert (
            context.ids == [*PROMPT, *answer][: len(context.ids)] and len(context.ids) == context.cache.length
        )
        following = [*PROMPT, *answer, 3, 1]
        assert run(perfect, context, following, GREEDY) == run(
            perfect, perfect.new_context(400), following, GREEDY
        )


@pytest.mark.parametrize("mode", GRID_MODES)
@pytest.mark.parametrize("capacity", [160, 192])
def test_a_full_context_ends_the_answer(mode: str, capacity: int):
    """Also where the capacity is exactly what the store holds: no draft may run over its edge."""
    eager = engine(ours(oracle()), draft=ours(oracle(tied=True)), gamma=8, fixed_gamma=True)
    context = eager.new_context(capacity)
    answer, reason = run(eager, context, PROMPT, replace(GREEDY, mode=mode, max_new_tokens=300))
    assert reason == "context_full"
    assert len(PROMPT) + len(answer) == capacity - 1


@pytest.mark.parametrize("mode", ["triforce", "retrieval", "streaming", "draft"])
def test_long_drafts_fit_every_cache(mode: str):
    """The longest draft that may be asked for, accepted or not, over small windows and tails."""
    model = ours(oracle())
    wide = engine(
        model, draft=model, gamma=64, fixed_gamma=True, middle_gamma=4, tail_tokens=8, draft_window=8
    )
    short = replace(GREEDY, max_new_tokens=12)
    assert run(wide, wide.new_context(448), PROMPT, replace(short, mode=mode)) == run(
        wide, wide.new_context(448), PROMPT, replace(short, mode="autoregressive")
    )


def test_stop_while_reading_keeps_finished_segments(tiny: Engine):
    """Whoever changes their mind has not wasted the whole wait, and half a segment is never used."""
    context, polls = tiny.new_context(400), iter([False] * 5 + [True] * 100)
    events = list(tiny.generate(context, PROMPT, GREEDY, should_stop=lambda: next(polls)))
    assert events[-1].reason == "user"
    assert len(context.ids) == 96 == context.cache.length  # two segments of 48
    answer, _ = run(tiny, context, PROMPT, GREEDY)
    assert answer == run(tiny, tiny.new_context(400), PROMPT, GREEDY)[0]


def test_the_device_may_adapt_before_every_layer_and_every_round(monkeypatch: pytest.MonkeyPatch):
    """Otherwise other programs' cores are not given back in the middle of a long prefill or answer."""
    backend, looked = CpuBackend(), []
    monkeypatch.setattr(backend._cores, "look", lambda: looked.append(len(events)))
    made, events = engine(ours(oracle(), backend=backend)), []
    for event in made.generate(
        made.new_context(300), PROMPT, Params(max_new_tokens=6, temperature=0.0, mode="autoregressive")
    ):
        events.append(event)
    steps = [
        index
        for index, event in enumerate(events)
        if isinstance(event, (Prefill, Round)) and index + 1 < len(events)
    ]
    assert len(steps) > 6 and set(range(1, steps[-1])) <= set(looked)


@pytest.mark.parametrize("mode", ["streaming", "retrieval", "triforce"])
def test_rounds_without_a_draft_between_rounds_with_one_change_no_token(mode: str):
    """Where a middle pass costs what a full one does, decoding is plain for 31 rounds, and what drafts then
    has missed all of them.
    """
    dear = engine(
        ours(oracle()),
        draft=ours(oracle()),
        expected_plain_tbt_ms=10.0,
        expected_middle_ms=10.0,
        expected_row_ms=0.0,
    )
    params = replace(GREEDY, max_new_tokens=110)
    plain, _ = run(dear, dear.new_context(400), PROMPT, replace(params, mode="autoregressive"))
    rounds = [
        event
        for event in dear.generate(dear.new_context(400), PROMPT, replace(params, mode=mode))
        if isinstance(event, Round)
    ]
    assert [token for one in rounds for token in one.tokens] == plain and len(plain) == 110
    drafted = [index for index, one in enumerate(rounds) if one.acceptance_retrieval.evaluated]
    assert drafted[0] == 31 and 2 <= len(drafted) <= 4


@pytest.mark.parametrize("mode", ["triforce", "retrieval"])
def test_drafts_go_straight_before_the_full_cache_where_that_is_planned(mode: str):
    """In the mode that leaves it to the plan, and in no other; the answer is the same."""
    model = ours(oracle("qwen3_5_text"))
    machine = engine(model, straight=True, gamma=2)
    params = replace(GREEDY, mode=mode, max_new_tokens=24)
    events = list(machine.generate(machine.new_context(400), PROMPT * 2, params))
    tokens = [token for one in events if isinstance(one, Round) for token in one.tokens]
    alone = engine(model)
    plain = replace(params, mode="autoregressive")
    assert tokens == run(alone, alone.new_context(400), PROMPT * 2, plain)[0]
    assert events[-1].stats.mode == ("ngram" if mode == "triforce" else mode)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("mode", ["triforce", "retrieval"])
def test_where_plain_decoding_was_faster_it_is_what_runs(mode: str, plain: bool):
    """In the default mode, and the answer's figures say so; another mode is somebody's own choice."""
    model = ours(oracle())
    machine = engine(model, plain=plain, gamma=4, fixed_gamma=True)
    events = list(
        machine.generate(machine.new_context(400), PROMPT * 2, replace(GREEDY, mode=mode, max_new_tokens=32))
    )
    rounds = [event for event in events if isinstance(event, Round)]
    runs = "autoregressive" if plain and mode == "triforce" else mode
    assert events[-1].stats.mode == runs
    assert all(len(one.tokens) == 1 for one in rounds) == (runs == "autoregressive")


def test_stop_between_rounds_and_a_consumer_that_walks_away(tiny: Engine):
    """The context stays usable whichever way the answer ended."""
    context = tiny.new_context(400)
    events = tiny.generate(context, PROMPT, GREEDY)
    emitted: list[int] = []
    for event in events:
        if isinstance(event, Round):
            emitted.extend(event.tokens)
            if len(emitted) > 5:
                break
    events.close()
    assert context.ids == [*PROMPT, *emitted][: len(context.ids)]
    answer, _ = run(tiny, context, PROMPT, GREEDY)
    assert answer[: len(emitted)] == emitted


def test_length_limit_is_exact(tiny: Engine):
    """Neither a round nor a draft runs over it."""
    for limit in (1, 2, 5):
        for mode in GRID_MODES:
            answer, reason = run(
                tiny, tiny.new_context(400), PROMPT, replace(GREEDY, mode=mode, max_new_tokens=limit)
            )
            assert (len(answer), reason) == (limit, "length")


def test_progress_reaches_the_end(tiny: Engine):
    """The progress bar counts new tokens, never backwards."""
    seen = [
        event.done_tokens
        for event in tiny.generate(tiny.new_context(400), PROMPT, GREEDY)
        if isinstance(event, Prefill)
    ]
    assert seen == sorted(seen) and seen[-1] == len(PROMPT) - 1


@pytest.mark.parametrize("mode", GRID_MODES)
def test_same_seed_same_text(tiny: Engine, mode: str):
    """A seed repeats with the same settings; another seed says something else."""
    params = Params(temperature=1.0, top_p=0.95, repetition_penalty=1.1, seed=4, mode=mode, max_new_tokens=20)
    first = run(tiny, tiny.new_context(400), PROMPT, params)
    assert run(tiny, tiny.new_context(400), PROMPT, params) == first
    assert run(tiny, tiny.new_context(400), PROMPT, replace(params, seed=5)) != first


@contextmanager
def busy_machine(threads: int = 4) -> Iterator[None]:
    """Threads beside the test that keep every core busy, with products of their own and with plain Python."""
    over = threading.Event()

    def work(square: torch.Tensor) -> None:
        while not over.is_set():
            (square @ square).sum().item()
            sum(range(1_000))

    running = [
        threading.Thread(target=work, args=(torch.rand(150, 150),), daemon=True) for _ in range(threads)
    ]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()


@pytest.mark.parametrize("mode", GRID_MODES)
def test_same_seed_same_text_on_a_busy_machine(tiny: Engine, mode: str):
    """The load changes the rounds' times; were the length of a draft to depend on them, random numbers would
    go to other tokens.
    """
    params = Params(temperature=1.0, top_p=0.95, seed=4, mode=mode, max_new_tokens=20)
    quiet = run(tiny, tiny.new_context(400), PROMPT, params)
    with busy_machine():
        assert run(tiny, tiny.new_context(400), PROMPT, params) == quiet


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"repetition_penalty": 0.9}, "repetition_penalty"),
        ({"mode": "magic"}, "mode"),
        ({"stop": ("",)}, "stop"),
        ({"stop": 3}, "stop"),
    ],
)
def test_parameters_out_of_range_are_named(wrong: dict, named: str):
    """The message says which, what it is and what it may be."""
    with pytest.raises(UserError, match=named):
        Params(**wrong)


def test_prompts_and_contexts_that_do_not_fit_are_refused(tiny: Engine):
    """With the numbers, before anything is computed."""
    with pytest.raises(UserError, match="448"):
        tiny.new_context(449)
    with pytest.raises(UserError, match="150 tokens.*holds 120"):
        list(tiny.generate(tiny.new_context(120), PROMPT, GREEDY))
