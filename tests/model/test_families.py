"""Families whose layers are not those of Llama: as checkpoint and as GGUF, through every mode, and what is
refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.decoding.decoder import Round
from core.errors import UserError
from core.model.config import load_config
from core.model.families import family_of_gguf, layer_kinds
from core.model.gguf.config import bytes_in_codes, config_of
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.loader import load_model
from core.model.shapes import ModelShape
from core.request import Params
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.modes import GRID_MODES
from tests.support.tiny import OTHERS, VOCAB, engine, oracle, ours, whole_cache

OUTER = {
    "ministral3": "mistral3",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "qwen3_5_text": "qwen3_5",
}  # of a checkpoint that also sees pictures
PROMPT = torch.randint(0, VOCAB, (131,), generator=torch.Generator().manual_seed(4)).tolist()


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def logits(folder: Path) -> torch.Tensor:
    model = load_model(folder, CpuBackend(torch.float32), positions=256)
    with torch.inference_mode():
        return model.forward(PROMPT, whole_cache(model, 256))


def edited(folder: Path, **values) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize("family", OTHERS)
def test_every_mode_says_what_transformers_says(family: str):
    """Far beyond the original positions; the target drafts by streaming, too, whose keys rotate on read."""
    reference = oracle(family)
    with torch.inference_mode():
        ids = torch.tensor([PROMPT])
        want = reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
        )[0, len(PROMPT) :].tolist()
    model = ours(reference)
    machine = engine(
        model, draft=ours(oracle()), layers=model.config.layers, on_chip_layers=model.config.layers
    )
    for mode in GRID_MODES:
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=16, mode=mode)
        events = machine.generate(machine.new_context(machine.context_tokens), PROMPT, params)
        assert [token for one in events if isinstance(one, Round) for token in one.tokens] == want, mode


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", OTHERS)
def test_a_checkpoint_and_a_gguf_give_the_same_bits(tmp_path: Path, family: str, tied: bool):
    """Rows of q and k in their order, YaRN with its factor, which layers rotate. A wide Gemma 4 in fp32 is as
    far from fp64 in transformers as here, 1.8e-4 at most.
    """
    reference = wide(family, tied=tied)
    reference.save_pretrained(tmp_path / "checkpoint")
    found = logits(tmp_path / "checkpoint")
    file = write_gguf(tmp_path / "model.gguf", reference, "F32")
    assert torch.equal(logits(opened(file)), found)
    with torch.inference_mode():
        want = reference(torch.tensor([PROMPT])).logits[0]
    bound = 4e-4 if family == "gemma4_text" else 1e-4
    assert float((found - want).abs().max()) < bound * float(want.abs().max())


def test_what_is_never_said_is_read_of_a_checkpoint_and_of_a_gguf(tmp_path: Path):
    """In generation_config.json, which holds how the makers draw; in a file's metadata."""
    reference = wide("gemma4_text")
    reference.save_pretrained(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "generation_config.json").write_text('{"suppress_tokens": [7, 3, 999]}')
    file = write_gguf(tmp_path / "model.gguf", reference, "F32", unsaid=[7, 3, 999])
    for folder in (tmp_path / "checkpoint", opened(file)):
        found = logits(folder)
        assert found.isinf().sum(0).nonzero().flatten().tolist() == [3, 7]


@pytest.mark.parametrize("family", OUTER)
@pytest.mark.parametrize("names", ["language_model.model.", "model.language_model."])
def test_the_text_model_of_a_checkpoint_that_sees_runs(tmp_path: Path, names: str, family: str):
    """By either spelling of its tensors; the output matrix stands beside it."""
    from safetensors.torch import load_file, save_file

    reference = oracle(family)
    reference.save_pretrained(tmp_path / "text")
    inner = json.loads((tmp_path / "text" / "config.json").read_text())
    seeing = tmp_path / "seeing"
    seeing.mkdir()
    outer = {"model_type": OUTER[family], "text_config": inner, "tie_word_embeddings": False}
    (seeing / "config.json").write_text(json.dumps(outer))
    tensors = load_file(tmp_path / "text" / "model.safetensors")
    renamed = {name.replace("model.", names, 1): value for name, value in tensors.items()}
    save_file(renamed, seeing / "model.safetensors")
    assert torch.equal(logits(seeing), logits(tmp_path / "text"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"layer_types": ["full_attention", "full_attention", "mamba", "full_attention"]},
            "layer_types.2. is",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types is no list of 4"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, "layer_types.1. is"),
        ({"no_rope_layers": [1, 0]}, "no_rope_layers is no list of 4"),
        ({"no_rope_layers": None, "no_rope_layer_interval": 0}, "modulo"),
    ],
)
def test_layers_that_are_not_known_are_refused_by_file_and_key(tmp_path: Path, values: dict, said: str):
    oracle("smollm3").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match=f"config.json of tiny .*{said}"):
        load_config(edited(tmp_path / "tiny", **values))


