"""What is chosen in the app is kept, in its place between config.yaml and the defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lxml import html

import core.config
from app.cli.parser import main
from app.host.instance import Address
from app.models.catalogue import Models
from app.server import main as main_module
from app.store import preferences as module
from app.store.preferences import Preferences, as_typed, differ, fixed
from app.store.settings_docs import keys_set, program_entries
from app.web.page import Page
from core import paths
from core.config import RULES, Settings, load_settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from tests.support.fake_runtime import FakeRuntime, wait_until

PROGRAMS_OWN = core.config.DEFAULT_PATH


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A function that writes the program's config.yaml."""
    path = tmp_path / "config.yaml"
    monkeypatch.setattr("core.config.DEFAULT_PATH", path)

    def write(text: str) -> None:
        path.write_text(text)

    write("")
    return write


def started(options: dict | None = None) -> Preferences:
    """As the command line begins: the file, the options, and what is fixed by them."""
    from core.config import override

    given = options or {}
    return Preferences(override(load_settings(), given), fixed(given))


def test_the_order_is_command_line_file_app_default(file):
    preferences = started()
    for key, value in (("temperature", "0.5"), ("top_p", "0.6"), ("max_new_tokens", "64")):
        preferences.choose(key, value)
    file("temperature: 0.9\ntop_p:\nmax_new_tokens: 128\n")
    again = started({"max_new_tokens": "256"})
    now = again.settings
    assert (now.temperature, now.top_p, now.max_new_tokens, now.seed) == (0.9, 0.6, 256, None)
    where = [again.origin(key) for key in ("temperature", "top_p", "max_new_tokens", "seed")]
    assert where == ["config.yaml", "app", "command line", "default"]
    file("")
    assert started().settings.temperature == 0.5, "what was fixed for a while is not forgotten"


def test_a_key_that_stands_in_the_file_holds_also_where_it_says_the_default(file):
    """Whoever writes `temperature: auto` means it, whatever was clicked on in the app."""
    preferences = started()
    preferences.choose("temperature", "0.5")
    preferences.choose("max_new_tokens", "64")
    file("temperature: auto\nmax_new_tokens: 512\n")
    again = started()
    assert (again.settings.temperature, again.settings.max_new_tokens) == (None, 512)
    assert [again.origin(key) for key in ("temperature", "max_new_tokens")] == ["config.yaml"] * 2
    with pytest.raises(UserError, match=r"config\.yaml"):
        again.choose("temperature", "0.5")


def shipped(version: str) -> str:
    """config.yaml as an earlier version came with it: every key with its value."""
    return (Path(__file__).parent / "earlier_settings" / f"{version}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", ["first", "last"])
def test_the_file_of_an_earlier_version_locks_what_a_person_changed_in_it_and_nothing_else(file, version):
    """It named every key with its default: nobody had chosen these, and the app could change none of them."""
    file(shipped(version).replace("max_new_tokens: 512", "max_new_tokens: 600"))
    assert keys_set() == ("max_new_tokens",)
    preferences = started()
    preferences.choose("mode", "ngram")
    preferences.choose("seed", "7")
    again = started()
    assert (again.settings.mode, again.settings.seed, again.origin("reading_mode")) == ("ngram", 7, "default")
    with pytest.raises(UserError, match="is fixed by"):
        again.choose("max_new_tokens", "64")


def test_defaults_of_the_first_version_do_not_hold_as_if_they_were_chosen(file, monkeypatch):
    """0.3 was every model's temperature once; today each has its own."""
    held = []
    monkeypatch.setattr("app.cli.parser.use_data_dir", held.append)
    for text in (shipped("first"), shipped("first").replace("temperature: 0.3", "temperature: 0.4")):
        file(text)
        main(["models", "path"])
    assert [one.temperature for one in held] == [None, 0.4]
    assert {(one.top_p, one.repetition_penalty, one.snapshot_quota_gb) for one in held} == {(None,) * 3}


def test_a_key_set_in_the_file_of_this_version_is_set_also_where_it_says_the_default(file):
    file(PROGRAMS_OWN.read_text(encoding="utf-8").replace("#temperature: auto", "temperature: auto"))
    assert keys_set() == ("temperature",)


def test_an_own_file_hides_no_setting(file, desk, home):
    """The manual is a file that a person may have written anew, or an old one: it does not name them all."""
    for text in ("temperature: 0.9\n", shipped("first"), ""):
        file(text)
        shown = "".join(Page(desk).render()["preferences"])
        assert all(f'id="set-{key}"' in shown for key in RULES)
    file("temperature: 0.9\n")
    newer = core.config.DEFAULT_PATH.with_name("config.new.yaml")
    newer.write_text(PROGRAMS_OWN.read_text(encoding="utf-8"))
    shown = "".join(Page(desk).render()["preferences"])
    assert "always takes the likeliest token" in shown and "Others" not in shown


