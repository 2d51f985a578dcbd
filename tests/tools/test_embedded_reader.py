"""Teaching to read, in small: a random target with the embedded model's tokenizer, two tales, two stories."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.model import lora
from core.model.config import load_config
from core.model.gguf.dequantize import planes
from core.model.gguf.quantize_blocks import q8_0
from core.model.loader import weights_in
from core.text.prompt import build_prompt
from core.text.tokenizer import Tokenizer
from tests.support.tiny_target import tiny_target
from tools.embedded_reader import instructions, lessons, packing
from tools.embedded_reader.lessons import Branch, Lesson
from tools.embedded_reader.network import Joined, Packed
from tools.embedded_reader.packing import Packer
from tools.embedded_reader.train import teach
from tools.embedded_reader.trainer import LoraModel, ReaderRecipe

STYLE = ReadingStyle(
    part_prompts=("Tell it.",), join_prompts=("Tell all.",), passage_prompt="Question: {question}"
)
RECIPE = ReaderRecipe(target="tiny", tokens=6000, step_tokens=200, longest=1024, rank=4, learning_rate=4e-2)
SHORT = replace(RECIPE, tokens=2400)  # a few steps, with a checkpoint behind every second
TWO = Lesson(
    "Ann has a red cow.", (Branch("Who has a cow?", "Ann.", "fact"), Branch("Where?", "There.", "fact"))
)


def _tale(name: str, animals: list[str]) -> dict:
    sections = [f"{name} saw a {animal}. It was by the {animal} gate at noon." for animal in animals]
    questions = [
        {"question": f"What did {name} see ({n})?", "answers": [f"a {animal}"], "sections": [n]}
        for n, animal in enumerate(animals, 1)
    ]
    return {"story": name, "first_section": 1, "sections": sections, "questions": questions}


def _story(number: int) -> dict:
    """Long enough to be cut in two, with a summary whose sentences fall on one half each."""
    halves = [
        " ".join(f"Captain {name} {verb} the {thing} on day {day}." for day in range(60))
        for name, verb, thing in (("Ahab", "chased", "whale"), ("Nemo", "steered", "submarine"))
    ]
    told = (
        "At first the brave Captain Ahab chased the great white whale for many days over the sea. "
        "Again and again Captain Ahab chased that whale. "
        "Later the old Captain Nemo steered his wonderful submarine for many days under the sea. "
        "Again and again Captain Nemo steered that submarine."
    )
    shorter = "Captain Ahab chased the whale. " + " ".join(told.split(". ")[2:])
    return {
        "story": number,
        "text": "\n\n".join(halves),
        "questions": [{"question": "What is the plot?", "summaries": [told, shorter]}],
    }


@pytest.fixture(scope="module")
def target_dir(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 512, "initializer_range": 0.2}
    return tiny_target(folder, embedded_model_dir, **sizes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tales = [
        _tale("Ann", ["cow", "horse", "goose", "goat", "duck", "sheep"]),
        _tale("Bob", ["fox", "owl", "elk"]),
    ]
    for split in ("train", "val"):
        (folder / f"fairytaleqa-{split}.jsonl").write_text(
            "\n".join(map(json.dumps, tales)), encoding="utf-8"
        )
        stories = [_story(1), _story(2)]
        (folder / f"squality-{split}.jsonl").write_text("\n".join(map(json.dumps, stories)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _short_instructions():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instructions, "INSTRUCTIONS", ("Hello!", "What is rain?"))
        patch.setattr(instructions, "_ANSWER_TOKENS", 6)
        patch.setattr(lessons, "SUMMARISED_WORDS", (500,))
        yield


class Stopped(Exception):
    """Somebody ends the run."""


def run(
    target: Path,
    data: Path,
    out: Path,
    recipe: ReaderRecipe = RECIPE,
    *,
    stop_at: int | None = None,
    start: Path | None = None,
    seconds: float = math.inf,
) -> Path:
    def report(said: str, part: float | None) -> None:
        if stop_at is not None and said.startswith(f"step {stop_at},"):
            raise Stopped

    return teach(
        recipe,
        target,
        data,
        STYLE,
        out=out,
        report=report,
        every=2,
        start=start,
        dtype=torch.float32,
        seconds=seconds,
    )


@pytest.fixture(scope="module")
def taught(target_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(target_dir, data, tmp_path_factory.mktemp("taught")).parent


@pytest.fixture(scope="module")
def packer(target_dir: Path) -> Packer:
    return Packer(Tokenizer.load(target_dir), STYLE, longest=512)


def _network(target: Path) -> LoraModel:
    return LoraModel(RECIPE, load_config(target), weights_in(target), torch.float32)


def _loss(taught: LoraModel, packed: Packed) -> float:
    taught.merge()
    with torch.no_grad():
        return float(taught.network.loss(packed, taught.layers))


# ---- what is learned from ----------------------------------------------------------------------------------


def test_a_branch_is_read_as_if_the_others_were_not_there(target_dir: Path, packer: Packer):
    """Each question with its answer must cost what transformers says of that conversation alone, laid out as
    the program lays it out; a leak from one answer to the next changes the second.
    """
    from transformers import AutoModelForCausalLM

    tokenizer = Tokenizer.load(target_dir)
    oracle = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32)
    frame, want = tokenizer.frame(STYLE.system), 0.0
    for branch in TWO.branches:
        head, asked = tokenizer.encode(TWO.text + "\n\n"), tokenizer.encode(branch.asked)
        prompt = build_prompt(frame, head, (), asked, room=512).ids
        ids = torch.tensor([[*prompt, *tokenizer.encode(branch.answer), frame.bridge[0]]])
        logits = oracle(ids).logits[0, len(prompt) - 1 : -1]
        want += float(F.cross_entropy(logits, ids[0, len(prompt) :], reduction="sum"))
    taught, packed = _network(target_dir), packer.packed(TWO)
    assert len(packed.branches) == 2
    assert _loss(taught, packed) == pytest.approx(want, rel=1e-4)


def test_only_answers_and_their_ends_are_learned(target_dir: Path, packer: Packer):
    """Neither the text nor the questions, which would teach to write questions."""
    tokenizer, packed = Tokenizer.load(target_dir), packer.packed(TWO)
    learned = packed.ids[packed.weight > 0].tolist()
    end = tokenizer.frame(STYLE.system).bridge[0]
    assert learned == [*tokenizer.encode("Ann."), end, *tokenizer.encode("There."), end]


def test_an_answer_that_was_cut_short_teaches_no_end(packer: Packer):
    """The model's own answers are cut at a length; to stop there must not be learned."""
    whole, cut = (packer.packed(Lesson("", (Branch("Hi", "Hello there", "chat", w),))) for w in (True, False))
    assert whole.ids[:-1].tolist() == cut.ids.tolist()