def test_weights_of_another_shape_are_refused_by_file_and_key(tmp_path: Path, monkeypatch):
    """Before anything of the model is loaded; of a file by its own names."""
    from safetensors.torch import load_file, save_file

    oracle("gemma3_text").save_pretrained(tmp_path / "tiny")
    monkeypatch.setattr("core.model.loader.build_model", lambda *_, **__: pytest.fail("it was loaded"))
    weights = tmp_path / "tiny" / "model.safetensors"
    key = "model.layers.4.pre_feedforward_layernorm.weight"
    tensors = load_file(weights)
    save_file(tensors | {key: torch.zeros(31)}, weights)
    with pytest.raises(UserError, match=rf"model.safetensors has “{key}” of shape \[31\], and \[32\] is"):
        load_model(tmp_path / "tiny", CpuBackend(), positions=64)
    del tensors[key]
    save_file(tensors, weights)
    with pytest.raises(UserError, match=f"lacks the weights “{key}”"):
        load_model(tmp_path / "tiny", CpuBackend(), positions=64)
    broken = wide("gemma3_text")
    broken.model.layers[3].mlp.up_proj = torch.nn.Linear(256, 40, bias=False)
    file = write_gguf(tmp_path / "model.gguf", broken, "F32")
    with pytest.raises(UserError, match=r"model.gguf has “blk.3.ffn_up.weight” of shape \[40, 256\]"):
        load_model(opened(file), CpuBackend(), positions=64)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attention.head_count_kv": [2, 2]}, "attention.head_count_kv has 2 members for 6 layers"),
        ({"attention.head_count_kv": [2, 2, 2, 2, 2, 1]}, "attention.head_count_kv differs from layer"),
        ({"attention.sliding_window_pattern": [True] * 5}, "sliding_window_pattern has 5 members for 6"),
        ({"attention.sliding_window_pattern": 0}, "attention.sliding_window_pattern is 0"),
        ({"attention.sliding_window": 0}, "attention.sliding_window is 0"),
        ({"expert_count": 8}, "mixture of experts; only dense models of llama"),
    ],
)
def test_lists_of_a_file_that_are_not_one_for_each_layer_are_refused(tmp_path: Path, values, said: str):
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("gemma3_text"), "F32"))
    header.metadata.update({f"gemma3.{key}": value for key, value in values.items()})
    with pytest.raises(UserError, match=f"(model.gguf|model) .*{said}"):
        config_of(header, "model")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attention.head_count_kv": 2}, "attention.head_count_kv is 2, no list"),
        ({"attention.head_count_kv": [0, 2]}, "attention.head_count_kv has 2 members for 4 layers"),
        ({"attention.head_count_kv": [0, 2, 0, 1]}, "attention.head_count_kv differs from layer"),
        ({"attention.head_count_kv": [0] * 4}, "attention.head_count_kv differs from layer"),
        ({"shortconv.l_cache": 0}, "shortconv.l_cache is 0"),
        ({"shortconv.l_cache": None}, "shortconv.l_cache is None"),
    ],
)
def test_what_a_file_says_of_short_convolutions_is_refused_where_it_cannot_be(tmp_path: Path, values, said):
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("lfm2"), "F32"))
    header.metadata.update({f"lfm2.{key}": value for key, value in values.items()})
    with pytest.raises(UserError, match=f"model.gguf .*{said}"):
        config_of(header, "model")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"layer_types": ["conv", "full_attention", "conv", "mamba"]}, "layer_types.3. is 'mamba'"),
        ({"layer_types": ["conv", "linear_attention"] * 2}, "layer_types.1. is 'linear_attention'"),
        ({"layer_types": ["conv"] * 3}, "layer_types is no list of 4"),
        ({"layer_types": ["conv"] * 4}, "no layer has full attention"),
        ({"layer_types": None, "full_attn_idxs": []}, "no layer has full attention"),
        ({"layer_types": None, "full_attn_idxs": 3}, "full_attn_idxs is 3"),
        ({"conv_bias": True}, "conv_bias is set"),
        ({"conv_L_cache": 1}, "conv_L_cache is 1"),
        ({"block_multiple_of": 0}, "division by zero|modulo"),
        ({"block_ff_dim": None}, "NoneType"),
    ],
)
def test_short_convolutions_of_a_checkpoint_that_cannot_be_are_refused(tmp_path: Path, values, said: str):
    oracle("lfm2").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match=f"config.json of tiny .*{said}"):
        load_config(edited(tmp_path / "tiny", **values))


