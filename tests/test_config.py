"""Settings: what config.yaml promises and what a wrong line says."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
import yaml

from core.config import DEFAULT_PATH, RULES, Settings, _not_allowed, load_settings, override, use_data_dir
from core.errors import UserError
from tests.support.said import figures, worded_by


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_file_says_the_defaults(tmp_path):
    """The file in the repository and the defaults in the code must not drift apart."""
    text = DEFAULT_PATH.read_text(encoding="utf-8")
    shown = write(tmp_path, re.sub(r"(?m)^#(?=[a-z_]+: )", "", text))
    assert load_settings(shown, {}) == Settings()
    assert len(yaml.safe_load(shown.read_text(encoding="utf-8"))) == len(fields(Settings))


def test_shipped_file_sets_nothing():
    """A key that is set there cannot be chosen in the app."""
    assert yaml.safe_load(DEFAULT_PATH.read_text(encoding="utf-8")) is None
    assert load_settings(None, {}) == Settings()


def test_every_key_is_in_the_shipped_file_below_a_comment():
    """A key without a word of explanation, or one that only exists in code."""
    lines = DEFAULT_PATH.read_text(encoding="utf-8").splitlines()
    found = []
    documented = False
    for line in lines:
        key = re.match(r"#([a-z_]+):", line)
        if key:
            assert documented, f"{key[1]} has no comment above it"
            found.append(key[1])
        else:
            documented = line.startswith("#") and not line.startswith("# ----")
    assert sorted(found) == sorted(field.name for field in fields(Settings))


def test_auto_is_none_and_overrides_win(tmp_path):
    settings = load_settings(
        write(tmp_path, "gamma: 6\nseed: auto\ncontext_tokens: 32_768\ntemperature: 1e-1\n"),
        {"gamma": "auto", "temperature": 0.7, "top_p": None},
    )
    assert (settings.gamma, settings.seed, settings.context_tokens) == (None, None, 32768)
    assert (settings.temperature, settings.top_p) == (0.7, None)


def test_yaml_number_written_as_text(tmp_path):
    """YAML 1.1 reads 1e-1 as text; the user meant a number."""
    assert load_settings(write(tmp_path, "temperature: 1e-1"), {}).temperature == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("written", "read"), [("on", "on"), ("off", "off"), ("auto", "auto"), ("'On'", "on")]
)
def test_on_and_off_without_quotes(tmp_path, written, read):
    """YAML 1.1 makes truth values of them."""
    settings = load_settings(write(tmp_path, f"cuda_graphs: {written}"))
    assert settings.cuda_graphs == read
    assert Settings.from_json(settings.to_json()) == settings


def test_unknown_key_names_the_nearest(tmp_path):
    with pytest.raises(UserError, match="unknown key 'retrieval_buget'.*'retrieval_budget'"):
        load_settings(write(tmp_path, "retrieval_buget: 512"), {})
    with pytest.raises(UserError, match="command line: unknown key 'max-new-token'.*'max_new_tokens'"):
        load_settings(None, {"max-new-token": 5})


def test_a_key_of_an_earlier_version_is_passed_over(tmp_path, caplog):
    """A person's own file must not stop the program because a key of it is gone."""
    settings = load_settings(write(tmp_path, "weights_kernel: int4\ngamma: 3\n"), {})
    assert settings == Settings(gamma=3) and "weights_kernel is no setting any more" in caplog.text


def test_all_problems_are_named_at_once(tmp_path):
    with pytest.raises(UserError) as caught:
        load_settings(write(tmp_path, "top_p: 1.5\nmode: fast\ngama: 3\n"), {})
    message = str(caught.value)
    found = [one.values for one in worded_by(_not_allowed, message)]
    assert [(one["key"], one["value"]) for one in found] == [("top_p", "1.5"), ("mode", "'fast'")]
    assert "auto" in found[0]["allowed"] and figures(found[0]["allowed"]) == ["0.01", "1"]
    assert "triforce" in found[1]["allowed"]
    assert "'gamma'" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("repetition_penalty", 0.9),
        ("repetition_penalty", 2.1),
        ("temperature", -0.1),
        ("temperature", "warm"),
        ("temperature", float("nan")),
        ("temperature", True),
        ("max_new_tokens", 0),
        ("max_new_tokens", 1.5),
        ("context_tokens", "many"),
        ("context_tokens", float("inf")),
        ("verify", "maybe"),
        ("port", 70000),
        ("theme", "blue"),
        ("model", 3),
        ("model", ""),
        ("gamma", [4]),
        ("reading_mode", "None"),
        ("dtype", "fp8"),
        ("seed", -1),
    ],
)
def test_bad_values_are_refused_with_the_allowed_range(key, value):
    with pytest.raises(UserError, match=f"{key} is .*; allowed is "):
        load_settings(None, {key: value})


def test_a_long_value_that_is_refused_is_not_said_whole():
    """A text of 1,500 letters pushed the drawer of settings out of the window."""
    with pytest.raises(UserError, match="instructions is 'x+ …; allowed is ") as caught:
        load_settings(None, {"instructions": "x" * 1500})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("key", [name for name, rule in RULES.items() if rule.auto])
def test_every_auto_key_accepts_auto(key):
    assert getattr(load_settings(None, {key: "Auto"}), key) is None


def test_values_that_do_not_go_together():
    with pytest.raises(UserError, match="at least two chunks must fit"):
        load_settings(None, {"retrieval_budget": 64, "retrieval_chunk": 64})
    with pytest.raises(UserError, match="leave room for the question"):
        load_settings(None, {"context_tokens": 512, "max_new_tokens": 512})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "one `key: value` per line"),
        ("mode: [triforce\n", "cannot be understood"),
        ("just words", "`key: value`"),
    ],
)
def test_broken_files_say_what_is_wrong(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_settings(write(tmp_path, text), {})


def test_missing_file_and_empty_file(tmp_path):
    with pytest.raises(UserError, match="no settings file"):
        load_settings(tmp_path / "absent.yaml", {})
    assert load_settings(write(tmp_path, "# nothing\n"), {}) == Settings()


def test_file_that_is_not_text(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"theme: \xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        load_settings(path, {})


def test_override_checks_like_the_file():
    assert override(Settings(), {"gamma": 8}).gamma == 8
    with pytest.raises(UserError, match="gamma is 0"):
        override(Settings(), {"gamma": 0})
    with pytest.raises(FrozenInstanceError):
        Settings().gamma = 3


def test_settings_cross_a_pipe_unchanged(tmp_path):
    """An auto given on the command line must not be taken for "not given" by the process that receives it."""
    settings = load_settings(
        None, {"gamma": 6, "data_dir": str(tmp_path), "model": "Qwen3-8B", "temperature": 0}
    )
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert Settings.from_json(Settings().to_json()) == Settings()


def test_data_dir_reaches_the_paths_but_the_environment_wins(monkeypatch, tmp_path):
    from core.paths import data_dir

    monkeypatch.delenv("TRIFORCE_HOME")
    use_data_dir(load_settings(None, {"data_dir": str(tmp_path / "mine")}))
    assert data_dir() == tmp_path / "mine"
    use_data_dir(load_settings(None, {"data_dir": str(tmp_path / "other")}))
    assert data_dir() == tmp_path / "mine"
