"""Plans of models whose layers mostly keep a state: what a book takes, and what is accepted where."""

from __future__ import annotations

import pytest

from core.cache.layered import with_side
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.config import from_source
from core.model.gguf.size_estimates import in_format, matrix_bytes
from core.model.shapes import ModelShape
from core.planning import budget
from core.planning.plan import Plan
from core.planning.planner import make_plan
from tests.support.tiny import oracle, ours, whole_cache

BOOK = 131_072
# layers, hidden, heads, KV heads, intermediate, tied, value heads: of the 9B as transformers states them as
# defaults, of the 27B as THUDM/slime does (scripts/models), of the others such as give their count of weights
SIZES = {
    "2B": (24, 2048, 8, 2, 6144, True, 16),
    "4B": (32, 2560, 16, 4, 9216, True, 32),
    "9B": (32, 4096, 16, 4, 12_288, False, 32),
    "27B": (64, 5120, 24, 4, 17_408, False, 48),
}


def shape(name: str) -> ModelShape:
    layers, hidden, heads, kv_heads, intermediate, tied, value_heads = SIZES[name]
    config = {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 256,
        "intermediate_size": intermediate,
        "vocab_size": 248_320,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 262_144,
        "linear_num_value_heads": value_heads,
    }
    return ModelShape.from_hf_config(config, name=f"Qwen3.5-{name}")


def planned(name: str, **machine: object) -> Plan:
    target = in_format(shape(name), f"Qwen3.5-{name}-Q4_K_M", "Q4_K_M")
    return make_plan(imagined_hardware(**machine), Settings(context_tokens=BOOK), target=target)


@pytest.mark.parametrize(
    ("name", "weights", "kib", "states_mb"),
    [("2B", 1.88e9, 12, 18.9), ("4B", 4.2e9, 32, 50.3), ("9B", 8.95e9, 32, 50.3), ("27B", 26.9e9, 64, 151.0)],
)
def test_a_token_leaves_little_and_states_do_not_grow(name: str, weights: float, kib: int, states_mb: float):
    found = shape(name)
    assert found.parameters == pytest.approx(weights, rel=0.005)
    assert found.kv_bytes_per_token("bfloat16") == kib * 1024
    assert found.state_bytes / 1e6 == pytest.approx(states_mb, rel=0.01)
    assert found.full_layers == found.layers // 4


def test_all_weights_are_counted():
    """Every matrix of a checkpoint, and of its layers nothing twice."""
    reference = oracle("qwen3_5_text")
    config = {**reference.config.to_dict(), "tie_word_embeddings": False}
    found = ModelShape.from_hf_config(config, name="tiny")
    matrices = [value for value in reference.parameters() if value.ndim == 2]
    assert 0 <= found.parameters - sum(value.numel() for value in matrices) < 12 * found.hidden
    assert from_source(config, name="tiny", eos=None).delta == found.delta
    assert matrix_bytes(shape("9B"), "Q4_K_M") == pytest.approx(5.6e9, rel=0.03)  # published: 5.68 GB


def test_a_book_of_the_4b_is_on_a_card_of_8_gb():
    """In rows of 8 bits, with all layers that have any."""
    plan = planned("4B", gpu="RTX 4060", ram_gib=16)
    assert (plan.device, plan.context_tokens, plan.kv_bits) == ("cuda", BOOK, 8)
    assert plan.on_chip_layers == plan.layers == 8
    by_name = {line.name: line.bytes for line in plan.budget if line.place == "VRAM"}
    assert by_name[budget.KV_ON_CHIP] == pytest.approx(2.28e9, rel=0.01)
    assert by_name[budget.STATES] < 0.3e9


@pytest.mark.parametrize("name", ["2B", "4B"])
def test_a_book_is_in_the_context_of_a_pc_of_16_gb_without_a_card(name: str):
    plan = planned(name, ram_gib=16)
    assert (plan.device, plan.context_tokens, plan.layers) == ("cpu", BOOK, shape(name).full_layers)


def test_only_layers_that_see_every_token_leave_a_card():
    """The 9B beside a card of 12 GB: some of its eight, and no state."""
    plan = planned("9B", gpu="RTX 4070", ram_gib=32)
    assert 0 < plan.on_chip_layers <= plan.layers == 8
    away = [line.name for line in plan.budget if line.place == "pinned RAM"]
    assert away in ([], [budget.KV_PINNED])


def test_each_row_of_a_draft_is_paid_for():
    """By torch, row by row: a pass of nine takes longer than one by more than what is read again."""
    plan = planned("4B", gpu="RTX 4060", ram_gib=16)
    assert plan.expected_row_ms > 24 * 0.15


def test_what_is_planned_for_states_is_what_they_take():
    model = ours(oracle("qwen3_5_text"))
    held = whole_cache(model, 64).side
    found, sizes = model.config.kv_shape.states, model.config.delta
    states = len(found.layers) * sizes.state * 4
    assert held.nbytes == 2 * states + len(found.layers) * (3 + 64) * sizes.width * 4
    assert with_side(model.config.kv_shape.of_full, None, room=1) is None
