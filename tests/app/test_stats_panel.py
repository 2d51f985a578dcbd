"""The numbers shown are the numbers measured, in figures, words and lines."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.web.stats_panel import panel_html, plan_html
from core.config import Settings
from core.events import Acceptance, Stats, VerificationResult
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import find, title_of
from core.planning.planner import make_plan
from core.text.words import size
from core.text.words import translated as _
from tests.support.imagined import PINNED
from tests.support.said import figures, text_in

STATS = Stats(
    mode="triforce",
    prompt_tokens=5000,
    reused_tokens=4976,
    new_tokens=42,
    ttft_s=0.31,
    tbt_last_ms=18.25,
    tbt_p50_ms=17.0,
    tbt_p95_ms=41.5,
    longest_wait_ms=88,
    tokens_per_s=52.4,
    acceptance_draft=Acceptance(30, 40),
    acceptance_retrieval=Acceptance(27, 30),
    tokens_per_round=3.5,
    rounds=12,
    context_used=5042,
    context_total=8192,
    tbt_series_ms=(10.0, 40.0, 20.0),
    acceptance_series=(1.0, 0.5, 0.75),
)


def text_of(html: str, ident: str) -> str:
    return re.search(rf'id="{ident}"[^>]*>([^<]*)<', html).group(1)


def level(html: str, key: str) -> str:
    """What stands under the meter of a level that proposes."""
    return re.search(rf'class="level level-{key}".*?<small>(.*?)</small>', html, re.DOTALL).group(1)


def test_every_number_is_shown():
    html = panel_html(STATS, live=True)
    assert text_of(html, "stat-speed") == "52.4" and text_of(html, "stat-round") == "3.50"
    assert (
        text_of(html, "stat-acceptance-draft") == "75%"
        and text_of(html, "stat-acceptance-retrieval") == "90%"
    )
    assert [figures(level(html, key)) for key in ("draft", "retrieval")] == [["30", "40"], ["27", "30"]]
    assert [text_of(html, f"stat-tbt-{key}") for key in ("last", "p50", "p95")] == ["18.2", "17.0", "41.5"]
    assert text_of(html, "stat-ttft") == "310 ms"
    assert figures(text_of(html, "stat-prefill")) == ["24", "4,976"]
    assert text_of(panel_html(replace(STATS, ttft_s=0.9999), live=True), "stat-ttft") == "1.0\u00a0s"
    again = panel_html(replace(STATS, snapshot_tokens=4000), live=False)
    assert figures(text_of(again, "stat-prefill")) == ["24", "4,976", "4,000"]
    assert figures(text_of(html, "stat-context")) == ["5,042", "3,150"]
    assert 'data-live="1"' in html and "tag-live" in html


PLAN = {"expected_plain_tbt_ms": 100.0, "expected_passage_tbt_ms": 20.0}


def test_plain_decodings_speed_is_of_this_computer_once_rounds_without_proposals_have_timed_it():
    stats = Stats(mode="triforce", new_tokens=40, tokens_per_s=60.0, plain_rounds=8, plain_tbt_ms=25.0)
    html = panel_html(stats, live=True, plan=PLAN)
    assert figures(text_of(html, "stat-plain")) == ["40.0", "1.50"] and 'data-measured="here"' in html


def test_no_speed_of_plain_decoding_is_shown_that_was_not_measured():
    """The plan's was 71 a second, measured 24.6."""
    assert "stat-plain" not in panel_html(replace(STATS, plain_rounds=7), live=True, plan=PLAN)
    timed = replace(STATS, plain_rounds=8, plain_tbt_ms=25.0)
    assert "stat-plain" in panel_html(timed, live=True, plan=PLAN)
    for other in (replace(timed, mode="autoregressive"), replace(timed, new_tokens=0)):
        assert "stat-plain" not in panel_html(other, live=True, plan=PLAN)


def test_no_mode_is_named_before_there_is_one():
    """It said TriForce while it waited, and plain decoding once it was asked."""
    assert text_of(panel_html(None, live=False), "stat-mode") == "–"
    assert text_of(panel_html(None, live=True), "stat-mode") == "–"
    assert text_of(panel_html(STATS, live=True), "stat-mode") == "TriForce"


def test_a_refusal_is_not_explained_by_the_sentence_about_summaries():
    none = Stats(model="m", prompt_tokens=9)
    assert "summary" in text_of(panel_html(none, live=False, summary=True), "stat-undecoded")
    said = text_of(panel_html(none, live=False), "stat-undecoded")
    assert said and "summary" not in said