def test_every_spelling_of_a_configuration_of_lfm2_is_the_same(tmp_path: Path):
    """Published ones name the layers that attend, and a width of the MLP of which two thirds are meant."""
    oracle("lfm2").save_pretrained(tmp_path / "tiny")
    own = load_config(tmp_path / "tiny")
    assert (own.intermediate, own.tied) == (32, False)  # 48, two thirds, in steps of 16
    other = {"layer_types": None, "full_attn_idxs": [1, 3], "block_ff_dim": 48, "tie_embedding": False}
    found = load_config(edited(tmp_path / "tiny", **other, intermediate_size=7))
    assert (found.kinds, found.states, found.intermediate) == (own.kinds, own.states, own.intermediate)
    exact = edited(tmp_path / "tiny", block_auto_adjust_ff_dim=False, block_ff_dim=32)
    assert load_config(exact).intermediate == ModelShape.from_hf_config(own.source).intermediate == 32


@pytest.mark.parametrize("kind", ["lfm2_moe", "lfm2moe"])
def test_experts_of_a_family_of_their_own_are_called_so(tmp_path: Path, kind: str):
    oracle("lfm2").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match="tiny is a mixture of experts; only dense models of llama, .*lfm2"):
        load_config(edited(tmp_path / "tiny", model_type=kind))
    with pytest.raises(UserError, match="odd is a mixture of experts"):
        family_of_gguf(kind, "odd")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ssm.inner_size": 66}, "ssm.inner_size is 66 beside 4 heads"),
        ({"ssm.group_count": 0}, "ssm.group_count is 0"),
        ({"ssm.conv_kernel": [4, 4]}, "ssm.conv_kernel has 2 members for 4 layers"),
        ({"full_attention_interval": None}, "full_attention_interval is None"),
    ],
)
def test_what_a_file_says_of_states_is_refused_where_it_cannot_be(tmp_path: Path, values, said: str):
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("qwen3_5_text"), "F32"))
    header.metadata.update({f"qwen35.{key}": value for key, value in values.items()})
    with pytest.raises(UserError, match=f"model.gguf .*{said}"):
        config_of(header, "model")


