"""A book read in one process needs no prefill in the next, and is answered as if it had been read again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.cache import snapshot
from core.cache.disk import BLOCK_TOKENS
from core.cache.side_files import save_side
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.events import Prefill
from core.request import Params
from tests.support.modes import GRID_MODES
from tests.support.reopening import reopened
from tests.support.said import figures
from tests.support.tiny import SHARED, VOCAB, oracle, ours
from tests.tiers import first

REPO = Path(__file__).resolve().parent.parent
PARAMS = Params(temperature=0.8, top_p=0.95, max_new_tokens=16, seed=3)
BOOK = torch.randint(0, VOCAB, (1500,), generator=torch.Generator().manual_seed(5)).tolist()
QUESTION = [5, 6, 7, 8]
# whose layers do not all see every token; of the second the last read what others hold
LAYERED = ("lfm2", SHARED, "gemma3_text", "gemma4_text", "qwen3_5_text")


def ask(
    made: Engine,
    params: Params = PARAMS,
    *,
    ids: list[int] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    context: Context | None = None,
) -> tuple[list[int], list[Prefill], Done, Context]:
    """(answer, progress, end, context) of one question about the book"""
    context = context or made.new_context(1800)
    context.belongs_to("book", len(BOOK))
    events = list(made.generate(context, ids or [*BOOK, *QUESTION], params, should_stop=should_stop))
    tokens = [token for event in events if isinstance(event, Round) for token in event.tokens]
    return tokens, [event for event in events if isinstance(event, Prefill)], events[-1], context


def save(made: Engine, context: Context, should_stop: Callable[[], bool] = lambda: False) -> None:
    made.save(context, should_stop=should_stop)


@pytest.mark.parametrize("family", first(LAYERED[::-1]))
@pytest.mark.parametrize("mode", ["triforce", "autoregressive"])
@pytest.mark.parametrize("offloaded", [False, True], ids=["here", "away"])
def test_a_model_of_unlike_layers_goes_on_from_disk_and_over_another_question(
    tmp_path, mode: str, offloaded: bool, family: str
):
    """Windows and states are stored with the rest; a second question behind the same book begins where the
    first one did, and says what a fresh engine says.
    """
    if offloaded and family == SHARED:
        pytest.skip("what several layers read stays on the device")
    params = replace(PARAMS, mode=mode)
    made = reopened(tmp_path, family=family, offloaded=offloaded)
    answer, _, _, context = ask(made, params)
    save(made, context)
    other, _, end, _ = ask(made, params, ids=[*BOOK, 9, 10, 11], context=context)
    assert end.stats.reused_tokens == len(BOOK)
    for ids, wanted in ((None, answer), ([*BOOK, 9, 10, 11], other)):
        again, _, end, _ = ask(reopened(tmp_path, family=family, offloaded=offloaded), params, ids=ids)
        assert (again, end.stats.snapshot_tokens) == (wanted, len(BOOK))
        fresh = reopened(tmp_path / "empty", family=family, offloaded=not offloaded and family != SHARED)
        assert (
            ask(fresh, replace(params, temperature=0.0), ids=ids)[0]
            == ask(made, replace(params, temperature=0.0), ids=ids, context=context)[0]
        )


@pytest.mark.parametrize("family", ["qwen3_5_text", "gemma4_text", SHARED])
def test_where_what_came_along_with_the_model_drafts_a_seed_repeats(tmp_path, family: str):
    """A layer of its own, or an assistant: in a used context, behind a book from disk, behind one that was
    read. What it drafts, and so which numbers are drawn, hangs on the answer alone.
    """
    made = reopened(tmp_path, family=family, along=True)
    answer, _, _, context = ask(made)
    save(made, context)
    assert ask(made, context=context)[0] == answer
    again, _, end, _ = ask(reopened(tmp_path, family=family, along=True))
    assert (again, end.stats.snapshot_tokens) == (answer, len(BOOK))


def side_name(family: str) -> str:
    return "windows" if "gemma" in family else "states"


def test_states_that_have_the_name_of_windows_are_read(tmp_path):
    """As they were written before they had a name of their own."""
    made = reopened(tmp_path, family="qwen3_5_text")
    answer, _, _, context = ask(made)
    save(made, context)
    (file,) = tmp_path.rglob("states-*.kv")
    file.rename(file.with_name(file.name.replace("states-", "windows-")))
    again, _, end, _ = ask(reopened(tmp_path, family="qwen3_5_text"))
    assert (again, end.stats.snapshot_tokens) == (answer, len(BOOK))
    assert not any(tmp_path.rglob("states-*.kv"))


@pytest.mark.parametrize("family", first(LAYERED[::-1]))
@pytest.mark.parametrize("harm", ["gone", "damaged", "another model's"])
def test_where_windows_or_states_are_lacking_on_disk_the_book_is_read_anew(tmp_path, harm: str, family: str):
    made = reopened(tmp_path, family=family)
    answer, _, _, context = ask(made)
    save(made, context)
    (file,) = tmp_path.rglob(f"{side_name(family)}-*.kv")
    if harm == "gone":
        file.unlink()
    elif harm == "damaged":
        data = bytearray(file.read_bytes())
        data[-40] ^= 1
        file.write_bytes(data)
    else:
        save_side(file, "another model", context.cache.kept_side(len(BOOK)))
    again, _, end, _ = ask(reopened(tmp_path, family=family))
    assert (again, end.stats.snapshot_tokens) == (answer, 0)


@pytest.mark.parametrize("family", first(LAYERED[::-1]))
def test_of_a_long_text_that_goes_on_a_place_to_go_on_from_is_stored(tmp_path, monkeypatch, family: str):
    """While it is read: after a crash, it goes on from there, and says the same."""
    monkeypatch.setattr(snapshot, "_SIDE_TOKENS", BLOCK_TOKENS)
    answer = ask(reopened(tmp_path / "first", family=family))[0]
    (tmp_path / "first").rename(tmp_path / "second")
    again, _, end, _ = ask(reopened(tmp_path / "second", family=family))
    assert (again, end.stats.snapshot_tokens) == (answer, BLOCK_TOKENS)


@pytest.mark.parametrize("family", first(LAYERED[::-1]))
def test_a_book_of_a_model_of_unlike_layers_that_was_loaded_in_part_is_as_it_was(tmp_path, family: str):
    """Rows without what stood beside them at their end are no place to go on from."""
    made = reopened(tmp_path, family=family)
    answer, _, _, context = ask(made)
    save(made, context)
    other = reopened(tmp_path, family=family)
    looks = iter([False])  # before the first block; then somebody stops it
    _, _, end, context = ask(other, should_stop=lambda: next(looks, True))
    assert (end.reason, context.cache.length, context.ids) == ("user", 0, [])
    assert ask(other, context=context)[0] == answer


@pytest.mark.parametrize("family", first(LAYERED[::-1]))
def test_after_a_turn_that_was_taken_back_a_book_is_not_read_again(tmp_path, family: str):
    """Nor after one that goes on: what was said is behind a rollback where a prompt differs from it."""
    made, params = reopened(tmp_path, family=family), replace(PARAMS, temperature=0.0)
    said, _, _, context = ask(made, params)
    first = [*BOOK, *QUESTION]
    for ids in ([*first, *said, 9, 10], [*first, *said[:3], 11], [*BOOK, 12, 13]):
        found, _, end, _ = ask(made, params, ids=ids, context=context)
        assert end.stats.reused_tokens >= len(BOOK)
        assert found == ask(reopened(tmp_path / "none", family=family), params, ids=ids)[0]


@pytest.mark.parametrize("mode", GRID_MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_reopened_book_is_not_prefilled_and_answers_the_same(tmp_path, mode: str, dtype: torch.dtype):
    """The same seed gives the same tokens, rounding included."""
    params = replace(PARAMS, mode=mode)
    first = reopened(tmp_path, dtype=dtype)
    answer, progress, end, context = ask(first, params)
    assert (end.stats.reused_tokens, end.stats.snapshot_tokens) == (0, 0)
    assert progress[-1].done_tokens == progress[-1].total_tokens == len(BOOK) + len(QUESTION) - 1
    save(first, context)
    again, progress, end, context = ask(reopened(tmp_path, dtype=dtype), params)
    assert again == answer
    assert end.stats.reused_tokens == end.stats.snapshot_tokens == len(BOOK)
    assert progress[-1].total_tokens == len(QUESTION) - 1
    assert progress[-1].snapshot_tokens == progress[-1].reused_tokens == len(BOOK)
    assert (
        context.ids == [*BOOK, *QUESTION, *answer][: len(context.ids)]
        and len(context.ids) == context.cache.length
    )


@pytest.mark.parametrize("before", [False, True], ids=["from full", "from offloaded"])
@pytest.mark.parametrize("after", [False, True], ids=["to full", "to offloaded"])
def test_a_snapshot_fits_every_cache(tmp_path, before: bool, after: bool):
    """What lies where is the plan's business and may change from start to start; the rows are the same."""
    first = reopened(tmp_path, offloaded=before)
    save(first, ask(first)[3])
    fresh, loaded = reopened(tmp_path / "none", offloaded=after), reopened(tmp_path, offloaded=after)
    (answer, _, _, context), (again, _, end, other) = ask(fresh), ask(loaded)
    assert (again, end.stats.snapshot_tokens) == (answer, len(BOOK))
    for layer in range(2):
        for one, two in zip(
            context.cache.rows(layer, 0, len(BOOK)), other.cache.rows(layer, 0, len(BOOK)), strict=True
        ):
            assert torch.allclose(one, two, atol=1e-5)


