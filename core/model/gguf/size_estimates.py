"""What a GGUF of a known model measures before it is there: which kind each matrix has in a format of
llama.cpp. Arithmetic on shapes; reads no file.

The mixes are those of llama-quantize (llama.cpp, src/llama-quant.cpp): in Q4_K_M the output matrix has 6
bits, and so have v and the last matrix of the MLP in about half of the layers. Of a gated delta rule what
makes its rows has 5 bits, and so has its gate; its two narrow projections have 8.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from core.model.gguf.reader import BITS, KINDS, held_bytes
from core.model.mixer_sizes import ConvolutionSizes
from core.model.shapes import ModelShape

_BLOCKS = {name: (weights, nbytes) for name, weights, nbytes in KINDS.values()}
# format: (kind of most matrices, kind of those that are given more bits)
_MIXES = {"Q4_K_M": ("Q4_K", "Q6_K"), "Q8_0": ("Q8_0", "Q8_0"), "Q4_0": ("Q4_0", "Q4_0")}
# of a gated delta rule, by the format: what makes its rows and gates them; its narrow projections
_DELTA_KINDS = {"Q4_K_M": ("Q5_K", "Q8_0")}
# of a matrix whose rows are not whole blocks
_NARROWER = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
GROUP = 32  # weights that share a scale
# what a checkpoint of 16 bits is rounded to, by the bits that were asked for
ROUNDED = {8: "Q8_0", 4: "Q4_0"}


def in_format(
    shape: ModelShape, name: str, mix: str, *, ends: str | None = None, table: str | None = None
) -> ModelShape:
    """`shape` as the GGUF `name` holds it; `ends`: the kind of the matrix that is input and output, where its
    maker chose another; `table`: that of the rows that tokens bring to layers, where what takes them in is
    kept in numbers. Raises KeyError for a format that is not known here.
    """
    kinds, ahead = _weights(shape, mix, ends, table), _ahead(shape, mix)
    kind = table or _held(_MIXES[mix][1], shape.layers * shape.input_width)
    return replace(
        shape,
        name=name,
        format=mix,
        code_bits=BITS[_MIXES[mix][0]],
        coded_weights=sum(kinds.values()),
        coded_bytes=_held_bytes(kinds),
        ahead_weights=sum(ahead.values()),
        ahead_bytes=_held_bytes(ahead),
        table_bytes=held_bytes(kind, shape.table_weights),
        head_bytes=held_bytes(_held(ends or _MIXES[mix][1], shape.hidden), shape.vocab * shape.hidden),
    )


def _held_bytes(kinds: Counter[str]) -> int:
    return sum(held_bytes(kind, weights) for kind, weights in kinds.items())


def can_be_rounded(shape: ModelShape) -> bool:
    """Whether it is a checkpoint of 16 bits all of whose matrices have rows of whole groups."""
    heads = [shape.heads * one.head_dim for one in (shape, shape.of_windows)]
    rows = [shape.hidden, shape.intermediate, shape.reader_intermediate, shape.input_width, *heads]
    if shape.states is not None:
        rows.append(shape.states.values)
    return not shape.format and not shape.coded_weights and all(row % GROUP == 0 for row in rows)


def rounded_shape(shape: ModelShape, mix: str) -> ModelShape:
    """The 16-bit checkpoint `shape` as core.model.store.quantize_checkpoint rounds it to one of ROUNDED."""
    return replace(in_format(shape, shape.name, mix), checkpoint_bytes=shape.file_bytes)


def matrix_bytes(shape: ModelShape, mix: str, *, ends: str | None = None, table: str | None = None) -> int:
    """Bytes of all matrices in codes in the file, to which vocabulary, norms and biases add some 10 MB;
    `ends`, `table`: see `in_format`.
    """
    kinds = _weights(shape, mix, ends, table)
    kinds[table or _held(_MIXES[mix][1], shape.layers * shape.input_width)] += shape.table_weights
    return sum(weights // _BLOCKS[kind][0] * _BLOCKS[kind][1] for kind, weights in kinds.items())


def _weights(shape: ModelShape, mix: str, ends: str | None = None, table: str | None = None) -> Counter[str]:
    """How many weights of each kind there are in the matrices."""
    usual, more = _MIXES[mix]
    hidden, inner = shape.hidden, shape.intermediate
    found: Counter[str] = Counter({_held(ends or more, hidden): shape.vocab * hidden})
    if not shape.tied:
        found[_held(usual, hidden)] += shape.vocab * hidden
    with_values = shape.windowed if shape.keys_as_values else shape.layers
    for layer in range(shape.layers):
        finer = more if _is_finer(layer, shape.layers) else usual
        reads = layer >= shape.layers - shape.readers
        wide = (shape.reader_intermediate if reads else 0) or inner
        found[_held(usual, hidden)] += 2 * hidden * wide
        found[_held(finer, wide)] += hidden * wide
        if reads:
            continue
        # which ones have a state or a window changes no sum worth the name
        has_state = layer >= shape.layers - shape.stateful
        attending = shape.of_windows if layer < shape.windowed else shape
        finer = more if _is_finer(layer, with_values) else usual
        found += _stateful(shape, mix) if has_state else _attention(attending, usual, finer)
    found += _of_readers(shape, usual)
    return found if table else found + _of_inputs(shape, usual)


def _of_readers(shape: ModelShape, usual: str) -> Counter[str]:
    """Queries of the layers that attend to what others hold, and what is behind their heads."""
    found: Counter[str] = Counter()
    own = ((shape, shape.readers - shape.windowed_readers), (shape.of_windows, shape.windowed_readers))
    for heads, layers in own:
        weights = layers * shape.hidden * shape.heads * heads.head_dim
        found[_held(usual, shape.hidden)] += weights
        found[_held(usual, shape.heads * heads.head_dim)] += weights
    return found


def _of_inputs(shape: ModelShape, usual: str) -> Counter[str]:
    """What makes the inputs that tokens bring to layers, but for the table, and takes them in."""
    weights = shape.layers * shape.hidden * shape.input_width
    found: Counter[str] = Counter({_held(usual, shape.hidden): 2 * weights})
    found[_held(usual, shape.input_width)] += weights
    return found


def _ahead(shape: ModelShape, mix: str) -> Counter[str]:
    """Of the layer that predicts one token further: as another, and one matrix of 8 bits, as in Qwen3.8's
    files.
    """
    layer = shape.layer_ahead
    if layer is None:
        return Counter()
    usual, more = _MIXES[mix]
    hidden, inner = shape.hidden, shape.intermediate
    found = _attention(layer, usual, more)
    found[_held(usual, hidden)] += 2 * hidden * inner
    found[_held(more, inner)] += hidden * inner
    found["Q8_0"] += 2 * hidden * hidden
    return found


def _held(kind: str, columns: int) -> str:
    """The kind of a matrix with rows of so many weights; of what has no narrower kind, itself."""
    return kind if columns % _BLOCKS[kind][0] == 0 else _NARROWER.get(kind, kind)


def _attention(shape: ModelShape, usual: str, finer: str) -> Counter[str]:
    """Of one layer's projections; v has the finer kind."""
    hidden, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.hidden * shape.kv_heads * shape.head_dim
    if shape.keys_as_values:
        kv = 0
    found: Counter[str] = Counter({_held(usual, hidden): shape.attention_parameters - kv - hidden * q})
    found[_held(usual, q)] += hidden * q
    found[_held(finer, hidden)] += kv
    return found


def _stateful(shape: ModelShape, mix: str) -> Counter[str]:
    """Likewise where a gated delta rule is in the place of attention; the kind of its output is the usual.
    A short convolution has no other.
    """
    usual = _MIXES[mix][0]
    if isinstance(shape.states, ConvolutionSizes):
        return Counter({_held(usual, shape.hidden): shape.state_parameters})
    wide, narrow = _DELTA_KINDS.get(mix, (usual, usual))
    hidden, sizes = shape.hidden, shape.states
    found: Counter[str] = Counter({_held(wide, hidden): hidden * (sizes.channels + sizes.values)})
    found[_held(narrow, hidden)] += hidden * 2 * sizes.value_heads
    found[_held(usual, sizes.values)] += hidden * sizes.values
    return found


def _is_finer(layer: int, layers: int) -> bool:
    """Whether v and the last matrix of the MLP have more bits: the first and last eighth, and every third."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
