"""What a person or another program may rely on: commands and options stay, and settings, requests and stored
conversations are read under the names that they had in earlier versions.
"""

from __future__ import annotations

import argparse
import json

import pytest

from app.api.request import parse_request
from app.cli.parser import build_parser, main
from app.render import conversation_json
from app.store.history import History
from app.store.preferences import Preferences
from app.store.settings_docs import keys_set, program_entries
from app.store.turns import asked_again
from core import paths
from core.config import Settings, load_settings
from core.errors import UserError
from core.request import Request
from core.text.renamed import renamed

MODEL = "--context --kv --model --weights"
ANSWER = (
    "--budget --gamma --instructions --max-new-tokens --mode --repetition-penalty --seed --stop "
    "--temperature --top-p --verify"
)
BOOK = (
    f"{MODEL} {ANSWER} --chapters --fit --length --ocr --offline --password --summaries --until --whole-page"
)
COMMANDS = {
    "summarize": f"{BOOK} --question --json --reading-mode --spoiler-limit",
    "chat": f"{BOOK} --reading-mode --spoiler-limit",
    "extract": "--json --ocr --password --text --whole-page",
    "doctor": "--gpu --json --measure",
    "plan": f"{MODEL} --acceptance --gpu --json --os --pcie --ram --vram",
    "models": "--gpu --json --offline --os --pcie --ram --to --vram",
    "use": "",
    "snapshots": "--json",
    "tune": f"{MODEL} --book --json --temperature",
    "train-draft": "--data --device --epochs --head-tokens --layers --out --seed --start --target --threads "
    "--tokens",
    "serve": "--api --offline",
    "app": "--offline",
    "api-key": "",
    "mcp": "",
}
JSON_KEYS = {  # what a program that reads `--json` may rely on; those of an answer: test_cli_answers
    "plan": "model device devices context_tokens weights_bits weights_format kv_bits residency "
    "on_chip_layers retrieval_budget gamma middle_gamma draft_model drafter expected_tbt_ms "
    "expected_plain_tbt_ms expected_prefill_s assumed_acceptance pcie_gb_per_s exact_for notes",
    "models": "name file bytes licence fits recommended reason context_tokens tbt_ms read_100k_s "
    "would_fit_with",
    "snapshots": "books bytes folder quota_bytes",
    "extract": "title author format words chapters warnings",
    "doctor": "hardware measured packages problems settings snapshots system would_run",
}
PC = ("--gpu", "RTX 4090", "--ram", "64", "--json")
EARLIER_MODES = {"whole": "full", "sections": "chunked", "passages": "retrieval", "auto": "auto"}


@pytest.mark.parametrize(
    "given",
    [
        ("plan", *PC),
        ("models", *PC),
        ("snapshots", "--json"),
        ("extract", str(paths.ROOT / "assets/samples/the-thursday-clock.md"), "--json"),
        ("doctor", "--json"),
    ],
    ids=lambda given: given[0],
)
def test_every_key_of_json_is_still_there(given, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path))
    assert main(list(given)) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = printed if given[0] == "models" else [printed]
    assert rows and all(set(JSON_KEYS[given[0]].split()) <= set(row) for row in rows)


def test_every_command_and_option_is_still_there():
    parser = build_parser()
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    assert set(commands.choices) == set(COMMANDS)
    for name, options in COMMANDS.items():
        assert set(options.split()) <= set(commands.choices[name]._option_string_actions), name


@pytest.mark.parametrize(("earlier", "mode"), EARLIER_MODES.items())
def test_options_are_taken_under_their_earlier_names(earlier, mode):
    old = build_parser().parse_args(["summarize", "book.txt", "--fit", earlier, "--until", "3"])
    new = build_parser().parse_args(["summarize", "book.txt", "--reading-mode", mode, "--spoiler-limit", "3"])
    assert vars(old) == vars(new) and old.reading_mode == mode


@pytest.mark.parametrize(("earlier", "mode"), EARLIER_MODES.items())
def test_settings_are_read_under_their_earlier_names(earlier, mode, tmp_path, monkeypatch):
    file = tmp_path / "config.yaml"
    file.write_text(f"# ---- Reading ----\n\n# How a book is read.\nfit: {earlier}\n")
    monkeypatch.setattr("core.config.DEFAULT_PATH", file)
    assert load_settings().reading_mode == mode
    if mode != "auto":
        assert keys_set() == ("reading_mode",)
    assert program_entries()[0][1][0].key == "reading_mode"


def test_where_a_setting_stands_under_both_names_todays_holds(tmp_path):
    file = tmp_path / "both.yaml"
    file.write_text("fit: passages\nreading_mode: full\n")
    assert load_settings(file).reading_mode == "full"


def test_a_wrong_value_under_an_earlier_name_is_refused_by_todays(tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("fit: fast\n")
    with pytest.raises(UserError, match="reading_mode is 'fast'; allowed is"):
        load_settings(file)


def test_a_choice_made_in_the_app_is_kept(tmp_path):
    (paths.data_dir() / "settings.json").write_text(json.dumps({"fit": "sections"}))
    kept = Preferences(Settings())
    assert (
        kept.settings.reading_mode == "chunked" and kept.origin("reading_mode") == "app" and not kept.warning
    )
    kept.reset("reading_mode")
    assert Preferences(Settings()).settings.reading_mode == "auto"


def test_a_stored_question_is_asked_again_as_it_was_asked(tmp_path):
    history = History(tmp_path / "chats.db")
    talk = history.create("", 4).id
    before = {"ticked": [2, 3], "fit": "sections", "until": 4, "summary": True}
    history.add(talk, "user", "Summarise", extra=before)
    history.ask(talk, Request(None, selected_chapters=(2, 3), reading_mode="chunked", spoiler_limit=4))
    old, new = history.turns(talk)
    assert asked_again(old) == asked_again(new)
    assert old.extra["spoiler_limit"] == new.extra["spoiler_limit"] == 4


def test_an_exported_conversation_of_an_earlier_version_is_taken():
    extra = {"fit": "passages", "ticked": [3, 1], "until": 2, "chapters": None, "summary": False}
    kept = conversation_json._carried("user", extra)
    assert (kept["reading_mode"], kept["selected_chapters"], kept["spoiler_limit"]) == (
        "retrieval",
        [1, 3],
        2,
    )


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"fit": "passages"}, "retrieval"),
        ({"reading_mode": "full"}, "full"),
        ({"reading_mode": "whole"}, "full"),
    ],
)
def test_another_program_may_use_the_earlier_names(given, mode, book):
    def asked(**own) -> Request:
        said = {"model": "m", "messages": [{"role": "user", "content": "Who?"}], "triforce": own}
        return parse_request(json.dumps(said).encode(), {"m": book.sha256}, lambda _id: book).ask

    assert asked(**given).reading_mode == mode
    assert asked(until=1).spoiler_limit == asked(spoiler_limit=1).spoiler_limit == 1


def test_other_keys_stay_as_they_are():
    assert renamed({"port": 7860, 3: None, "reading_mode": 5}) == {"port": 7860, 3: None, "reading_mode": 5}