def test_branches_that_find_no_room_are_left_out(packer: Packer, target_dir: Path):
    """Not cut: half an answer would be learned as a whole one."""
    small = Packer(Tokenizer.load(target_dir), STYLE, longest=40)
    long = Branch("Who?", "word " * 60, "fact")
    assert len(small.packed(Lesson("Ann.", (long, TWO.branches[0]))).branches) == 1
    assert small.packed(Lesson("Ann.", (long,))) is None


def test_gradients_by_hand_are_those_of_autograd(target_dir: Path, packer: Packer):
    """Attention's backward pass is written out; torch's own decides."""
    taught, packed = _network(target_dir), packer.packed(TWO)
    taught.merge()
    weight = taught.layers[0]["qkv"]
    taught.network.loss(packed, taught.layers).backward()
    step, place = 1e-2, divmod(int(weight.grad.abs().argmax()), weight.shape[1])
    with torch.no_grad():
        found = []
        for sign in (1, -1):
            weight[place] += sign * step
            found.append(float(taught.network.loss(packed, taught.layers)))
            weight[place] -= sign * step
    assert float(weight.grad[place]) == pytest.approx((found[0] - found[1]) / (2 * step), rel=2e-2)


def test_texts_read_in_one_pass_do_not_see_each_other(target_dir: Path, packer: Packer):
    """A card reads a step's lessons end to end: loss and gradient must be those of one after another."""
    one = Lesson("Bob has an owl at noon.", (Branch("Who has an owl?", "Bob.", "foreign"), *TWO.branches))
    bare = Lesson("", (Branch("", "word " * 30, "bare", whole=False),))
    held = [packer.packed(lesson) for lesson in (TWO, bare, one)]
    taught, found = _network(target_dir), []
    taught.merge()
    weight = taught.layers[0]["qkv"]
    for loss in (
        lambda: sum(taught.network.loss(packed, taught.layers) for packed in held),
        lambda: taught.network.joined_loss(Joined.of(held, torch.device("cpu")), taught.layers),
    ):
        weight.grad, value = None, loss()
        value.backward()
        found.append((float(value.detach()), weight.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-4 * float(found[0][1].abs().max()))


def test_a_larger_rank_begins_as_the_adapter_it_goes_on_from(target_dir: Path, packer: Packer):
    """The ranks that are added change nothing yet; fewer ranks than it has are refused."""
    dice = torch.Generator().manual_seed(0)
    held = {
        name: (down, torch.randn(up.shape, generator=dice) / 50)
        for name, (down, up) in _network(target_dir).adapter().items()
    }

    def taught(rank: int) -> LoraModel:
        recipe = replace(RECIPE, rank=rank)
        return LoraModel(recipe, load_config(target_dir), weights_in(target_dir), torch.float32, held)

    packed = packer.packed(TWO)
    same, more, fresh = (_loss(one, packed) for one in (taught(4), taught(7), _network(target_dir)))
    assert more == pytest.approx(same, rel=1e-6)
    assert abs(same - fresh) > 1e-3 * fresh
    with pytest.raises(UserError, match="rank 4"):
        taught(3)


def test_a_fifth_of_the_questions_is_foreign(data: Path):
    """And they are refused in the words of the style; half of them come from the same story."""
    tales = lessons.load_lessons(data / "fairytaleqa-train.jsonl")
    kinds = [
        branch
        for turn in range(200)
        for lesson in lessons.about_passages(tales, STYLE, f"0/{turn}")
        for branch in lesson.branches
    ]
    foreign = [branch for branch in kinds if branch.kind == "foreign"]
    assert len(foreign) / len(kinds) == pytest.approx(lessons.FOREIGN, abs=0.02)
    assert {branch.answer for branch in foreign} == {STYLE.refusal}


def test_a_foreign_question_of_the_same_story_is_not_answered_by_the_passage(data: Path):
    """Neighbouring sections may hold the answer as well; so may a passage that has all its words."""
    tale = _tale("Ann", ["cow", "horse", "goose", "goat"])
    tale["questions"].append({"question": "What was at noon?", "answers": ["a gate"], "sections": [4]})
    own, elsewhere = lessons._questions(tale, range(1), tale["sections"][0])
    assert [q["answers"] for q in own] == [["a cow"]]
    assert [q["answers"] for q in elsewhere] == [["a goose"], ["a goat"]]


def test_answers_are_written_as_sentences():
    """A reader gets a capital and a full stop; what has its own end keeps it."""
    assert lessons.sentence(" the sun ") == "The sun."
    assert lessons.sentence('He said "Go!"') == 'He said "Go!"'


def test_every_kind_gets_its_share(data: Path, packer: Packer):
    """By tokens, whatever the lessons' lengths."""
    sources = {
        "facts": lambda turn: [TWO],
        "bare": lambda turn: [Lesson("", (Branch("", "word " * 200, "bare", whole=False),))],
    }
    ids = {"facts": len(packer.packed(TWO).ids), "bare": 200}
    ordered, read = packing.mixed(sources, packer, seed=0), dict.fromkeys(sources, 0)
    for _ in range(300):
        packed = next(ordered)
        read["facts" if len(packed.ids) == ids["facts"] else "bare"] += len(packed.ids)
    share = packing.SHARES["bare"] / (packing.SHARES["bare"] + packing.SHARES["facts"])
    assert read["bare"] / sum(read.values()) == pytest.approx(share, abs=0.03)


def test_a_kind_of_which_nothing_has_room_is_named(packer: Packer):
    """It would be waited for without end."""
    long = Lesson("", (Branch("", "word " * 600, "bare", whole=False),))
    ordered = packing.mixed({"facts": lambda turn: [TWO], "bare": lambda turn: [long]}, packer, seed=0)
    with pytest.raises(UserError, match="of the kind bare"):
        [next(ordered) for _ in range(3)]


# ---- the run -----------------------------------------------------------------------------------------------


@pytest.mark.wide
def test_it_learns_and_shows_it(taught: Path):
    """The loss on what is kept apart falls; curve and figures are there."""
    history = json.loads((taught / "figures.json").read_text())
    facts = [point["judged"]["facts"] for point in history]
    assert facts[-1] < 0.9 * facts[0]
    assert history[-1]["tokens"] >= RECIPE.tokens
    assert Image.open(taught / "curves.png").size == (960, 720)


@pytest.mark.wide
def test_a_stopped_run_goes_on_as_if_it_had_not(target_dir: Path, data: Path, tmp_path: Path):
    """Optimiser, order and chance come back; what follows the last checkpoint is done again."""
    with pytest.raises(Stopped):
        run(target_dir, data, tmp_path / "stopped", SHORT, stop_at=3)
    whole, again = (
        load_file(run(target_dir, data, tmp_path / name, SHORT).parent / "adapter.safetensors")
        for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.wide
def test_a_run_goes_on_from_an_adapter(taught: Path, target_dir: Path, data: Path, tmp_path: Path):
    """What it changes is not lost, and the curve begins with what it knows."""
    start = taught / "adapter.safetensors"
    little = replace(SHORT, learning_rate=1e-9)
    again, held = (
        lora.load_factors(run(target_dir, data, tmp_path, little, start=start)),
        lora.load_factors(start),
    )
    for name, (down, up) in held.items():
        assert torch.allclose(
            again[name][1] @ again[name][0], up @ down, atol=0.01 * float((up @ down).abs().max())
        )
    begun, known = (json.loads((held / "figures.json").read_text()) for held in (tmp_path, taught))
    assert (begun[0]["step"], begun[0]["tokens"], begun[0]["loss"]) == (0, 0, None)
    assert begun[0]["judged"] == pytest.approx(known[-1]["judged"], rel=0.01)
    assert [point["step"] for point in begun] == sorted({point["step"] for point in begun})
    with pytest.raises(UserError, match="start"):
        run(target_dir, data, tmp_path, little)


@pytest.mark.wide
def test_a_folder_begun_otherwise_is_refused(taught: Path, target_dir: Path, data: Path):
    """Two recipes in one folder would end in an adapter of neither."""
    with pytest.raises(UserError, match="begun with other settings"):
        run(target_dir, data, taught, ReaderRecipe(target="tiny", tokens=2400, rank=8))


def test_a_kind_of_which_there_are_no_lessons_is_named(target_dir: Path, data: Path, tmp_path: Path):
    """It would be left out without a word."""
    with pytest.raises(UserError, match="of the kind articels"):
        run(target_dir, data, tmp_path, replace(SHORT, shares={"facts": 0.8, "articels": 0.2}))


@pytest.mark.wide
def test_more_kinds_are_learned_where_a_share_is_asked_for(target_dir: Path, data: Path, tmp_path: Path):
    """From their files, which nobody else needs; and a run ends when its time is over, with a curve."""
    passage = {"passage": "A goose.", "questions": [{"question": "What?", "answers": ["a goose"]}]}
    sentence = {"sentence": "An elk ran.", "questions": [{"question": "What ran?", "answers": ["an elk"]}]}
    world = {"story": "Ann", "section": 1, "text": "Ann saw a cow.", "questions": []}
    world["questions"].append({"question": "What is hay?", "answer": "Dry grass."})
    for path in data.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, line in {"squad2": passage, "qamr": sentence, "storyspark-train": world}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join([json.dumps(line)] * 3), encoding="utf-8")
    shares = {"facts": 0.25, "articles": 0.25, "sentences": 0.25, "world": 0.25}
    endless = replace(RECIPE, shares=shares, tokens=10**9)
    out = run(target_dir, tmp_path, tmp_path / "out", endless, seconds=2).parent
    assert json.loads((out / "figures.json").read_text())[-1]["step"] > 0


def test_missing_data_is_named(target_dir: Path, tmp_path: Path):
    """The folder without its files must not end in a traceback."""
    with pytest.raises(UserError, match=r"fairytaleqa-val\.jsonl cannot be read"):
        run(target_dir, tmp_path, tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"tokens": 10}, {"rank": 0}, {"falling": 0.0}])