def test_a_follow_up_does_not_look_on_the_disk(tmp_path, monkeypatch):
    made = reopened(tmp_path)
    answer, _, _, context = ask(made)
    monkeypatch.setattr(made._snapshots, "load", lambda *args, **options: pytest.fail("looked"))
    _, _, end, _ = ask(made, ids=[*BOOK, *QUESTION, *answer, 1, 2, 3], context=context)
    assert end.stats.snapshot_tokens == 0 < end.stats.reused_tokens
    assert len(context.ids) == context.cache.length


def test_only_the_book_goes_to_disk(tmp_path):
    """Not what was asked and answered: a deleted conversation must not live on in a snapshot."""
    made = reopened(tmp_path)
    answer, _, _, context = ask(made)
    save(made, context)
    assert made.stored_tokens("book", [*BOOK, *QUESTION, *answer]) == len(BOOK)


def test_a_cancelled_reading_goes_on_in_the_next_process(tmp_path):
    """Finished segments are kept across a restart."""
    first, asked = reopened(tmp_path), []
    # 2 layers: in the 5th segment
    _, _, end, context = ask(first, should_stop=lambda: asked.append(1) or len(asked) > 2 * 5)
    assert end.reason == "user"
    save(first, context)
    read = context.cache.length
    assert 0 < read < len(BOOK) and read % 256 == 0
    answer, _, end, _ = ask(reopened(tmp_path))
    assert end.stats.snapshot_tokens == read
    assert answer == ask(reopened(tmp_path / "none"))[0]


