"""The pages' generated sections: they follow their sources, and no figure appears without a result."""

from __future__ import annotations

import json
import re

import pytest

from app.cli.parser import main
from benchmarks.lib import isa, results
from benchmarks.report import measured, plan_tables, tables
from benchmarks.report.isa_table import isa_table
from benchmarks.speed import startup
from core.config import RULES
from tests.tiers import first


@pytest.mark.parametrize(
    "section", first(["settings", "measured", "isa", "speed", "kv", "kernels", "tree", "book", "pcs"], 8)
)
def test_generated_sections_are_current(section):
    """A key without a row, a figure edited by hand, a model that no longer fits, a folder nobody explains."""
    if section == "tree" and not (tables.REPO / ".git").exists():
        pytest.skip("a copy without git does not know which folders belong to the project")
    assert tables.stale([section]) == [], "run python -m benchmarks.tables"


def test_every_setting_has_a_row_with_an_explanation():
    """A key without a comment of its own or of its group would be an empty cell."""
    table = tables.settings_table((tables.REPO / "config.yaml").read_text(encoding="utf-8"))
    rows = {row.split("`")[1]: row for row in table.splitlines() if row.startswith("| `")}
    assert rows.keys() == RULES.keys()
    assert all(len(row.rsplit("|", 2)[1].strip()) > 10 for row in rows.values())


def test_without_results_nothing_is_claimed(tmp_path):
    """An empty folder must not give an empty table or old numbers."""
    made = measured.section(tmp_path), tables.speed_table(tmp_path), isa_table(tmp_path)
    assert set(made) == {measured.NOTHING}


def test_a_saved_result_becomes_a_table_with_its_provenance(tmp_path):
    """A figure without machine and date cannot be judged; a cell that was not measured must not look like
    zero.
    """
    table = results.Table(
        "Speed",
        ("Mode", "TBT, ms", "Tokens"),
        (("plain", 31.4159, 8192), ("triforce", None, 12)),
        ("A note.",),
    )
    path = results.save_result("speed", [table], {"raw": [1]}, folder=tmp_path)
    assert results.load_result(path).tables == (table,)
    text = measured.section(tmp_path)
    assert "| plain | 31.4 | 8,192 |" in text and "| triforce | – | 12 |" in text and "A note." in text
    assert results.load_result(path).date in text and results.load_result(path).machine["cpu"] in text


def test_modes_stand_side_by_side():
    """A figure under the wrong mode, or a looping answer passed off as an ordinary one."""
    columns = measured.DECODE_COLUMNS
    rows = (
        (1024, 0.0, "autoregressive", 20.0, 1.0, None, None, "varied"),
        (1024, 0.0, "ngram", 10.0, 2.1, None, 0.5, "loops"),
        (1024, 0.0, "triforce", 14.0, 1.5, 0.4, 0.9, "varied"),
        (1024, 0.0, "autoregressive", 22.0, 0.95, None, None, "varied"),
    )
    made = measured.by_mode(results.Table("Decode", columns, rows))
    assert made is not None and made.columns[3:5] == ("ngram, times as fast", "triforce, times as fast")
    assert made.rows == ((1024, 0.0, 21.0, 2.1, 1.5, 0.4, 0.9, "loops in part"),)
    assert measured.by_mode(results.Table("Other", ("a",), ((1,),))) is None
    # its plain answer is in the table of the other texts
    alone = measured.by_mode(results.Table("Decode", columns, rows[2:3]))
    assert alone is not None and alone.rows == ((1024, 0.0, 21.0, 1.5, 0.4, 0.9, "varied"),)


def test_programs_stand_below_each_other():
    """A figure under the wrong context; a case that was not run must not look like another one's."""
    columns = ("Peer", "Context", "prefill, s", "TBT mean, ms", "text")
    rows = (
        ("llama.cpp", 1024, 3.0, 14.0, "loops"),
        ("ours", 1024, 1.5, 28.0, "varied"),
        ("ours", 8000, 24.0, 40.0, "varied"),
    )
    made = measured.by_program(results.Table("Peers", columns, rows))
    assert made is not None and made.columns[1:3] == ("1,024: ms per token", "8,000: ms per token")
    assert made.rows == (("llama.cpp", 14.0, None, 3.0, None), ("ours", 28.0, 40.0, 1.5, 24.0))
    assert measured.by_program(results.Table("Other", ("a",), ((1,),))) is None