def test_settings_out_of_range_are_refused(wrong: dict):
    """Before anything is read."""
    with pytest.raises(UserError, match=next(iter(wrong))):
        ReaderRecipe(**{"target": "tiny", **wrong})


def test_the_rate_rises_stays_and_falls_to_nothing():
    """A run may be made longer until its rate falls: up to there the rate does not know the end."""
    recipe = ReaderRecipe(target="tiny", falling=0.5)
    assert recipe.rate(0, 0) < recipe.rate(3, 0.1) < recipe.rate(9, 0.2) == recipe.rate(9, 0.4)
    assert recipe.rate(50, 0.75) == pytest.approx(recipe.learning_rate / 2)
    assert recipe.rate(99, 1.01) == 0


@pytest.mark.wide
def test_what_is_written_is_what_was_learned(taught: Path, target_dir: Path, packer: Packer):
    """Merged into the target's matrices and put on 8 bits, the adapter must give the loss that was judged."""
    state = torch.load(taught / "training" / "state.pt", weights_only=True)
    learned = _network(target_dir)
    for pair, held in zip(learned.factors.values(), state["factors"], strict=True):
        for factor, value in zip(pair, held, strict=True):
            factor.copy_(value)
    want, before = _loss(learned, packer.packed(TWO)), _loss(_network(target_dir), packer.packed(TWO))
    shipped = _network(target_dir)
    for name, (down, up) in lora.load_factors(taught / "adapter.safetensors").items():
        merged = lora.merged_weight(shipped.base[name], down, up)
        fused, rows = shipped._rows[name]
        with torch.no_grad():
            fused[rows] = planes(q8_0(merged), "Q8_0", tuple(merged.shape)).decoded()
    with torch.no_grad():
        found = float(shipped.network.loss(packer.packed(TWO), shipped.layers))
    assert found == pytest.approx(want, rel=0.02)
    assert abs(found - before) > 10 * abs(found - want)
