"""The list of models, downloading one and changing to it, against a stand-in for the hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli import parser
from app.models import catalogue as shelf
from app.models.catalogue import Models, remember_model, remembered, survey
from app.models.local_files import add_file, look_into, own_files
from app.models.progress import DownloadSpeed, Transfer
from app.web.models import fetching_html, model_files_html, model_offer_html, models_html
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import EMBEDDED, title_of
from core.model.store.disk_usage import kept_bytes
from core.planning.cpu_rates import usual_rates
from core.planning.offers import offers
from core.planning.recommended import is_swift
from core.text.words import GB, size
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.hub import Hub, serving
from tests.support.said import figures, values, worded_by

pytestmark = pytest.mark.usefixtures("plans_made_once")
PC_PLAIN = imagined_hardware(ram_gib=16)
PC_4090 = imagined_hardware(gpu="RTX 4090", ram_gib=64)
SMALL = "Qwen2.5-1.5B-Instruct"


@pytest.fixture
def hub(home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as (stand_in, url):
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield stand_in


@pytest.fixture
def desk(make_desk, engine, book, home):
    models = Models(Settings(), look=lambda: PC_4090)
    made = make_desk(engine, models=models)
    made.library.add(book)
    made.books.select(book.sha256)
    models.start()
    wait_until(lambda: models.list)
    return made


def test_a_cuda_pc_is_offered_what_fits_it(home):
    found = {model.name: model for model in survey(PC_4090, Settings())}
    assert found["Qwen3-8B"].fits and not found["Qwen3-8B"].here and found["Qwen3-8B"].bytes > 16 * GB
    assert found[EMBEDDED].here
    assert "VRAM" in found["Qwen2.5-14B-Instruct-1M"].reason  # 30 GB of weights, and there is a GGUF
    assert found["Yarn-Llama-2-13b-128k"].fits  # 26 GB, and none: rounded
    strict = {model.name: model for model in survey(PC_4090, Settings(weights=16))}
    assert "VRAM" in strict["Yarn-Llama-2-13b-128k"].reason
    assert found["Llama-3.1-8B-Instruct"].gated
    assert "llama-68m" not in found


def test_what_the_disk_does_not_hold_is_not_offered(home):
    full = replace(PC_4090, disk_path="/data", disk_free_bytes=10 * GB)
    found = {model.name: model for model in survey(full, Settings())}
    told = values(found["Qwen3-8B"].reason)
    assert told.keys() == {"needed", "folder"} and told["folder"] == "/data"
    assert found["Qwen2.5-1.5B-Instruct"].fits


def test_a_pc_without_a_card_is_offered_a_model_too(home):
    """Before, nothing was: most people never learned that the embedded model is a demonstration."""
    for found in (survey(PC_PLAIN, Settings()), survey(PC_4090, Settings(device="cpu"))):
        (chosen,) = [model for model in found if model.recommended]
        assert found[0] is chosen and chosen.fits and not chosen.here and chosen.bytes < 6 * GB
        assert values(chosen.times).keys() == {"first", "book"}
    assert models_html((), current=EMBEDDED) == ""


def test_what_answers_soon_stands_before_what_takes_hours(home):
    """On two cores the three below the recommended one read a book in half a day."""
    plans = {offer.entry.name: offer.plan for offer in offers(PC_PLAIN, Settings()) if offer.plan}
    soon = [is_swift(plans[one.name]) for one in survey(PC_PLAIN, Settings()) if one.fits and one.chat]
    assert 2 < sum(soon) < len(soon) and soon == sorted(soon, reverse=True)


def test_the_first_start_says_what_the_embedded_model_is_and_what_this_pc_should_have(desk):
    offer = desk.models.offer
    html = model_offer_html(offer)
    assert offer.recommended
    named = title_of(offer.name, size(offer.bytes).replace(" ", "\u00a0"))
    assert f"is a demonstration; this computer should have <b>{named}</b>:" in html and offer.file in html
    assert all(time.replace(" ", "\u00a0") in html for time in values(offer.times).values())
    assert f'data-act="fetch-model"\n data-name="{offer.name}"' in html
    desk.models.decline()
    assert desk.models.offer is None and model_offer_html(None) == ""
    assert Models(Settings(), look=lambda: PC_4090).offer is None  # also after the next start


def test_nothing_is_offered_to_who_has_a_model(desk):
    there = [replace(model, here=True) if model.name == SMALL else model for model in desk.models.list]
    desk.models.list = tuple(there)
    assert desk.models.offer is None


@pytest.mark.parametrize("pc", [PC_PLAIN, PC_4090])
def test_what_is_said_of_a_model_stands_still_while_the_machine_is_busy(home, pc):
    """Times and what fits were worked out anew, of the memory that the engine had left, at every look."""
    slow = replace(usual_rates(pc.cpu_flags, 8, "float32"), linear_gflops=1.0, weights_gb_per_s=1.0)
    busy = replace(
        pc,
        cpu_rates=slow,
        ram_available_bytes=pc.ram_available_bytes // 4,
        gpus=tuple(replace(gpu, free_bytes=gpu.free_bytes // 4) for gpu in pc.gpus),
    )
    seen = iter([pc, busy, replace(busy, disk_path="/data", disk_free_bytes=1000)])
    models = Models(Settings(), look=lambda: next(seen))
    models.look_again()
    first = models.list
    models.look_again()
    assert survey(busy, Settings()) != first == models.list
    models.look_again()
    assert models.list != first, "a disk that is full meanwhile counts"


def test_nothing_is_fetched_before_somebody_says_yes(desk, hub: Hub):
    assert desk.models.offer is not None and hub.requests == []


@pytest.mark.wide
def test_a_downloaded_model_is_deleted_but_not_the_one_in_use(desk, hub: Hub):
    desk.models.fetch(SMALL)
    wait_until(lambda: desk.engine.model_name == SMALL and desk.engine.state == "ready")
    taken = next(model.disk_bytes for model in desk.models.list if model.name == SMALL)
    shown = models_html(desk.models.list, current=SMALL)
    assert taken > 3_000_000 and size(taken).replace(" ", "\u00a0") in shown
    desk.model_choice.delete(SMALL)
    assert values(desk.state.notice.text).keys() == {"name"} and kept_bytes(SMALL) == taken
    desk.model_choice.use(EMBEDDED)
    wait_until(lambda: desk.engine.model_name == EMBEDDED)
    assert 'data-act="delete-model"' in models_html(desk.models.list, current=EMBEDDED)
    desk.model_choice.delete(SMALL)
    assert values(desk.state.notice.text)["size"] == size(taken) and kept_bytes(SMALL) == 0
    wait_until(lambda: not any(model.here for model in desk.models.list if model.name == SMALL))


@pytest.mark.parametrize("name", ["", "..", "../books", "no such", EMBEDDED, "/etc"])
def test_only_downloads_are_deleted(desk, name):
    """The name comes from a page."""
    keep = shelf.paths.subdir("models") / EMBEDDED
    keep.mkdir(parents=True, exist_ok=True)
    (keep / "model.safetensors").write_bytes(b"x")
    desk.model_choice.delete(name)
    assert (keep / "model.safetensors").exists() and shelf.paths.subdir("books").exists()


def test_what_arrived_of_a_paused_download_can_be_discarded(desk, hub: Hub):
    hub.pace_s = 0.05
    desk.models.fetch(SMALL)
    wait_until(lambda: (desk.models.fetching.fraction or 0) > 0.2)
    desk.models.pause()
    assert "Discard" in fetching_html(desk.models.fetching)
    wait_until(lambda: kept_bytes(SMALL) > 0)
    desk.model_choice.delete(SMALL)
    assert desk.models.fetching is None and kept_bytes(SMALL) == 0


def test_a_download_says_how_fast_it_is_and_how_long_it_takes():
    now = [0.0]
    pace = DownloadSpeed(1_000_000_000, clock=lambda: now[0])
    assert pace.at(0.0) == (None, None)
    for second in range(1, 31):
        now[0] = float(second)
        found = pace.at(second * 0.01 if second <= 10 else 0.1 + (second - 10) * 0.02)
    assert found == (pytest.approx(20_000_000), pytest.approx(25.0))  # as of late, not from the beginning
    html = fetching_html(Transfer("x", "Downloading", 0.5, bytes_per_s=found[0], left_s=found[1]))
    assert "20\u00a0MB" in html and "25\u00a0s" in html
    now[0] += 5
    assert pace.at(None) == (None, None)


@pytest.mark.wide
def test_a_downloaded_model_is_switched_to_and_stays_chosen(desk, hub: Hub):
    """The way of a new user with a GPU: click, wait, ask."""
    desk.models.fetch(SMALL)
    wait_until(lambda: desk.engine.model_name == SMALL)
    assert desk.models.fetching is None and values(desk.state.notice.text)["name"] == title_of(SMALL)
    assert next(model for model in desk.models.list if model.name == SMALL).here
    assert remembered(Settings()).model == SMALL
    assert remembered(Settings(model="Qwen3-8B")).model == "Qwen3-8B"  # config.yaml has the last word
    wait_until(lambda: desk.engine.state == "ready")
    desk.model_choice.use(EMBEDDED)
    wait_until(lambda: desk.engine.model_name == EMBEDDED)


def test_a_download_is_paused_and_goes_on(desk, hub: Hub):
    hub.pace_s = 0.05
    desk.models.fetch(SMALL)
    wait_until(lambda: (desk.models.fetching.fraction or 0) > 0.2)
    desk.models.fetch("Qwen2.5-3B-Instruct")  # one at a time
    assert desk.models.fetching.name == SMALL
    desk.models.pause()
    assert desk.models.fetching.state == "paused"
    assert 'data-act="fetch-model"' in fetching_html(desk.models.fetching)
    hub.pace_s = 0.0
    desk.models.fetch(SMALL)
    wait_until(lambda: desk.engine.model_name == SMALL)


@pytest.mark.wide
def test_an_answer_is_not_interrupted_by_a_model_that_arrives(desk, hub: Hub):
    desk.engine.pace = 0.2
    desk.questions.ask("Who?")
    desk.models.fetch(SMALL)
    wait_until(lambda: desk.state.notice and "choose it in the list" in desk.state.notice.text)
    assert desk.state.busy and desk.engine.model_name == EMBEDDED
    desk.model_choice.use(SMALL)
    assert "written" in desk.state.notice.text and desk.engine.model_name == EMBEDDED
    desk.stop()


def test_a_refusal_is_shown_and_can_be_tried_again(desk, hub: Hub):
    hub.status, hub.error_code = 401, "GatedRepo"
    desk.models.fetch("Llama-3.1-8B-Instruct")
    wait_until(lambda: desk.models.fetching.state == "failed")
    assert "huggingface.co/meta-llama/Llama-3.1-8B-Instruct" in fetching_html(desk.models.fetching)


def test_a_download_that_dies_says_so(home, desk):
    dying = Models(Settings(), look=lambda: PC_4090, command=(sys.executable, "-c", "raise SystemExit(3)"))
    dying.list = desk.models.list
    dying.fetch(SMALL)
    wait_until(lambda: dying.fetching.state == "failed")
    assert worded_by(Models._listen, dying.fetching.error)


def test_closing_the_app_ends_the_download(desk, hub: Hub):
    hub.pace_s = 0.05
    desk.models.fetch(SMALL)
    wait_until(lambda: (desk.models.fetching.fraction or 0) > 0.2)
    process = desk.models._process
    desk.close()
    assert process.poll() is not None


@pytest.mark.parametrize("name", ["no such model", "Qwen2.5-14B-Instruct-1M", "../x", ""])
def test_only_models_of_the_list_that_fit_are_fetched(desk, name):
    """The name comes from a page."""
    desk.models.fetch(name)
    assert desk.models.fetching is None
    desk.model_choice.use(name)
    assert not (shelf.paths.data_dir() / "model.json").exists()


def test_a_choice_that_cannot_be_read_counts_as_none(home):
    for content in ("", "[]", '{"model": 3}', '{"model": "no such"}', json.dumps({"model": SMALL})):
        (shelf.paths.data_dir() / "model.json").write_text(content)
        assert remembered(Settings()).model is None
    remember_model(EMBEDDED)
    assert remembered(Settings()).model == EMBEDDED
    assert not list(shelf.paths.data_dir().glob("*.part"))


def test_the_list_says_what_a_choice_means(home):
    models = survey(PC_4090, Settings())
    html = models_html(models, current=EMBEDDED)
    untuned = sum(not one.chat for one in models)
    to_accept = sum(one.gated and not one.here for one in models)
    assert untuned and to_accept and html.count('<em class="tag">') == untuned + to_accept
    _more, unfit, *_absent = re.findall("<summary>(.*?)</summary>", html)
    assert figures(unfit) == [str(sum(not one.fits for one in models))]
    (size_of_it,) = re.findall(r'data-act="fetch-model" data-name="Qwen3-8B"[^>]*>([^<]*)<', html)
    assert 16 <= float(figures(size_of_it)[0]) < 18
    assert html.count('<span class="tag tag-live">') == 1, "one is in use"
    assert html.count("(computed,") == sum(bool(one.times) for one in models) > 10
    assert "<script>" not in fetching_html(Transfer("<script>", "<b>", 0.5))


def test_the_window_process_is_not_what_downloads():
    """Converting needs torch, which would cost the app hundreds of megabytes."""
    code = (
        "import app.models.catalogue, app.web.regions, sys\n"
        "assert 'torch' not in sys.modules and 'huggingface_hub' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=shelf.ROOT, env={**os.environ}).returncode == 0


# ---- files of one's own ------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "my models"
    folder.mkdir()
    return write_gguf(folder / "mine-Q8_0.gguf", wide(max_position_embeddings=16384), "Q8_0").resolve()


@pytest.mark.wide
def test_a_file_is_used_where_it_lies_and_stays_in_the_list(desk, own):
    desk.model_choice.file(str(own))
    wait_until(lambda: desk.engine.model_name == str(own))
    found = next(model for model in desk.models.list if model.path)
    assert (found.name, found.id, found.here, found.disk_bytes) == ("mine-Q8_0", str(own), True, 0)
    assert remembered(Settings()).model == str(own)
    assert desk.models.offer is None  # who brings a model is offered none
    html = models_html(desk.models.list, current=EMBEDDED)
    assert f'data-act="use-model" data-name="{own}"' in html and 'data-act="forget-file"' in html
    desk.model_choice.delete("mine-Q8_0")
    desk.model_choice.delete(str(own))
    assert own.exists(), "a file that is not ours was deleted"
    desk.model_choice.forget(str(own))
    wait_until(lambda: not any(model.path for model in desk.models.list))
    assert own.exists() and own_files() == []


def test_a_file_that_cannot_run_says_why(desk, own, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 64)
    for path, words in ((tmp_path / "bad.gguf", "version"), (tmp_path / "gone.gguf", "no GGUF file")):
        desk.model_choice.file(str(path))
        wait_until(lambda words=words: desk.state.notice and words in desk.state.notice.text)
    assert own_files() == [] and desk.engine.model_name != str(own)


def test_a_file_that_vanished_is_named(home, own):
    add_file(own)
    own.unlink()
    (found,) = [model for model in survey(PC_PLAIN, Settings()) if model.path]
    assert not found.fits and values(found.reason)["file"] == str(own)
    assert remembered(Settings()).model is None


def test_a_folder_is_looked_into(own, tmp_path):
    (own.parent / "deeper").mkdir()
    (own.parent / ".hidden").mkdir()
    (own.parent / "mmproj-mine.gguf").write_bytes(b"GGUF")
    (own.parent / "notes.txt").write_text("x")
    shown = look_into(own.parent)
    assert shown.folders == (("deeper", str(own.parent / "deeper")),)
    assert [name for name, _path, _size in shown.files] == ["mine-Q8_0.gguf"]
    assert shown.above == str(own.parent.parent)
    assert values(look_into(tmp_path / "nothing").error).keys() == {"folder", "reason"}
    assert look_into(Path("/")).above == ""


def test_what_other_programs_keep_is_shown_after_a_yes(desk, own, monkeypatch):
    """A question stands before the search, and what it finds is only offered."""
    monkeypatch.setenv("LLAMA_CACHE", str(own.parent))
    monkeypatch.setattr(Path, "home", lambda: own.parent / "nobody")
    desk.model_choice.look_into("")
    before = model_files_html(desk.state.choosing)
    assert 'data-act="look-elsewhere"\n data-confirm="Look for models in' in before
    assert "mine-Q8_0" not in before
    desk.model_choice.look_elsewhere()
    wait_until(lambda: desk.state.choosing.found is not None)
    html = model_files_html(desk.state.choosing)
    assert "mine-Q8_0" in html and "llama.cpp" in html and f'data-file="{own}"' in html
    assert desk.engine.model_name == EMBEDDED or "mine" not in desk.engine.model_name
    desk.model_choice.done_choosing()
    assert model_files_html(desk.state.choosing) == ""


def test_a_file_is_handed_to_the_next_start_where_no_app_runs(home, own, capsys):
    assert parser.main(["use", str(own)]) == 0
    assert "mine-Q8_0" in capsys.readouterr().out
    assert remembered(Settings()).model == str(own) and own_files() == [own]
    assert parser.main(["use", str(own.parent / "no.gguf")]) == 1
    assert "no.gguf" in capsys.readouterr().err


def test_a_start_opens_no_file_from_outside_in_the_apps_own_process(home, own, monkeypatch):
    remember_model(str(own))
    monkeypatch.setattr(
        "core.model.store.catalogue.read_header", lambda file: pytest.fail("it was opened here")
    )
    assert remembered(Settings()).model == str(own)
    survey(PC_PLAIN, Settings())