VERIFIED = {"tokens": 42, "near_ties": 2, "mismatches": 0, "largest_gap": 0.1, "margin": 0.2}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"same": True}, "Both texts are the same."),
        ({}, "part at a near-tie"),
        ({"verified": {**VERIFIED, "mismatches": 1}}, "The texts differ. Both"),
        ({"verified": None}, "The texts differ. Both"),
        ({"temperature": 0.7}, "two draws of one distribution"),
        ({"temperature": None}, "The texts differ. Both"),
    ],
)
def test_a_comparison_says_what_it_found_and_no_more(changed, said):
    compared = {"same": False, "temperature": 0.0, "tokens_per_s": 26.2, "verified": VERIFIED, **changed}
    html = panel_html(STATS, live=False, plan=PLAN, compared=compared, comparable=True)
    assert said in text_of(html, "stat-compared")
    assert figures(text_of(html, "stat-plain")) == ["26.2", "2.00"] and 'data-measured="beside"' in html
    if verified := compared["verified"]:
        own = str(42 - verified["mismatches"])
        assert figures(text_of(html, "stat-judged")) == [own, "42", "2"]
    else:
        assert "stat-judged" not in html
    assert 'data-act="compare"' not in html
    assert "stat-unjudged" not in html
    ended = panel_html(replace(STATS, new_tokens=43), live=False, plan=PLAN, compared=compared)
    assert ("stat-unjudged" in ended) == bool(compared["verified"]), "43 new tokens beside 42 of 42"


def test_comparing_is_offered_when_there_is_something_to_compare_and_says_how_far_it_is():
    offered = panel_html(STATS, live=False, comparable=True)
    assert 'data-act="compare"' in offered
    assert 'data-act="compare"' not in panel_html(STATS, live=True, comparable=True)
    running = panel_html(STATS, live=False, comparable=True, comparing=3)
    assert figures(text_in(running, 'role="status"')) == ["3"]
    assert 'data-act="stop"' in running and "compare" not in running


def test_what_was_measured_beside_is_not_followed_by_why_it_cannot_be():
    """ "1.83 times as fast" stood above "only an answer that is written in one go can be compared"."""
    why = "It was put together."
    alone = panel_html(replace(STATS, plain_rounds=7), live=False, why_not=why)
    beside = panel_html(replace(STATS, plain_rounds=8, plain_tbt_ms=25.0), live=False, why_not=why)
    assert "stat-why-not" in alone and "stat-plain" in beside and "stat-why-not" not in beside


def test_tokens_per_round_are_bars_and_words():
    html = panel_html(replace(STATS, round_sizes=(3, 0, 6)), live=True)
    label = re.search(r'class="bars" role="img" aria-label="([^"]*)"', html).group(1)
    assert figures(label) == ["1", "3", "2", "0", "3", "6"]
    assert re.findall(r"height:([\d.]+)px", html) == ["27.0", "0.0", "54.0"]
    many = panel_html(replace(STATS, round_sizes=(1,) * 15), live=True)
    assert "12+: 4." in many and "data-fold" in many
    assert "bars" not in panel_html(STATS, live=True)


def test_what_crossed_the_bus_is_said_by_token():
    moved = panel_html(replace(STATS, bytes_moved=42 * 3_000_000), live=True)
    assert text_of(moved, "stat-moved").endswith("a token")
    assert text_of(panel_html(STATS, live=True), "stat-moved") == "nothing"


def test_what_moved_for_answers_that_were_drawn_together_is_told_by_all_their_tokens():
    """The bytes of all of them by the tokens of the one that is given: eleven times too many."""
    drawn = replace(STATS, new_tokens=10, answers=11, all_tokens=100, bytes_moved=100 * 3_000_000)
    alone = replace(STATS, new_tokens=100, bytes_moved=100 * 3_000_000)
    assert text_of(panel_html(drawn, live=False), "stat-moved") == text_of(
        panel_html(alone, live=False), "stat-moved"
    )
    none = replace(STATS, new_tokens=0, bytes_moved=5_000_000)
    assert "a token" not in text_of(panel_html(none, live=False), "stat-moved")


DRAWN = re.compile(r'<(?:svg|div)[^>]*class="(?:bars|meter[^"]*|stack|bar)"[^>]*>|<svg[^>]*>')


def test_every_plot_says_in_words_what_it_shows():
    """A picture without them is nothing to who does not see it."""
    plan = {"budget": [{"name": "Weights", "bytes": 5, "place": "RAM"}], "model": "one"}
    shown = panel_html(replace(STATS, round_sizes=(3, 4)), live=False) + plan_html(plan)
    drawn = DRAWN.findall(shown)
    assert len(drawn) == 6, "two levels, the line, the bars, the context, the memory"
    for one in drawn:
        assert 'aria-label="' in one and 'aria-label=""' not in one or 'aria-hidden="true"' in one
    place = shown[shown.index('class="stack"') :]
    assert "<dt>Weights</dt><dd>" in place, "the stack of memory is told below it"


