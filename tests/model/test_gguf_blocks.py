"""Every kind of block of a GGUF keeps each weight's value exactly, as the `gguf` package decodes it."""

from __future__ import annotations

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from core.model.gguf import dequantize as ours
from core.model.gguf.dequantize import floats, planes
from core.model.gguf.reader import BITS, held_bytes
from tests.support.gguf_blocks import COLUMNS, ROWS, random_blocks


@pytest.mark.parametrize("kind", BITS)
def test_decodes_as_the_reference(kind: str):
    """To the bit: the model is the file's, not one near it."""
    raw = random_blocks(kind)
    found = planes(raw.copy(), kind, (ROWS, COLUMNS))
    want = dequantize(raw.reshape(ROWS, -1), GGMLQuantizationType[kind])
    assert (found.rows, found.columns, found.bits) == (ROWS, COLUMNS, BITS[kind])
    assert torch.equal(found.decoded(), torch.from_numpy(want))


@pytest.mark.parametrize("kind", BITS)
def test_pieces_make_the_whole(kind: str, monkeypatch):
    """Large tensors are unpacked some rows at a time."""
    raw = random_blocks(kind)
    want = planes(raw.copy(), kind, (ROWS, COLUMNS)).decoded()
    monkeypatch.setattr(ours, "_PIECE", 2 * COLUMNS)
    assert torch.equal(planes(raw, kind, (ROWS, COLUMNS)).decoded(), want)


@pytest.mark.parametrize("kind", BITS)
def test_takes_as_many_bytes_as_said(kind: str):
    """The planner counts them; a file's 4.5 bits must not become 6."""
    raw = random_blocks(kind)
    found = planes(raw, kind, (ROWS, COLUMNS))
    assert found.nbytes == held_bytes(kind, ROWS * COLUMNS) <= 1.03 * raw.nbytes


@pytest.mark.parametrize("kind", BITS)
def test_planes_hold_nothing_of_the_file(kind: str):
    """A plane that is a view of the blocks would keep the whole file in memory beside the planes."""
    raw = random_blocks(kind)
    found = planes(raw, kind, (ROWS, COLUMNS))
    before = found.decoded()
    raw[:] = 0
    assert torch.equal(found.decoded(), before)


@pytest.mark.parametrize("kind", BITS)
def test_rows_in_another_order(kind: str):
    """The rows of q and k are written in another order than they are computed in."""
    found, order = planes(random_blocks(kind), kind, (ROWS, COLUMNS)), torch.randperm(ROWS)
    assert torch.equal(found.picked(order).decoded(), found.decoded()[order])


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_numbers_stay_numbers(kind: str, dtype: torch.dtype):
    want = torch.randn(3, 8).to(dtype)
    raw = want.view(torch.uint8).numpy().reshape(-1).copy()
    assert torch.equal(floats(raw, kind, (3, 8)), want)
