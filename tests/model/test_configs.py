"""Every model of the catalogue against what its config.json says: sizes, rotation, tokenizer, and so its
plan. The facts are in configs.yaml, each with where it is from.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import yaml

from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.config import load_config
from core.model.families import SLIDING, layer_kinds, text_config
from core.model.rope import Rope
from core.model.shapes import ModelShape
from core.model.store.catalogue import CatalogueEntry, load_catalogue
from core.planning.budget import KV
from core.planning.offers import plan_model
from core.text.gguf_tokenizer import SPLITS

READ = yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text(encoding="utf-8"))
FACTS, SOURCES = READ["models"], READ["sources"]
KEYS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
    "max_position_embeddings",
)
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate")
MODELS = [one for one in load_catalogue().values() if not one.file and one.folder is None]


def config_of(name: str) -> dict:
    facts = FACTS[name]
    activation = {} if "hidden_activation" in facts["more"] else {"hidden_act": "silu"}
    return dict(zip(KEYS, facts["sizes"], strict=True)) | facts["more"] | activation


def stored(folder: Path, config: dict) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5, "eos_token_id": 2}))
    return folder


def test_every_model_has_its_facts_and_says_where_they_are_from():
    assert {entry.name for entry in MODELS} == set(FACTS)
    assert {facts["source"] for facts in FACTS.values()} == set(SOURCES)


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_shape_and_context_are_those_of_its_configuration(entry: CatalogueEntry):
    shape = ModelShape.from_hf_config(config_of(entry.name), name=entry.name)
    said = (*SIZES, "vocab", "tied", "family", "windowed", "window", "stateful", "states")
    said = (*said, "window_heads", "window_dim", "keys_as_values", "readers", "windowed_readers")
    said = (*said, "reader_intermediate", "input_width", "input_vocab")
    assert [getattr(entry.shape, one) for one in said] == [getattr(shape, one) for one in said]
    own = FACTS[entry.name].get("own", shape.native_context)
    assert entry.shape.native_context == own
    assert entry.shape.key_bias == (shape.family == "qwen2")


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_its_rotation_is_the_one_of_its_configuration(entry: CatalogueEntry, tmp_path: Path):
    """Frequencies worked out here from the kind's formula, at both ends and where a scaling sets in."""
    config = load_config(stored(tmp_path / entry.name, config_of(entry.name)))
    rope = Rope(config, 64, dtype=torch.float32, device=torch.device("cpu"))
    given = config_of(entry.name)
    parameters = {"rope_theta": given.get("rope_theta", 10000.0), **(given.get("rope_scaling") or {})}
    parameters |= given.get("rope_parameters", {})
    local = {"rope_theta": given.get("rope_local_base_freq")}
    for name, found in rope.at(torch.tensor([1])).items():
        _kv_heads, head_dim = config.heads_of(next(kind for kind in config.kinds if kind.rope == name))
        own = parameters.get(name, local if name == SLIDING else parameters)
        proportional = own.get("rope_type") == "proportional"  # then all of a head has its place in the table
        share = 1.0 if proportional else own.get("partial_rotary_factor", 1.0)
        _check_rotation(int(head_dim * share), found.cos, own)