@pytest.mark.parametrize(("key", "value"), [("temperature", "0.5"), ("max_new_tokens", "64")])
def test_a_fixed_key_is_locked_and_says_where(file, key, value):
    file("temperature: 0.9\n")
    preferences = started({"max_new_tokens": "256"})
    with pytest.raises(UserError, match="is fixed by"):
        preferences.choose(key, value)
    assert preferences.settings.temperature == 0.9 and preferences.settings.max_new_tokens == 256


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", "9"),
        ("mode", "fast"),
        ("model", "other"),
        ("data_dir", "/tmp"),
        ("nothing", "1"),
        ("stop", "3"),
        ("retrieval_budget", "[1"),
        ("seed", "yes"),
    ],
)
def test_what_is_not_allowed_is_refused_in_words_and_changes_nothing(file, home, key, value):
    preferences = started()
    before = preferences.settings
    with pytest.raises(UserError):
        preferences.choose(key, value)
    assert preferences.settings == before and not (home / "settings.json").exists()


def test_instructions_are_taken_as_they_are_typed(file):
    """Read as YAML, a colon would make a mapping of them."""
    preferences = started()
    preferences.choose("instructions", "Answer: briefly, # and 'so'")
    assert started().settings.instructions == "Answer: briefly, # and 'so'"
    preferences.choose("instructions", "")
    assert started().settings.instructions == ""


def test_values_that_are_wrong_together_are_refused(file):
    preferences = started()
    preferences.choose("retrieval_chunk", "64")
    with pytest.raises(UserError, match="at least two chunks"):
        preferences.choose("retrieval_budget", "64")
    assert preferences.settings.retrieval_budget is None


def test_reset_is_the_default_again_also_after_a_restart(file, home):
    preferences = started()
    preferences.choose("verify", "true")
    assert started().settings.verify is True
    preferences.reset("verify")
    assert preferences.settings == Settings() and preferences.origin("verify") == "default"
    assert started().settings == Settings() and json.loads((home / "settings.json").read_text()) == {}


@pytest.mark.parametrize("text", ["{", "[1, 2]", "", "\xff"])
def test_a_damaged_file_is_kept_aside_and_said(file, home, text):
    (home / "settings.json").write_text(text, encoding="latin-1")
    preferences = started()
    assert "damaged" in preferences.warning and preferences.settings == Settings()
    assert (home / "settings.damaged.json").read_text(encoding="latin-1") == text
    preferences.choose("temperature", "0.5")
    assert started().settings.temperature == 0.5


def test_keys_that_are_not_allowed_any_more_are_said_and_the_rest_holds(file, home):
    stored = {"temperature": 0.5, "mode": "fastest", "of_a_newer_version": 1, "model": "x"}
    (home / "settings.json").write_text(json.dumps(stored))
    preferences = started()
    assert preferences.settings == Settings(temperature=0.5)
    for key in ("mode", "of_a_newer_version", "model"):
        assert key in preferences.warning


def test_a_disk_that_is_full_changes_nothing(file, monkeypatch):
    preferences = started()

    def fail(*_args) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_whole", fail)
    with pytest.raises(OSError):
        preferences.choose("temperature", "0.5")
    assert preferences.settings == Settings()


def test_every_key_can_be_typed_as_it_is_shown(file):
    preferences = started()
    for key in RULES:
        if key not in module.ELSEWHERE:
            preferences.choose(key, as_typed(getattr(Settings(), key)))
    assert preferences.settings == Settings()


def test_every_key_of_the_file_is_on_the_page_with_what_it_does(desk):
    shown = "".join(Page(desk).render()["preferences"])
    for _group, keys in program_entries():
        for one in keys:
            assert f'id="set-{one.key}"' in shown and len(one.explained) > 10
    assert {one.key for _group, keys in program_entries() for one in keys} == set(RULES)


def test_a_refused_value_is_said_at_its_field_until_a_good_one_is_taken(desk):
    """It was said behind the drawer, and stood there when a good value was in the field."""
    desk.actions.dispatch({"act": "set", "id": "temperature", "value": "9"})
    shown = "".join(Page(desk).render()["preferences"])
    assert 'value="9"' in shown and 'id="refused-temperature"' in shown and desk.state.notice is None
    desk.actions.dispatch({"act": "set", "id": "temperature", "value": "0,7"})
    assert desk.preferences.settings.temperature == 0.7
    assert "refused-" not in "".join(Page(desk).render()["preferences"])


@pytest.mark.parametrize("moved", [False, True])
def test_a_data_folder_that_a_variable_names_can_be_moved_and_says_that_it_was(
    desk, monkeypatch, tmp_path, moved
):
    """There was no way to another drive, and the folder that is named is not the one in use after a move."""
    (tmp_path / "drive").mkdir()
    if moved:
        paths.pointer().write_text(json.dumps({"to": str(tmp_path / "drive")}))
    top = Page(desk).render()["preferences"][0]
    assert 'data-act="move-data"' in top and f'data-text="{paths.data_dir()}"' in top
    assert ("TRIFORCE_HOME" in top) is moved and (str(paths.named_dir()) in top)


