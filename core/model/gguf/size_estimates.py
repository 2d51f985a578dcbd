"""What a GGUF of a known model measures before it is there: which kind each matrix has in a format of
llama.cpp. Arithmetic on shapes; reads no file.

The mixes are those of llama-quantize (llama.cpp, src/llama-quant.cpp): in Q4_K_M the output matrix has 6
bits, and so have v and the last matrix of the MLP in about half of the layers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from core.model.gguf.reader import BITS, KINDS, held_bytes
from core.model.shapes import ModelShape

_BLOCKS = {name: (weights, nbytes) for name, weights, nbytes in KINDS.values()}
# format: (kind of most matrices, kind of those that are given more bits)
_MIXES = {"Q4_K_M": ("Q4_K", "Q6_K"), "Q8_0": ("Q8_0", "Q8_0"), "Q4_0": ("Q4_0", "Q4_0")}
# of a matrix whose rows are not whole blocks
_NARROWER = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
GROUP = 32  # weights that share a scale
# what a checkpoint of 16 bits is rounded to, by the bits that were asked for
ROUNDED = {8: "Q8_0", 4: "Q4_0"}


def in_format(shape: ModelShape, name: str, mix: str) -> ModelShape:
    """`shape` as the GGUF `name` holds it. Raises KeyError for a format that is not known here."""
    kinds = _weights(shape, mix)
    return replace(
        shape,
        name=name,
        format=mix,
        code_bits=BITS[_MIXES[mix][0]],
        coded_weights=sum(kinds.values()),
        coded_bytes=sum(held_bytes(kind, weights) for kind, weights in kinds.items()),
    )


def can_be_rounded(shape: ModelShape) -> bool:
    """Whether it is a checkpoint of 16 bits all of whose matrices have rows of whole groups."""
    rows = [shape.hidden, shape.intermediate, shape.heads * shape.head_dim]
    if shape.delta is not None:
        rows.append(shape.delta.values)
    return not shape.format and not shape.coded_weights and all(row % GROUP == 0 for row in rows)


def rounded_shape(shape: ModelShape, mix: str) -> ModelShape:
    """The 16-bit checkpoint `shape` as core.model.store.quantize_checkpoint rounds it to one of ROUNDED."""
    return replace(in_format(shape, shape.name, mix), checkpoint_bytes=shape.file_bytes)


def matrix_bytes(shape: ModelShape, mix: str) -> int:
    """Bytes of all matrices in the file, to which vocabulary, norms and biases add some 10 MB."""
    return sum(
        weights // _BLOCKS[kind][0] * _BLOCKS[kind][1] for kind, weights in _weights(shape, mix).items()
    )


def _weights(shape: ModelShape, mix: str) -> Counter[str]:
    """How many weights of each kind there are in the matrices."""
    usual, more = _MIXES[mix]
    hidden, inner = shape.hidden, shape.intermediate
    found: Counter[str] = Counter({_held(more, hidden): shape.vocab * hidden})
    if not shape.tied:
        found[_held(usual, hidden)] += shape.vocab * hidden
    for layer in range(shape.layers):
        finer = more if _is_finer(layer, shape.layers) else usual
        found[_held(usual, hidden)] += 2 * hidden * inner
        found[_held(finer, inner)] += hidden * inner
        # which ones have a state changes no sum worth the name
        mixer = _delta if layer >= shape.layers - shape.stateful else _attention
        found += mixer(shape, usual, finer)
    return found


def _held(kind: str, columns: int) -> str:
    """The kind of a matrix with rows of so many weights; of what has no narrower kind, itself."""
    return kind if columns % _BLOCKS[kind][0] == 0 else _NARROWER.get(kind, kind)


def _attention(shape: ModelShape, usual: str, finer: str) -> Counter[str]:
    """Of one layer's projections; v has the finer kind."""
    hidden, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.hidden * shape.kv_heads * shape.head_dim
    found: Counter[str] = Counter({_held(usual, hidden): shape.attention_parameters - kv - hidden * q})
    found[_held(usual, q)] += hidden * q
    found[_held(finer, hidden)] += kv
    return found


def _delta(shape: ModelShape, usual: str, finer: str) -> Counter[str]:
    """Likewise where a gated delta rule is in the place of attention; the kind of its output is the usual."""
    out = shape.hidden * shape.delta.values
    found: Counter[str] = Counter({_held(usual, shape.hidden): shape.delta_parameters - out})
    found[_held(usual, shape.delta.values)] += out
    return found


def _is_finer(layer: int, layers: int) -> bool:
    """Whether v and the last matrix of the MLP have more bits: the first and last eighth, and every third."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
