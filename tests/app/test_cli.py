"""The command line as a person runs it: exit codes and messages of commands that answer nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from app.cli import parser
from app.server.main import data_folder_key
from tests.support.command_line import short_book
from tests.support.saved_pages import news
from tests.tiers import first

REPO = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return short_book(tmp_path)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["summarize", "--help"], ["extract", "BOOK"], ["models", "path"]]
)
def test_light_commands_import_neither_torch_nor_gradio(arguments: list[str], book: Path):
    """Seconds of start-up for a help text, and an environment half made must still say what is wrong."""
    arguments = [str(book) if argument == "BOOK" else argument for argument in arguments]
    code = (
        "import sys; from app.cli import parser\n"
        f"try:\n    status = parser.main({arguments!r})\nexcept SystemExit as end:\n    status = end.code\n"
        "heavy = {'torch', 'gradio', 'transformers'} & set(sys.modules)\nassert not status, status\nassert "
        "not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["read"],
        ["summarize"],
        ["summarize", "x", "--chapters", "two"],
        ["summarize", "x", "--mode", "magic"],
        ["summarize", "x", "--temperature", "9"],
        ["summarize", "x", "--max-new-tokens", "0"],
        ["plan", "--ram", "-1"],
        ["train-draft", "--out", "x"],
        ["train-draft", "--out", "x", "--data", "y", "--tokens", "many"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parser.main(arguments)
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_users_mistake_is_1_without_traceback(capsys: pytest.CaptureFixture[str]):
    assert parser.main(["extract", "no such book.epub"]) == 1
    said = capsys.readouterr()
    assert "no such book.epub" in said.err and "Traceback" not in said.err and said.out == ""


def test_extract_shows_what_is_read(book: Path, capsys: pytest.CaptureFixture[str]):
    assert parser.main(["extract", str(book), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) == {"title", "author", "format", "words", "chapters", "warnings"}
    assert [set(chapter) for chapter in facts["chapters"]] == [{"title", "words"}] * 2
    assert facts["format"] == "markdown"
    assert parser.main(["extract", str(book), "--text"]) == 0
    assert "keeper of lamp 2" in capsys.readouterr().out
    assert parser.main(["extract", str(book)]) == 0
    assert "2 chapters" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "ocr"), [([], False), (["--ocr"], True)])
def test_extract_reads_pictures_when_asked(
    options: list[str], ocr: bool, book: Path, monkeypatch: pytest.MonkeyPatch
):
    import core.documents

    asked, read = [], core.documents.read_safely
    monkeypatch.setattr(
        core.documents, "read_safely", lambda path, **given: asked.append(given["ocr"]) or read(path)
    )
    assert parser.main(["extract", str(book), *options]) == 0 and asked == [ocr]


def test_extract_shows_an_article_and_all_of_its_page_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "page.html"
    path.write_text(news()[0], encoding="utf-8")
    shown = []
    for options in ([], ["--whole-page"]):
        assert parser.main(["extract", str(path), "--text", *options]) == 0
        shown.append(capsys.readouterr().out)
    article, page = shown
    assert "Great read." in page and "Great read." not in article and len(article) > 2000


@pytest.mark.parametrize("machine", [[], ["--gpu", "RTX 4060"]], ids=["no card", "a card of 8 GB"])
def test_a_pc_of_16_gb_is_named_a_model_that_holds_a_whole_book(machine, capsys):
    """By the command line alone: which model it should have, and that model's plan. Without a card, of which
    size depends on this computer's cores.
    """
    assert parser.main(["models", *machine, "--ram", "16", "--json"]) == 0
    (chosen,) = [model for model in json.loads(capsys.readouterr().out) if model["recommended"]]
    assert parser.main(["plan", "--model", chosen["name"], *machine, "--ram", "16", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["context_tokens"] == 131_072 and plan["device"] == ("cuda" if machine else "cpu")
    small = "gemma-4-E4B-it" if machine else r"(Qwen3\.5-(0\.8|2|4)B|gemma-4-E[24]B-it)"
    assert re.fullmatch(rf"{small}-Q4_K_M", plan["model"])
    assert plan["kv_bits"] == 16


def test_plan_for_an_imagined_machine(capsys: pytest.CaptureFixture[str]):
    arguments = [
        "plan",
        "--model",
        "Llama-3.2-3B-Instruct",
        "--context",
        "32768",
        "--gpu",
        "RTX 4090",
        "--ram",
        "64",
        "--os",
        "linux",
    ]
    assert parser.main([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["device"], plan["context_tokens"]) == ("cuda", 32768)
    assert parser.main(arguments) == 0
    assert "VRAM" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "bits", "exact_for"),
    [
        ([], (16, 16), "Llama 3.1 8B Instruct, 16-bit weights, 16-bit KV cache"),
        (["--weights", "4"], (4, 16), "Llama 3.1 8B Instruct, 4-bit weights (Q4_0), 16-bit KV cache"),
        (
            ["--weights", "8", "--kv", "8"],
            (8, 8),
            "Llama 3.1 8B Instruct, 8-bit weights (Q8_0), 8-bit KV cache",
        ),
    ],
)
def test_the_formats_of_a_plan_are_asked_for_and_named(options, bits, exact_for, capsys):
    """One option away from 16 bits, and back: whoever plans must see which model answers are exact for."""
    machine = ["--gpu", "RTX 4090", "--ram", "64", "--os", "linux", "--json"]
    asked = ["plan", "--model", "Llama-3.1-8B-Instruct", "--context", "8192", *machine, *options]
    assert parser.main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["weights_bits"], found["kv_bits"], found["exact_for"]) == (
        *bits,
        f"{exact_for}, up to rounding on the card",
    )


def test_a_machine_with_several_cards_is_imagined(capsys: pytest.CaptureFixture[str]):
    """Whoever thinks of a second card must see what the model gains by both."""
    asked = ["plan", "--model", "Yarn-Llama-2-7b-128k", "--gpu", "RTX 4090", "--gpus", "2", "--ram", "64"]
    assert parser.main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == [0, 1]


def test_models_are_listed(capsys: pytest.CaptureFixture[str]):
    assert parser.main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"SmolLM2-135M-Instruct", "Qwen3-8B"} <= {model["name"] for model in listed}
    assert parser.main(["models", "download"]) == 1


PCS = [
    ["--gpu", "none", "--ram", "8"],
    ["--gpu", "none", "--ram", "16"],
    ["--gpu", "none", "--ram", "32"],
    ["--gpu", "RTX 4060", "--vram", "6", "--ram", "16"],
    ["--gpu", "RTX 4060", "--ram", "32"],
    ["--gpu", "RTX 4070", "--ram", "32", "--pcie", "12"],
    ["--gpu", "RTX 4080", "--ram", "32", "--os", "windows"],
    ["--gpu", "RTX 4090", "--ram", "64"],
    ["--gpu", "RTX 5090", "--ram", "64"],
    ["--gpu", "RX 7900 XTX", "--ram", "32"],
    ["--gpu", "none", "--ram", "16", "--os", "macos"],
    ["--gpu", "Apple M3", "--ram", "32", "--os", "macos"],
]
FACTS = ["name", "recommended", "fits", "reason", "would_fit_with", "file", "bytes", "licence"]
FACTS += ["context_tokens", "tbt_ms", "read_100k_s"]


@pytest.mark.parametrize("pc", first(PCS, 4), ids=" ".join)
def test_every_pc_has_one_model_to_have_and_says_what_the_others_need(pc, capsys):
    """As JSON for a program that buys or installs: these fields and no others."""
    assert parser.main(["models", *pc, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert all(list(model) == FACTS for model in listed)
    (chosen,) = [model for model in listed if model["recommended"]]
    assert chosen["fits"] and chosen["reason"] == chosen["would_fit_with"] == ""
    assert chosen["licence"] == "Apache-2.0" and chosen["bytes"] < 20e9
    for model in listed:
        assert isinstance(model["recommended"], bool) and isinstance(model["fits"], bool)
        assert model["fits"] == (not model["reason"]) == (model["tbt_ms"] is not None)
        if model["fits"]:
            assert model["context_tokens"] > 0 and model["tbt_ms"] > 0 and model["read_100k_s"] > 0


def test_models_are_listed_for_another_pc(capsys: pytest.CaptureFixture[str]):
    """Before buying one: what fits, one that is recommended, and what the others would need."""
    pc = ["models", "--gpu", "RTX 4060", "--ram", "32", "--pcie", "12", "--os", "linux"]
    assert parser.main([*pc, "--json"]) == 0
    listed = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    (chosen,) = [model for model in listed.values() if model["recommended"]]
    assert chosen["file"].endswith(".gguf") and chosen["read_100k_s"] > 0
    assert "a card with" in listed["Qwen3-8B"]["would_fit_with"] and listed["Qwen3-8B"]["tbt_ms"] is None
    assert listed["Qwen3-8B-Q4_K_M"]["file"] == "Qwen3-8B-Q4_K_M.gguf"
    assert "gpt-oss" in listed["gpt-oss-20b"]["reason"]
    assert "mixture of experts" in listed["gemma-4-26B-A4B-it"]["reason"]
    assert parser.main(["models", "--gpu", "RX 7900 XTX", "--ram", "32"]) == 0
    said = capsys.readouterr().out
    assert "RX 7900 XTX is not used" in said and said.count("recommended for this computer") == 1
    expected = re.findall(r"of context; expected: \d+ ms per token, first answer after .*, a 300-page", said)
    assert len(expected) == said.count("first answer after") > 10, "a time that says it was measured"


def test_doctor_reports(capsys: pytest.CaptureFixture[str]):
    assert parser.main(["doctor", "--json"]) == 0
    assert {"hardware", "would_run", "problems", "snapshots"} <= set(json.loads(capsys.readouterr().out))
    assert parser.main(["doctor"]) == 0
    assert re.search(r"snapshots +0 [KM]B of 0 books, at most [0-9.]+ [GM]B, in ", capsys.readouterr().out)


def test_doctor_tries_a_kernel_again_when_asked(monkeypatch: pytest.MonkeyPatch):
    """One that broke the program stays left out until somebody says so."""
    from core.hardware import gpus, probe

    asked, machine = [], gpus.imagined_hardware()
    monkeypatch.setattr(probe, "probe", lambda *_given, **how: asked.append(how["retry_kernels"]) or machine)
    for more in ([], ["--retry"]):
        assert parser.main(["doctor", "--json", *more]) == 0
    assert asked == [False, True]


def test_the_installed_command_names_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Whoever started `triforce-chat` may have no launcher.py to type."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/triforce-chat", "doctor", "--help"])
    with pytest.raises(SystemExit):
        parser.command()
    assert capsys.readouterr().out.startswith("usage: triforce-chat doctor")


def test_a_new_key_for_other_programs_is_said_once(home: Path, capsys: pytest.CaptureFixture[str]):
    """The file tells nobody what it was."""
    assert parser.main(["api-key"]) == 0
    key = capsys.readouterr().out.strip()
    assert len(key) > 40 and data_folder_key().fits(key) and key not in (home / "api.key").read_text()


def test_snapshots_are_counted_and_cleared(home: Path, capsys: pytest.CaptureFixture[str]):
    """The person finds out what takes the room, and gets it back with one command."""
    for book in ("one", "two"):
        block = home / "snapshots" / "model" / book / "a-b.kv"
        block.parent.mkdir(parents=True)
        block.write_bytes(bytes(1_500_000))
    assert parser.main(["snapshots"]) == 0
    assert capsys.readouterr().out.startswith("3 MB of 2 books, at most ")
    assert parser.main(["snapshots", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 0
    assert list((home / "snapshots").iterdir()) == []


def test_train_draft_asks_for_what_was_typed(
    tmp_path: Path, home_with_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Options that reach the recipe, the folders and the device; the training itself has tests of its own."""
    asked: dict[str, object] = {}

    def train(recipe, target, sources, style, *, out, site, report, start):
        asked.update(recipe=recipe, target=target, sources=sources, out=out, site=site, start=start)
        return out

    monkeypatch.setattr("core.training.train.train", train)
    # a CPU without products of 16 bits
    monkeypatch.setattr("core.planning.fitting.multiplies_16_bits", lambda hardware: False)
    assert (
        parser.main(
            [
                "train-draft",
                "--out",
                str(tmp_path / "out"),
                "--data",
                str(tmp_path),
                "--tokens",
                "50,000",
                "--layers",
                "2",
                "--head-tokens",
                "8192",
                "--epochs",
                "1",
                "--seed",
                "7",
                "--device",
                "cpu",
                "--start",
                "before",
            ]
        )
        == 0
    )
    recipe = asked["recipe"]
    assert (recipe.target, recipe.tokens, recipe.layers, recipe.head_tokens, recipe.epochs, recipe.seed) == (
        "SmolLM2-135M-Instruct",
        50_000,
        2,
        8192,
        1,
        7,
    )
    assert (asked["out"], asked["sources"], asked["site"].device.type) == (
        tmp_path / "out",
        [tmp_path],
        "cpu",
    )
    assert asked["site"].dtype is torch.float32
    assert (asked["target"].name, asked["start"]) == ("SmolLM2-135M-Instruct", Path("before"))
    assert "holds no draft yet" in capsys.readouterr().out
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").touch()
    assert parser.main(["train-draft", "--out", str(tmp_path / "out"), "--data", str(tmp_path)]) == 0
    assert "draft_model" in capsys.readouterr().out
    assert asked["start"] is None


def test_the_launcher_names_every_command():
    """Whoever reads the file first looks there for what the program can do."""
    import launcher

    commands = parser.build_parser()._subparsers._group_actions[0].choices
    assert [name for name in commands if not re.search(rf"\b{name}\b", launcher.__doc__)] == []