def test_the_first_page_shows_where_ours_is_slower_too(tmp_path):
    """Rows chosen to please; a case that was not run must not look like another one's."""
    columns = ("Context", "Peer", *tables.SPEED_COLUMNS)
    rows = (
        (1024, "fast", 3.0, 0.5, 0.6, 0.7, 0.8),
        (1024, "slow", 3.0, 2.0, 2.0, 2.0, 2.0),
        (8000, "fast", 3.14159, 1.0, 1.26, None, 1.1),
        (8000, "fast, tuned", 3.1, 9.0, 9.0, 9.0, 9.0),
        (4000, "fast", 3.0, 1.5, 1.5, 1.5, 1.5),
    )
    results.save_result("peers", [results.Table("Ours", columns, rows)], folder=tmp_path)
    _heading, _rule, *shown = tables.speed_table(tmp_path).split("\n\n")[0].splitlines()
    assert shown == [
        "| 1,024 | fast | 3 | 0.5 | 0.6 | 0.7 | 0.8 |",
        "| 8,000 | fast | 3.1 | 1 | 1.3 | – | 1.1 |",
    ]


def test_figures_with_avx2_stand_below_those_of_the_server(tmp_path, monkeypatch):
    """A reader with a PC must not take the server's figures for his own."""
    columns = ("Context", "Peer", *tables.SPEED_COLUMNS)
    for name, factor in (("peers", 1.0), ("peers-avx2", 2.0)):
        rows = ((1024, "llama.cpp", *(factor * place for place in range(1, 6))),)
        results.save_result(name, [results.Table("Ours", columns, rows)], folder=tmp_path)
        for variable, value in isa.LIMITS["avx2"].items():
            monkeypatch.setenv(variable, value)
    first, _source, said, second, source = tables.speed_table(tmp_path).split("\n\n")
    assert first.endswith("| 1,024 | llama.cpp | 1 | 2 | 3 | 4 | 5 |") and "AVX2" in said
    assert second.endswith("| 1,024 | llama.cpp | 2 | 4 | 6 | 8 | 10 |") and "held to AVX2" in source


def test_the_table_of_instruction_sets_says_what_is_met(tmp_path, monkeypatch):
    """Times as fast are shares of llama.cpp's time there, aims are AVX2's alone, and reading that was not
    timed meets none.
    """
    columns = ("Context", "Peer", "prefill", "plain", "TriForce", "TriForce, T 0.6", "TriForce, T 1")
    rows = (
        (1024, "llama.cpp", 2.6, 0.8, 1.0, 1.25, 1.0),
        (1024, "llama.cpp, flash attention", 9.0, 9.0, 9.0, 9.0, 9.0),
        (8000, "llama.cpp", 2.4, 2.0, 1.0, 2.0, 1.0),
        (16_000, "llama.cpp", None, 2.0, 1.0, None, 1.0),
    )
    against = results.Table("Ours against each peer, times as fast", columns, rows)
    results.save_result("peers-as-it-is", [against], folder=tmp_path)
    for variable, value in isa.LIMITS["avx2"].items():
        monkeypatch.setenv(variable, value)
    results.save_result("peers-avx2", [against], folder=tmp_path)
    _heading, _rule, *shown = isa_table(tmp_path).split("\n\n")[0].splitlines()
    assert shown == [
        "| AVX2 | 1,024 | 0.80 (aim 0.8: met) | 1.25 (aim 1: not met) | 2.60 (aim 2.5: met) |",
        "| AVX2 | 8,000 | 0.50 (aim 0.45: not met) | 0.50 | 2.40 (aim 2.5: not met) |",
        "| AVX2 | 16,000 | – | 0.50 | – |",
        "| all it has | 1,024 | 0.80 | 1.25 | 2.60 |",
        "| all it has | 8,000 | 0.50 | 0.50 | 2.40 |",
        "| all it has | 16,000 | – | 0.50 | – |",
    ]