def _check_rotation(head_dim: int, cos: torch.Tensor, given: dict) -> None:
    theta, kind = given["rope_theta"], given.get("rope_type", given.get("type"))
    kind = None if kind == "default" else kind
    plain = [theta ** -(2 * one / head_dim) for one in range(head_dim // 2)]
    wanted, scale = plain, 1.0
    if kind == "llama3":
        wanted = [_llama3(one, given) for one in plain]
    elif kind == "proportional":
        turned = int(head_dim // 2 * given["partial_rotary_factor"])
        wanted = plain[:turned] + [0.0] * (head_dim // 2 - turned)
    elif kind == "linear":
        wanted = [one / given["factor"] for one in plain]
    elif kind:
        wanted, scale = _yarn(plain, theta, head_dim, given)
    found = cos[0, 0, : head_dim // 2].tolist()
    assert found == pytest.approx([math.cos(one) * scale for one in wanted], abs=2e-5)
    if kind:
        assert max(abs(one - two) for one, two in zip(plain, wanted, strict=True)) > 1e-4


def _llama3(frequency: float, scaling: dict) -> float:
    """Long waves are slowed by the factor, short ones are not, and between them it fades."""
    low, high, original = (
        scaling[key] for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    turns = original * frequency / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return frequency * share + frequency / scaling["factor"] * (1 - share)


def _yarn(plain: list[float], theta: float, head_dim: int, scaling: dict) -> tuple[list[float], float]:
    """https://arxiv.org/abs/2309.00071, section 3.2 and 3.4: alpha 1, beta 32."""
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def at(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = math.floor(at(32)), math.ceil(at(1))
    shares = [1 - min(max((one - first) / (last - first), 0.0), 1.0) for one in range(head_dim // 2)]
    mixed = [one * share + one / factor * (1 - share) for one, share in zip(plain, shares, strict=True)]
    alike = scaling.get("mscale", 0) == scaling.get("mscale_all_dim")  # then attention keeps its size
    return mixed, 1.0 if alike else 0.1 * math.log(factor) + 1


def test_which_layers_are_of_another_kind():
    """Every fourth of SmolLM3 is not rotated, every sixth of Gemma 3 has no window, Qwen3.5's
    no state; LFM2's six of sixteen attend."""
    kinds = {name: layer_kinds(text_config(config_of(name)), name) for name in FACTS}
    assert [kind.rotated for kind in kinds["SmolLM3-3B"]] == [True, True, True, False] * 9
    assert [kind.window for kind in kinds["Gemma-3-1B-it"]] == ([512] * 5 + [0]) * 4 + [512] * 2
    own = [(kind.window, kind.kv_heads, kind.head_dim) for kind in kinds["Gemma-4-12B-it"]]
    assert own == ([(1024, 8, 256)] * 5 + [(0, 0, 0)]) * 8
    reads = [kind.reads for kind in kinds["Gemma-4-E2B-it"]]
    assert reads == [-1] * 15 + [13, 13, 13, 13, 14] * 4
    assert [kind.stateful for kind in kinds["Qwen3.5-4B"]] == [True, True, True, False] * 8
    few = kinds["LFM2.5-1.2B-Instruct"]
    assert [at for at, kind in enumerate(few) if not kind.stateful] == [2, 5, 8, 10, 12, 14]
    assert {kind.scaled for kind in kinds["Ministral-3-8B-Instruct-2512"]} == {True}


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry.name)
def test_its_tokenizer_is_of_a_kind_that_is_known(entry: CatalogueEntry):
    assert FACTS[entry.name]["pre"] in {*SPLITS, "spm", "gemma4"}


@pytest.mark.parametrize(
    "entry", [one for one in MODELS if one.role == "target"], ids=lambda entry: entry.name
)
def test_its_plan_holds_what_its_configuration_needs(entry: CatalogueEntry):
    """Weights and KV cache of a plan are those that the sizes come to, worked out here."""
    layers, hidden, heads, kv_heads, head_dim, inner, vocab, tied, _longest = FACTS[entry.name]["sizes"]
    shape = entry.shape
    gated = 1 if shape.family == "qwen3_5_text" else 0  # a second matrix like that of queries
    attends = hidden * head_dim * ((2 + gated) * heads + 2 * kv_heads)
    held = shape.windowed * kv_heads * head_dim * 4
    full, more = attends, FACTS[entry.name]["more"]
    if "global_head_dim" in more:  # of the layers that see every token; they may have no values of their own
        kv_heads, head_dim = more.get("num_global_key_value_heads", kv_heads), more["global_head_dim"]
        full = hidden * head_dim * (2 * heads + kv_heads * (1 if more.get("attention_k_eq_v") else 2))
    shared = more.get("num_kv_shared_layers", 0)
    of_layers = (layers + (shared if more.get("use_double_wide_mlp") else 0)) * 3 * hidden * inner
    of_layers += shape.windowed * attends + (layers - shared - shape.windowed - shape.stateful) * full
    if shared:  # queries alone; one of so many layers sees every token
        every = more["sliding_window_pattern"]
        of_layers += 2 * hidden * heads * (shared // every * head_dim + (shared - shared // every) * 256)
        of_layers += layers * 3 * hidden * more["hidden_size_per_layer_input"]
    of_layers += shape.stateful * _state_weights(hidden, FACTS[entry.name]["more"])
    weights = of_layers + vocab * hidden * (1 if tied else 2)
    huge = imagined_hardware(ram_gib=4096)
    plan = plan_model(huge, Settings(context_tokens=8192, kv=16, weights=16), entry).plan
    budget = {line.name: line.bytes for line in plan.budget}
    if not entry.embedded:
        assert budget["weights"] == pytest.approx(2 * weights, rel=0.001)
    seen = 8192 * (layers - shared - shape.windowed - shape.stateful) * kv_heads * head_dim * 4
    assert budget[KV] == pytest.approx(seen, rel=0.05)
    kept = budget.get("KV cache of the layers with a window", 0)
    assert held * shape.window <= kept <= held * (2 * shape.window + 1200)


def _state_weights(hidden: int, said: dict) -> int:
    """Of one gated delta rule: in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, out_proj; of one short
    convolution: in_proj, of three parts, and out_proj.
    """
    if "conv_L_cache" in said:
        return 4 * hidden * hidden
    if "linear_num_value_heads" not in said:
        return 0
    keys = said["linear_num_key_heads"] * said["linear_key_head_dim"]
    values = said["linear_num_value_heads"] * said["linear_value_head_dim"]
    return hidden * (2 * keys + values + values + 2 * said["linear_num_value_heads"] + values)