def read_and_die(root: Path, tokens: int, **belonging: bool) -> None:
    """A process that is gone once so many tokens are read; it has stored nothing in idle time."""
    made = reopened(root)
    context = made.new_context(1800)
    context.belongs_to("book", len(BOOK), **belonging)
    for event in made.generate(context, [*BOOK, *QUESTION], PARAMS):
        if isinstance(event, Prefill) and event.done_tokens >= tokens:
            return
    pytest.fail("it was never so far")


def test_what_was_read_before_a_crash_need_not_be_read_again(tmp_path):
    """Whole blocks are on the disk before the reading ends."""
    read_and_die(tmp_path, 1280)
    answer, _, end, _ = ask(reopened(tmp_path))
    assert end.stats.snapshot_tokens == BLOCK_TOKENS
    assert answer == ask(reopened(tmp_path / "none"))[0]


def test_a_part_that_is_read_for_its_summary_is_not_stored_while_it_is_read(tmp_path):
    """A book in parts would take the room of all of them."""
    read_and_die(tmp_path, 1280, stored_while_read=False)
    assert reopened(tmp_path).stored_tokens("book", BOOK) == 0


def test_a_stop_while_a_book_is_loaded_ends_the_answer(tmp_path):
    first = reopened(tmp_path)
    save(first, ask(first)[3])
    answer, _, end, context = ask(reopened(tmp_path), should_stop=lambda: True)
    assert (answer, end.reason) == ([], "user")
    assert len(context.ids) == context.cache.length