def test_the_table_of_a_book_is_what_plan_says(capsys: pytest.CaptureFixture):
    """Of a row with MTP: what `plan --json` prints, and at half of its acceptance what it prints then."""
    name, parts = "Qwen3.8-27B-Q4_K_M", {"gpu": "RTX 4090", "ram_gib": 64}
    asked = ["plan", "--gpu", "RTX 4090", "--ram", "64", "--model", name, "--context", "131072", "--json"]
    printed = []
    for more in ([], ["--draft-acceptance", "0.25"]):
        assert main([*asked, *more]) == 0
        printed.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert printed[0]["assumed_draft_acceptance"] == 2 * printed[1]["assumed_draft_acceptance"] == 0.5
    (row,) = (one for one in plan_tables.book_table().splitlines() if "RTX 4090" in one and "Q4_K_M" in one)
    cells = dict(zip(plan_tables.BOOK_COLUMNS, [one.strip() for one in row.split("|")[1:-1]], strict=True))
    assert cells["Between tokens"] == f"{printed[0]['expected_tbt_ms']:.0f} ms"
    assert cells["at half of MTP's acceptance"] == f"{printed[1]['expected_tbt_ms']:.0f} ms"
    assert cells["Drafts by"].startswith("lookup and MTP")
    stays = cells["Stays on the card"]
    assert stays == f"{printed[0]['on_chip_layers']} of {printed[0]['layers']} layers' cache"
    assert plan_tables.book_plan(name, parts)["expected_tbt_ms"] == printed[0]["expected_tbt_ms"]


def test_half_of_an_acceptance_is_told_of_the_same_cache():
    """Rounded, the 27B lies on 24 GB whole; at half of MTP's acceptance 16 bits of cache would be chosen,
    some of them beside the card: another plan's time.
    """
    (row,) = (one for one in plan_tables.book_table().splitlines() if "RTX 4090" in one and "rounded" in one)
    cells = dict(zip(plan_tables.BOOK_COLUMNS, [one.strip() for one in row.split("|")[1:-1]], strict=True))
    whole, half, plain = (
        int(cells[name].removesuffix(" ms"))
        for name in ("Between tokens", "at half of MTP's acceptance", "plain decoding")
    )
    stays = cells["Stays on the card"]
    assert whole < half < plain and stays == "16 of 16 layers' cache"


def test_a_table_with_uneven_rows_is_refused():
    """A missing cell would shift the figures of its row under the wrong heading."""
    with pytest.raises(AssertionError, match="rows without 2 cells"):
        results.Table("Speed", ("Mode", "TBT"), (("plain",),))


def test_the_tree_has_a_line_for_each_folder():
    """A folder without a word is a room nobody finds into."""
    of_core, of_cache = tables.tree(["core", "core/cache"]).splitlines()[1:3]
    assert re.match(r"core/     \w", of_core) and re.match(r"  cache/  \w", of_cache)
    with pytest.raises(AssertionError, match="core/new"):
        tables.tree(["core", "core/new"])


@pytest.mark.parametrize("text", ["no markers", "<!-- a:begin --><!-- a:begin --><!-- a:end -->"])
def test_filling_refuses_a_page_without_its_markers(text):
    """A marker lost in an edit would silently freeze the section."""
    with pytest.raises(AssertionError, match="exactly one"):
        tables.filled(text, "a", "new")


def test_startup_figures_are_medians_of_the_runs():
    """One slow run, such as the first after a restart of the machine, must not become the figure."""
    figures = {"ttft_s": 4, "prompt_tokens": 7000, "new_tokens": 200, "mode": "triforce"}
    summaries = [startup.SummaryRun(seconds, figures) for seconds in (30.0, 90.0, 31.0)]
    made = startup.startup_table("book.epub", [0.5, 0.7, 9.0], [2.0, 2.5, 3.0], summaries)
    assert [row[1] for row in made.rows] == [0.7, 2.5, 31.0, 4.0]
