"""The converter keeps a GGUF's own codes: unpacked they are the weights that gguf's reader gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors import safe_open

from core.model import gguf_convert

ROWS, COLUMNS = 12, 96
UNPACK = {"Q4_1": gguf_convert._unpack_q4_1, "Q8_0": gguf_convert._unpack_q8_0}


@pytest.mark.parametrize("kind", UNPACK)
def test_codes_rebuild_what_gguf_dequantises(kind: str):
    """Nibble order, scales, offsets and signs, as the format's reference implementation packs them."""
    weights = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    packed = quantize(weights, GGMLQuantizationType[kind])
    codes, scale, offset = UNPACK[kind](packed, ROWS, COLUMNS)
    assert codes.dtype == (np.uint8 if kind == "Q4_1" else np.int8) and codes.shape == (ROWS, COLUMNS)
    grouped = codes.reshape(ROWS, -1, gguf_convert.GROUP).astype(np.float32)
    rebuilt = grouped * scale.astype(np.float32)[..., None] + offset.astype(np.float32)[..., None]
    np.testing.assert_allclose(
        rebuilt.reshape(ROWS, COLUMNS), dequantize(packed, GGMLQuantizationType[kind]), atol=1e-6
    )


@pytest.mark.parametrize(("name", "heads"), [("q_proj", 4), ("k_proj", 2)])
def test_rotary_halves_come_apart_again(name: str, heads: int):
    """GGUF writes the halves of each q and k head row by row in turn; other matrices are left alone."""
    rows = np.arange(heads * 6).reshape(-1, 1)
    interleaved = rows.reshape(heads, 2, 3, 1).swapaxes(1, 2).reshape(rows.shape)
    full = f"model.layers.0.self_attn.{name}.weight"
    np.testing.assert_array_equal(gguf_convert._rows_as_in_checkpoint(interleaved, full, 4, 2), rows)
    for other in ("model.layers.0.self_attn.v_proj.weight", "model.embed_tokens.weight"):
        np.testing.assert_array_equal(
            gguf_convert._rows_as_in_checkpoint(interleaved, other, 4, 2), interleaved
        )


@pytest.mark.parametrize(
    ("gguf_name", "name"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"),
        ("blk.12.ffn_down.weight", "model.layers.12.mlp.down_proj.weight"),
        ("blk.0.attn_norm.weight", None),
        ("output_norm.weight", None),
    ],
)
def test_names(gguf_name: str, name: str | None):
    """Norms have no codes; everything else goes under the checkpoint's name."""
    assert gguf_convert._checkpoint_name(gguf_name) == name


def test_the_embedded_models_codes_are_its_weights(embedded_model_dir: Path):
    """Every matrix of the real model, against the float weights that transformers read from the same file."""
    found = 0
    with (
        safe_open(embedded_model_dir / "codes.safetensors", framework="pt") as codes,
        safe_open(embedded_model_dir / "model.safetensors", framework="pt") as weights,
    ):
        for name in (name for name in codes.keys() if name.endswith(".codes")):  # noqa: SIM118 (no mapping: it has keys() alone)
            stem = name.removesuffix(".codes")
            values, scale, offset = (
                codes.get_tensor(f"{stem}.{part}").float() for part in ("codes", "scale", "offset")
            )
            rebuilt = values.view(*scale.shape, -1) * scale.unsqueeze(-1) + offset.unsqueeze(-1)
            want = weights.get_tensor(f"{stem}.weight").float()
            assert torch.allclose(rebuilt.view(want.shape), want, rtol=1e-3, atol=1e-5), stem
            found += 1
    assert found == 30 * 7 + 1