@pytest.mark.parametrize("harm", ["delete", "cut", "flip", "folder"])
def test_no_harm_to_the_files_costs_the_answer(tmp_path, harm: str):
    first = reopened(tmp_path)
    answer, _, _, context = ask(first)
    save(first, context)
    for path in tmp_path.glob("*/*/*.kv"):
        data = path.read_bytes()
        path.unlink()
        if harm == "folder":
            path.mkdir()
        elif harm != "delete":
            path.write_bytes(data[: len(data) // 2] if harm == "cut" else bytes([data[0] ^ 1]) + data[1:])
    again, _, end, _ = ask(reopened(tmp_path))
    assert (again, end.stats.snapshot_tokens) == (answer, 0)


def test_another_key_reads_anew(tmp_path):
    first = reopened(tmp_path)
    save(first, ask(first)[3])
    assert ask(reopened(tmp_path, key="other weights"))[2].stats.snapshot_tokens == 0


def test_a_forgotten_book_is_gone(tmp_path):
    first = reopened(tmp_path)
    save(first, ask(first)[3])
    first.forget_book("book")
    assert list(tmp_path.glob("*/*/*")) == []
    assert ask(reopened(tmp_path))[2].stats.snapshot_tokens == 0


def test_a_context_for_another_text_does_not_take_the_book_along(tmp_path):
    """A context is handed on when memory is short: its owner changes with its rows."""
    made = reopened(tmp_path)
    _, _, _, context = ask(made)
    before = set(tmp_path.rglob("*.kv"))  # stored while it was read
    context.belongs_to("", 0)
    list(made.generate(context, BOOK[:40], PARAMS))
    save(made, context)
    assert set(tmp_path.rglob("*.kv")) == before


def test_a_key_changes_with_what_the_rows_depend_on(tmp_path):
    """Weights, configuration, rotation; not with the place the model lies in."""
    import shutil

    from core.model.store.manifest import fingerprint

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    moved = shutil.copytree(model, tmp_path / "moved")
    known = fingerprint(model)
    assert fingerprint(moved) == known
    (moved / "model.safetensors").write_bytes(b"weights, other ones")
    assert fingerprint(moved) != known
    (model / "config.json").write_text('{"rms_norm_eps": 1}')
    assert fingerprint(model) != known


def test_rotation_has_a_fingerprint():
    plain = ours(oracle())
    assert plain.rope.fingerprint == ours(oracle(), positions=300).rope.fingerprint
    others = [
        ours(oracle(rope={"rope_type": "default", "rope_theta": 500000.0})),
        ours(oracle(rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})),
    ]
    assert len({model.rope.fingerprint for model in (plain, *others)}) == 3


@pytest.mark.wide
def test_the_command_line_opens_a_book_again_from_disk(home_with_model, tmp_path):
    """The real model in two processes: stored after the first answer, loaded before the second."""
    story = tmp_path / "ferry.txt"
    lines = [
        f"On day {day} the water stood at {day % 9 + 3} feet, and Mara wrote it on the door of the boathouse."
        for day in range(40)
    ]
    story.write_text("Chapter 1\n\n" + "\n\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "app.cli",
        "summarize",
        str(story),
        "--reading-mode",
        "full",
        "--question",
        "Who writes?",
        "--seed",
        "1",
        "--max-new-tokens",
        "24",
        "--json",
    ]
    said = [
        subprocess.run(command, cwd=REPO, capture_output=True, encoding="utf-8", timeout=300, check=True)
        for _ in range(2)
    ]
    first, again = (json.loads(one.stdout.splitlines()[-1]) for one in said)
    assert first["snapshot_tokens"] == 0
    assert again["snapshot_tokens"] == again["reused_tokens"] > 0.9 * again["prompt_tokens"] > 600
    assert again["text"] == first["text"] != ""
    assert f"{again['snapshot_tokens']:,}" in figures(said[1].stderr)