@pytest.mark.parametrize(
    ("verified", "said"),
    [
        (VerificationResult(128, 0, 0, 0.0, 0.1), "128 of 128 tokens"),
        (VerificationResult(128, 1, 0, 0.05, 0.1), "128 of 128 tokens, 1 near-tie"),
        (VerificationResult(1280, 3, 2, 4.0, 0.1), "1,278 of 1,280 tokens, 3 near-ties"),
    ],
)
def test_what_the_check_against_plain_decoding_found(verified: VerificationResult, said: str):
    """A mismatch is shown as it is; without the check nothing is claimed."""
    assert text_of(panel_html(replace(STATS, verified=verified), live=False), "stat-verified") == said
    assert "stat-verified" not in panel_html(STATS, live=False)


def test_before_the_first_answer_nothing_is_claimed():
    html = panel_html(None, live=False)
    assert text_of(html, "stat-speed") == "–" and text_of(html, "stat-acceptance-draft") == "–"
    assert "polyline" not in html


def test_it_says_why_the_retrieval_level_hardly_proposes():
    """Behind a short text its acceptance is of a few tokens, and nobody could tell why."""
    plan_of = {"retrieval_budget": 1024}
    short = panel_html(replace(STATS, context_used=950), live=True, plan=plan_of)
    assert text_of(short, "stat-rests")
    assert "stat-rests" not in panel_html(STATS, live=True, plan=plan_of)
    plain = replace(STATS, context_used=950, mode="autoregressive")
    assert "stat-rests" not in panel_html(plain, live=True, plan=plan_of)


def test_no_acceptance_is_plotted_of_a_level_that_was_not_used():
    """Below "not used for this answer" a line stood at 0 %."""
    resting = replace(STATS, acceptance_retrieval=Acceptance(), acceptance_series=(0.0, 0.0, 0.0))
    html = panel_html(resting, live=False)
    assert text_of(html, "stat-acceptance-draft") == "75%"
    assert "line-tbt" in html and "line-acceptance" not in html


def test_plain_decoding_shows_no_acceptance():
    html = panel_html(Stats(mode="autoregressive", new_tokens=3, tokens_per_s=9.0), live=False)
    assert "stat-acceptance" not in html and text_of(html, "stat-unproposed")
    assert "stat-unproposed" not in panel_html(STATS, live=False)


NONE = Acceptance()


def test_a_finished_answer_without_drafts_says_that_none_were_used():
    """It said "not measured yet", for ever."""
    undrafted = replace(
        STATS, acceptance_draft=NONE, acceptance_retrieval=NONE, acceptance_series=(0.0, 0.0, 0.0)
    )
    html = panel_html(undrafted, live=False)
    assert text_of(html, "stat-undrafted")
    assert "stat-acceptance" not in html and 'class="level' not in html
    assert "line-tbt" in html and "line-acceptance" not in html and "key-acceptance" not in html
    running = panel_html(undrafted, live=True)
    waits = level(running, "draft")
    assert "stat-undrafted" not in running and level(running, "retrieval") == waits and not figures(waits)
    for other in (STATS, replace(STATS, mode="autoregressive"), replace(undrafted, new_tokens=0)):
        assert "stat-undrafted" not in panel_html(other, live=False)


def test_a_level_that_proposed_nothing_is_told_beside_one_that_did():
    unproposed = replace(STATS, acceptance_draft=NONE)
    html, running = (panel_html(unproposed, live=live) for live in (False, True))
    assert not figures(level(html, "draft")) and figures(level(html, "retrieval")) == ["27", "30"]
    assert level(html, "draft") != level(running, "draft"), "one that may still propose is not measured yet"


@pytest.mark.parametrize("stats", [Stats(), Stats(model="m"), Stats(mode="triforce", prompt_tokens=900)])
def test_where_nothing_was_decoded_the_panel_says_so(stats: Stats):
    """A summary in the book's own sentences showed dashes and "Plain decoding"."""
    html = panel_html(stats, live=False)
    assert text_of(html, "stat-undecoded") and "stat-speed" not in html and "stat-mode" not in html
    for other in (panel_html(stats, live=True), panel_html(None, live=False), panel_html(STATS, live=False)):
        assert "stat-undecoded" not in other and "stat-speed" in other and "stat-mode" in other


