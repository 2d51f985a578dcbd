"""Bytes and FLOPs of known models, and the cost formulae against published figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.backend.shared.kv_rows import row_bytes
from core.errors import UserError
from core.hardware.gpus import imagined_gpu, imagined_hardware
from core.model.shapes import ModelShape
from core.model.store.catalogue import find
from core.planning.costs import (
    StreamedKV,
    best_speculation,
    expected_tokens,
    gpu_speeds,
    pass_s,
    prefill_seconds,
    recorded_whole,
)
from tests.support.imagined import planned

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("name", "billions", "kib_per_token"),
    [
        ("LWM-Text-Chat-128K", 6.738, 512),
        ("Yarn-Llama-2-13b-128k", 13.016, 800),
        ("Llama-3.1-8B-Instruct", 8.030, 128),
        ("Llama-3.2-1B-Instruct", 1.236, 32),
        ("Llama-3.2-3B-Instruct", 3.213, 112),
        ("Qwen2.5-7B-Instruct", 7.616, 56),
        ("Qwen2.5-0.5B-Instruct", 0.494, 12),
        ("Qwen3-8B", 8.191, 144),
        ("Qwen3-0.6B", 0.596, 112),
        ("Mistral-7B-Instruct-v0.3", 7.248, 128),
        ("Mistral-Nemo-Instruct-2407", 12.248, 160),
        ("SmolLM2-135M-Instruct", 0.1345, 22.5),
        ("llama-68m", 0.068, 6),
    ],
)
def test_published_sizes(name, billions, kib_per_token):
    """A wrong figure in the catalogue shows in the parameter count its maker publishes."""
    shape = find(name).shape
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=2e-3)
    assert shape.kv_bytes_per_token("bfloat16") == kib_per_token * 1024


def test_llama_2_7b_at_128k_needs_68_7_gb_of_kv():
    assert find("Yarn-Llama-2-7b-128k").shape.kv_bytes_per_token("float16") * 131_072 == pytest.approx(
        68.7e9, rel=1e-3
    )


def test_prefill_work_of_llama_31_8b_at_128k():
    """1.83 + 4.50 PFLOP."""
    shape = find("Llama-3.1-8B-Instruct").shape
    assert shape.linear_flops_per_token * 131_072 == pytest.approx(1.83e15, rel=0.01)
    assert shape.attention_flops(131_072, 0) == pytest.approx(4.50e15, rel=0.01)


def test_shape_from_a_config_file():
    shape = ModelShape.from_hf_config(LLAMA, name="x")
    assert (shape.kv_heads, shape.head_dim, shape.tied) == (32, 128, False)
    assert (shape.native_context, shape.longest_context) == (4096, 16384)
    grouped = ModelShape.from_hf_config(
        {**LLAMA, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True}
    )
    assert (grouped.kv_heads, grouped.head_dim, grouped.tied) == (8, 64, True)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_scaling": {"type": "yarn", "factor": 32}},
        {"rope_scaling": {"rope_type": "llama3"}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
    ],
)
def test_a_stretched_checkpoint_is_not_stretched_again(scaling):
    shape = ModelShape.from_hf_config({**LLAMA, **scaling, "max_position_embeddings": 131_072})
    assert shape.longest_context == shape.native_context == 131_072


def test_default_rope_parameters_are_no_scaling():
    assert (
        ModelShape.from_hf_config({**LLAMA, "rope_parameters": {"rope_type": "default"}}).longest_context
        == 16384
    )


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gpt2"},
        {},
        {k: v for k, v in LLAMA.items() if k != "hidden_size"},
        {**LLAMA, "num_hidden_layers": None},
    ],
)
def test_models_that_cannot_run_are_refused(config):
    with pytest.raises(UserError):
        ModelShape.from_hf_config(config, name="x")


def test_keys_with_a_constant_part_are_known():
    """By the family, or where its configuration says so: their cache is not kept in 8 bits unasked."""
    assert not ModelShape.from_hf_config(LLAMA).key_bias
    assert ModelShape.from_hf_config({**LLAMA, "attention_bias": True}).key_bias
    assert find("Qwen2.5-7B-Instruct-1M").shape.key_bias and not find("Qwen3-8B").shape.key_bias


def test_a_row_of_codes_is_counted_as_it_is_kept():
    """Codes, a factor, and up to the next 16 bytes."""
    for head_dim, share in ((64, 80 / 128), (80, 96 / 160), (128, 144 / 256)):
        shape = replace(find("Llama-3.1-8B-Instruct").shape, head_dim=head_dim)
        row = row_bytes(head_dim, torch.int8)
        assert shape.kv_bytes_per_token_layer("int8") == 2 * shape.kv_heads * row
        assert shape.kv_bytes_per_token("int8") / shape.kv_bytes_per_token("bfloat16") == share


@pytest.mark.parametrize(
    ("p", "gamma", "tokens"),
    [
        (0.90, 12, 7.5),
        (0.93, 12, 8.7),
        (0.93, 24, 12.0),
        (0.965, 24, 16.8),
        (0.98, 12, 11.5),
        (1.0, 5, 6.0),
        (0.0, 5, 1.0),
    ],
)
def test_expected_tokens_per_round(p, gamma, tokens):
    assert expected_tokens(p, gamma) == pytest.approx(tokens, rel=0.01)


def test_what_is_not_page_locked_hides_behind_nothing():
    """Its copy holds up the thread that launches: its time comes on top of the computation's, at half the
    rate. What is page-locked is on the bus meanwhile.
    """
    shape, speeds = find("Llama-3.1-8B-Instruct").shape, gpu_speeds(imagined_gpu("RTX 4090"), "bfloat16")

    def taken(host: StreamedKV | None) -> float:
        return pass_s(shape, "bfloat16", rows=8, kv_tokens=4096, speeds=speeds, host=host)

    compute = taken(None)
    size = int(0.5 * compute * speeds.bus)  # half as long on the bus as it computes
    assert taken(StreamedKV(pinned_bytes=size)) == compute
    assert taken(StreamedKV(pageable_bytes=size)) == pytest.approx(2 * compute)


def test_the_published_4090_time_comes_out_of_the_round():
    """Published: 312 ms on one 4090. With nothing on chip (2.7 s per verification), gamma 12, a 20 ms middle
    pass yielding 1.35 tokens and acceptance .94: 68.7 GB / 25.5 GB/s + 12 / 1.35 * 20 ms over E(.94, 12) =
    9.2 tokens."""
    found = best_speculation(
        [68.7 / 25.5] * 40, [0.020] * 10, draft_s=0.0, p=0.94, q=0.35, gamma=12, middle_gamma=1
    )
    assert found.tbt_s == pytest.approx(0.312, rel=0.03)


def test_lengths_grow_with_the_cost_of_verification():
    cheap = best_speculation([0.020] * 40, [0.018] * 10, draft_s=0.001, p=0.92, q=0.35)
    dear = best_speculation([2.0] * 40, [0.018] * 10, draft_s=0.001, p=0.92, q=0.35)
    assert cheap.gamma < dear.gamma
    assert cheap.tbt_s < dear.tbt_s


def test_chosen_lengths_are_the_best_of_all():
    verify, middle = [0.3 + 0.01 * n for n in range(40)], [0.02 + 0.001 * n for n in range(10)]
    free = best_speculation(verify, middle, draft_s=0.002, p=0.9, q=0.5)
    for gamma in range(1, 33):
        for m in range(1, 9):
            fixed = best_speculation(verify, middle, draft_s=0.002, p=0.9, q=0.5, gamma=gamma, middle_gamma=m)
            assert free.tbt_s <= fixed.tbt_s


def test_earlier_segments_come_back_for_each_later_one():
    """Behind a slow bus four segments bring the first back three times, the second twice, the third once."""
    shape, slow = (
        find("LWM-Text-Chat-128K").shape,
        replace(gpu_speeds(imagined_gpu("RTX 4090"), "float16"), bus=1e6),
    )
    given = {"tokens": 4096, "speeds": slow, "chunk": 512, "host_bytes": 10**9}
    once, again = (prefill_seconds(shape, "float16", segment=segment, **given) for segment in (4096, 1024))
    assert (once, again) == pytest.approx((1000.0, 1000.0 + 1500.0))


@pytest.mark.parametrize(("name", "linear", "attention"), [("RTX 4090", 0.85, 0.67), ("H200", 0.79, 0.38)])
def test_a_hopper_card_computes_less_of_what_its_maker_says(name: str, linear: float, attention: float):
    """Reading a book on an H200 was promised in half the time."""
    gpu = imagined_gpu(name)
    speeds = gpu_speeds(gpu, "bfloat16")
    assert speeds.linear_flops == pytest.approx(linear * gpu.tflops * 1e12)
    assert speeds.attention_flops == pytest.approx(attention * gpu.tflops * 1e12)


def test_a_pass_that_is_not_recorded_waits_for_its_launches():
    """On a card, a small model's kernels end before the next one was asked for; a large one's do not."""
    speeds = gpu_speeds(imagined_gpu("RTX 4090"), "bfloat16")
    for name, waits in (("Qwen3-0.6B", True), ("LWM-Text-Chat-128K", False)):
        shape = find(name).shape
        took = [
            pass_s(shape, "bfloat16", rows=1, kv_tokens=1000, speeds=speeds, launched=launched)
            for launched in (False, True)
        ]
        assert (took[1] > took[0]) == waits
        assert took[1] >= 27 * 1e-5 * shape.layers * (1 - 1e-9)


@pytest.mark.parametrize(
    ("name", "recorded"), [("Qwen3-0.6B", True), ("Gemma-3-1B-it", False), ("Qwen3.5-2B", False)]
)
def test_which_verifications_are_recorded(name: str, recorded: bool):
    """Of layers that all see every token, by the compiled attention: as core.model.recorded_verification."""
    card = imagined_gpu("RTX 4090")
    shape = find(name).shape
    assert recorded_whole(shape, gpu_speeds(card, "bfloat16")) is recorded
    assert not recorded_whole(shape, gpu_speeds(replace(card, compute_capability=(7, 5)), "float16"))
    assert not recorded_whole(replace(shape, head_dim=96), gpu_speeds(card, "bfloat16"))


def test_a_plan_counts_launches_where_nothing_is_recorded():
    """By the setting, or since the layers are not alike: then no pass is quicker than it is asked for."""
    card = imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25.0)

    def passes(name: str, graphs: str) -> tuple[float, float]:
        plan = planned(card, name, context=8192, cuda_graphs=graphs)
        return plan.expected_plain_tbt_ms, plan.expected_middle_ms

    asked = 0.27 * find("Qwen3-0.6B").shape.layers
    assert min(passes("Qwen3-0.6B", "off")) == pytest.approx(asked)
    assert max(passes("Qwen3-0.6B", "auto")) < asked
    assert passes("Gemma-3-1B-it", "auto") == passes("Gemma-3-1B-it", "off")
    assert passes("Gemma-3-1B-it", "auto")[0] == pytest.approx(0.27 * find("Gemma-3-1B-it").shape.layers)