def test_what_holds_meanwhile_is_said_also_where_it_is_nothing(desk):
    """It was "Until then holds."."""
    desk.actions.dispatch({"act": "set", "id": "instructions", "value": "x" * 1500})
    drawer = html.fromstring("".join(Page(desk).render()["preferences"]))
    said = drawer.xpath("//p[@id='refused-instructions']")[0].text_content()
    assert not re.search(r"then\s+holds", said) and said.count("x") < 90


@pytest.mark.parametrize(("typed", "value"), [("0,7", 0.7), ("0,125", 0.125), ("1,5", 1.5), ("1.5", 1.5)])
def test_a_decimal_comma_is_one(file, typed, value):
    preferences = started()
    preferences.choose("temperature", typed)
    assert preferences.settings.temperature == value


def test_a_comma_between_thousands_is_no_decimal_one(file):
    with pytest.raises(UserError):
        started().choose("temperature", "1,250")


def test_what_the_engine_does_not_know_yet_waits_for_its_restart(desk, engine):
    desk.preferences.choose("temperature", "0.5")
    desk.preferences.choose("reading_mode", "chunked")
    assert desk.engine_settings.unapplied == [] and 'data-act="apply"' not in "".join(
        Page(desk).render()["preferences"]
    )
    desk.preferences.choose("gamma", "8")
    assert desk.engine_settings.unapplied == ["gamma"] and 'data-act="apply"' in "".join(
        Page(desk).render()["preferences"]
    )
    desk.engine_settings.apply()
    wait_until(lambda: engine.state == "ready" and engine.renewed)
    assert desk.engine_settings.unapplied == [] and engine.renewed[0].gamma == 8
    assert differ(Settings(), Settings(port=1, temperature=1.0, threads=3)) == ["threads"]


class Entry:
    """What starts the app at login, in memory."""

    on, refused = False, False

    def is_on(self) -> bool:
        """See LoginEntry."""
        return self.on

    def turn_on(self) -> None:
        """See LoginEntry."""
        if self.refused:
            raise OSError("read-only")
        self.on = True

    def turn_off(self) -> None:
        """See LoginEntry."""
        self.on = False


def test_starting_at_login_follows_the_setting(file, home, monkeypatch):
    entry = Entry()
    monkeypatch.setattr(main_module, "LoginEntry", lambda _root: entry)
    preferences = started()
    main_module._follow_login(preferences)
    assert not entry.on, "off unless somebody wants it"
    preferences.choose("start_at_login", "true")
    assert entry.on
    preferences.reset("start_at_login")
    assert not entry.on
    entry.refused = True
    with pytest.raises(UserError, match="read-only"):
        preferences.choose("start_at_login", "true")
    assert not preferences.settings.start_at_login


class Unserved:
    """A server without a page: the person acts at once (`person`), and quits."""

    quit = moved = False

    def __init__(self, desk, _settings, *, keys):
        self._desk = desk

    def watch(self, told):
        """See Server."""

    def start(self):
        """See Server."""
        return Address(1, "secret", 1)

    def wait(self):
        """See Server."""
        self.person(self._desk)

    def stop(self):
        """See Server."""
        self._desk.close()


def test_the_program_that_serves_the_page_follows_what_is_chosen_about_the_login(file, home, monkeypatch):
    """The setting alone starts nothing: the entry has to hear of it as long as the app runs."""
    entry, seen = Entry(), []
    monkeypatch.setattr(main_module, "LoginEntry", lambda _root: entry)
    monkeypatch.setattr(main_module, "Server", Unserved)
    monkeypatch.setattr(main_module, "_open", lambda *_given: None)
    monkeypatch.setattr(main_module.signal, "signal", lambda *_given: None)
    monkeypatch.setattr("app.engine.client.Runtime", lambda _settings: FakeRuntime())
    monkeypatch.setattr(
        "app.models.catalogue.Models", lambda settings: Models(settings, look=imagined_hardware)
    )

    def person(_server, desk):
        seen.append(entry.on)
        for value in ("true", "false", "true"):
            desk.actions.dispatch({"act": "set", "id": "start_at_login", "value": value})
            seen.append(entry.on)

    monkeypatch.setattr(Unserved, "person", person, raising=False)
    assert main_module.run_app(Settings(), False) == 0
    assert seen == [False, True, False, True]
    entry.on = False  # taken away by somebody else while the app was closed
    monkeypatch.setattr(Unserved, "person", lambda _server, _desk: seen.append(entry.on))
    assert main_module.run_app(Settings(), False) == 0
    assert seen[-1], "what was chosen holds at the next start"