def test_the_plot_runs_from_edge_to_edge_and_says_the_same_in_words():
    svg = panel_html(STATS, live=True)
    line = re.search(r'class="line-tbt" points="([^"]+)"', svg).group(1)
    points = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert points[0][0] == 0 and points[-1][0] == 288 and len(points) == 3
    assert points[1][1] == min(y for _, y in points), "the slowest round is the highest point"
    label = re.search(r'aria-label="(Time between[^"]+)"', svg).group(1)
    assert "12 rounds" in label and "highest 40" in label and "lowest 75%" in label


def test_the_line_of_acceptance_goes_by_the_rounds_that_had_proposals():
    """Below "100 %" it lay at 0 % along the whole answer, in which few rounds had any."""
    seldom = tuple(1.0 if at in (3, 20) else None for at in range(31))
    svg = panel_html(replace(STATS, tbt_series_ms=(10.0,) * 31, acceptance_series=seldom), live=False)
    line = re.search(r'class="line-acceptance" points="([^"]+)"', svg).group(1)
    assert line == "28.8,2.0 192.0,2.0"


def test_one_slow_round_does_not_flatten_the_plot():
    """On a busy machine one round may take fifty times the median."""
    rounds = {"tbt_series_ms": (10.0, 12.0, 500.0, 11.0, 9.0), "acceptance_series": (1.0, 0.0, 1.0, 0.0, 1.0)}
    svg = panel_html(replace(STATS, **rounds), live=True)
    ys = [
        float(pair.split(",")[1])
        for pair in re.search(r'class="line-tbt" points="([^"]+)"', svg).group(1).split()
    ]
    assert max(ys) - min(ys[0], ys[1], ys[3], ys[4]) >= 4 and ys[2] == min(ys) >= 0
    assert "highest 500" in svg


def test_the_plan_says_where_every_byte_lives_and_escapes_names():
    plan = {
        "device": "cuda",
        "dtype": "bfloat16",
        "layers": 32,
        "on_chip_layers": 12,
        "context_tokens": 131072,
        "budget": [
            {"name": "KV <cache>", "bytes": 42_900_000_000, "place": PINNED},
            {"name": "Weights", "bytes": 13 << 30, "place": "VRAM"},
        ],
        "notes": ["<b>note</b>"],
    }
    html = plan_html(plan, model="Llama")
    assert "12 of 32" in html and "131,072 tokens" in html and "42.9\u00a0GB" in html and PINNED in html
    assert "<cache>" not in html and "<b>note</b>" not in html
    assert "12 of 32" not in plan_html(plan | {"device": "cpu"}), "there is no chip to hold them"


def test_bytes_are_in_the_unit_of_the_notes():
    """The rows said GiB beside notes in GB: the same cache was 40.0 in one place and 42.9 in the other."""
    note = _("The model's files take {needed}; {free} is free in {folder}.").format(
        needed=size(42.9e9), free=size(1e9), folder="/x"
    )
    plan = {"budget": [{"name": "KV cache", "bytes": 42_900_000_000, "place": "RAM"}], "notes": [note]}
    shown = plan_html(plan) + panel_html(replace(STATS, peak_memory_bytes=700 << 20), live=False)
    assert shown.count("42.9\u00a0GB") == 3 and "734\u00a0MB" in shown
    assert "iB" not in shown


def test_the_plan_names_the_model_that_was_taught():
    """What is exact is exact for the weights that run, which are not the published ones."""
    taught, published = title_of("SmolLM2-135M-Instruct"), "SmolLM2 135M Instruct"
    assert taught.startswith(f"{published},")
    assert taught in plan_html({"layers": 30}, model="SmolLM2-135M-Instruct")
    assert "taught" not in plan_html({"layers": 30}, model="Llama-3.1-8B-Instruct")


def test_the_panel_says_what_answers_are_exact_for():
    """A file of 4 bits is another model than the one it was made of, and so is a rounded cache: whoever reads
    an answer, or a plan as JSON, must see which.
    """
    name = "Meta-Llama-3.1-8B-Instruct-Q4_K_M"
    machine, shape = imagined_hardware(gpu="RTX 4090", ram_gib=64), find(name).shape
    for bits in (16, 8):
        made = make_plan(machine, Settings(context_tokens=8192, kv=bits), target=shape).to_json()
        assert (made["weights_bits"], made["kv_bits"]) == (4, bits)
        html = plan_html(made, model=name)
        assert made["exact_for"] in html and "(Q4_K_M)" in made["exact_for"]
        assert f" {bits}-bit " in made["exact_for"]