def test_layers_of_a_file_that_predict_more_tokens_are_left_out(tmp_path: Path):
    """They are counted among its blocks, and stand behind the model's own."""
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("qwen3_5_text"), "F32"))
    own = config_of(header, "model")
    header.metadata.update({"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1})
    assert config_of(header, "model") == own
    assert own["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]


def test_nor_are_their_bytes_counted(tmp_path: Path):
    """They are not loaded: `use FILE` promised 0.3 GB more of a 27B than it took."""
    header = read_header(write_gguf(tmp_path / "model.gguf", wide("qwen3_5_text"), "Q8_0"))
    held = bytes_in_codes(header)
    header.metadata.update({"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1})
    for part in ("attn_q", "ffn_down"):
        own = header.tensors[f"blk.3.{part}.weight"]
        header.tensors[f"blk.4.{part}.weight"] = replace(own, name=f"blk.4.{part}.weight")
    assert bytes_in_codes(header) == held


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"linear_num_value_heads": 3}, "linear_num_value_heads is 3 beside 2"),
        ({"layer_types": ["linear_attention"] * 4}, "no layer has full attention"),
    ],
)
def test_states_of_a_checkpoint_that_cannot_be_are_refused(tmp_path: Path, values: dict, said: str):
    oracle("qwen3_5_text").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match=f"tiny .*{said}"):
        load_config(edited(tmp_path / "tiny", **values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_kv_shared_layers": 2}, "num_kv_shared_layers is 2"),  # the last to see all would read its own
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6"),
        (
            {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96},
            "vocab_size_per_layer_input is 96",
        ),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
        (
            {"layer_types": ["full_attention"] + ["sliding_attention"] * 5, "per_layer_config": None},
            "the last layer has a window",
        ),
        ({"per_layer_config": {"3": {"head_dim": 16}}}, r"\(5\)"),
        ({"enable_moe_block": True, "moe_intermediate_size": 8, "top_k_experts": 2}, "mixture of experts"),
    ],
)
def test_heads_of_two_sizes_that_cannot_be_are_refused(tmp_path: Path, values: dict, said: str):
    oracle("gemma4_text").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match=f"tiny .*{said}"):
        load_config(edited(tmp_path / "tiny", **values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attention.head_count_kv": [2] * 5}, "attention.head_count_kv has 5 members for 6 layers"),
        ({"attention.head_count_kv": [2, 2, 2, 1, 2, 1]}, "attention.head_count_kv is "),
        ({"attention.value_length_swa": 16}, "attention.value_length_swa is 16 beside heads of 8"),
        ({"rope.dimension_count_swa": 4}, "rope.dimension_count_swa is 4 beside heads of 8"),
        ({"attention.key_length_swa": 0}, "attention.key_length_swa is 0"),
        ({"expert_count": 128}, "mixture of experts"),
        (
            {"feed_forward_length": [48] * 4 + [96] * 2},
            "feed_forward_length is .* beside 0 layers that share",
        ),
        ({"attention.shared_kv_layers": 5}, "num_kv_shared_layers is 5"),
        (None, "lacks “rope_freqs.weight”"),
    ],
)
def test_a_file_with_heads_of_two_sizes_that_cannot_be_is_refused(tmp_path: Path, values, said: str):
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("gemma4_text"), "F32"))
    if values is None:
        del header.tensors["rope_freqs.weight"]
    header.metadata.update({f"gemma4.{key}": value for key, value in (values or {}).items()})
    with pytest.raises(UserError, match=f"model.*{said}"):
        layer_kinds(config_of(header, "model"), "model")


def test_the_same_text_model_by_its_other_name(tmp_path: Path):
    """Gemma 4 12B calls it so; heads of full layers are stated by keys of their own, as it is published."""
    oracle("gemma4_text").save_pretrained(tmp_path / "tiny")
    want = logits(tmp_path / "tiny")
    inner = json.loads((tmp_path / "tiny" / "config.json").read_text())
    del inner["per_layer_config"]
    inner |= {"global_head_dim": 16, "num_global_key_value_heads": 1, "model_type": "gemma4_unified_text"}
    outer = {"model_type": "gemma4_unified", "text_config": inner, "tie_word_embeddings": False}
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(outer))
    assert torch.equal(logits(tmp_path / "tiny"), want)


def test_which_layers_have_a_window_is_read_as_it_is_written(tmp_path: Path):
    """By a list, by a number, or by what llama.cpp takes where nothing is said."""
    header = read_header(write_gguf(tmp_path / "model.gguf", oracle("gemma3_text"), "F32"))
    every = ["sliding_attention"] * 5 + ["full_attention"]
    assert config_of(header, "model")["layer_types"] == every
    header.metadata["gemma3.attention.sliding_window_pattern"] = 3
    assert config_of(header, "model")["layer_types"] == every[3:] * 2
    header.metadata["gemma3.attention.sliding_window_pattern"] = [True, False] * 3
    assert config_of(header, "model")["layer_types"] == every[4:] * 3


def test_experts_of_a_checkpoint_are_refused(tmp_path: Path):
    oracle("qwen3").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match="tiny is a mixture of experts; only dense models of llama, .* run"):
        load_config(edited(tmp_path / "tiny", num_experts=64))


def test_weights_in_another_format_are_refused(tmp_path: Path):
    """Ministral 3 is published in FP8, whose numbers mean nothing without their scales."""
    oracle("ministral3").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match="as fp8.*16 bits"):
        load_config(edited(tmp_path / "tiny", quantization_config={"quant_method": "fp8"}))
