"""Rotary position embedding: frequencies from the checkpoint's configuration, tables, and the rotation
itself.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import torch

from core.errors import UserError
from core.model.config import ModelConfig
from core.model.families import SLIDING
from core.text.words import translated as _

_PIECE = 1 << 15  # positions
_KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
_UNTURNED = 1e30  # a GGUF's divisor of a frequency that is none


class Rotation(NamedTuple):
    """What RoPE does to rows at n positions."""

    cos: torch.Tensor  # [n, 1, head_dim], or as many numbers of a head as are rotated
    sin: torch.Tensor  # likewise, negative in its low half
    scale: torch.Tensor | None  # of queries alone [n, 1, 1]; None: they keep their size

    def of(self, rows: slice) -> Rotation:
        """Of some of the rows."""
        return Rotation(self.cos[rows], self.sin[rows], None if self.scale is None else self.scale[rows])


Rotations = dict[str, Rotation]  # by LayerKind.rope


class Rope:
    """Cosine and sine tables for positions [0, positions); kinds whose frequencies depend on the longest
    position are frozen there.

    `stretch` above 1 extends a model with default RoPE that many times beyond its native context by YaRN
    (https://arxiv.org/abs/2309.00071); it changes what the model computes and is labelled in the plan. Where
    layers are of a kind that says so, queries grow with their position as in Llama 4 (transformers,
    get_llama_4_attn_scale), or nothing is rotated. Equal `fingerprint`: equal keys.
    """

    def __init__(
        self,
        config: ModelConfig,
        positions: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        stretch: float = 1.0,
    ) -> None:
        self._kinds, said = config.kinds, b""
        # by name, cosines and sines [positions, head_dim]
        self._tables: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name in dict.fromkeys(kind.rope for kind in config.kinds):
            frequencies, scale = _frequencies(config, name, positions, stretch)
            said += frequencies.numpy().tobytes() + repr(scale).encode()
            tables = _tables(frequencies, scale, positions, dtype)
            self._tables[name] = tuple(table.to(device) for table in tables)
        if not config.alike:  # else the key of what is on disk is what it always was
            said += repr(config.kinds).encode()
        self.fingerprint = hashlib.sha256(said).hexdigest()[:16]
        scaled = any(kind.scaled for kind in config.kinds)
        self._scale = _query_scale(config, positions).to(device, dtype) if scaled else None  # [positions]

    def at(self, positions: torch.Tensor) -> Rotations:
        """What is done at `positions` [n], by each of the rotations."""
        scale = None if self._scale is None else self._scale[positions].view(-1, 1, 1)
        return {
            name: Rotation(cos[positions].unsqueeze(1), sin[positions].unsqueeze(1), scale)
            for name, (cos, sin) in self._tables.items()
        }

    def rotate(self, layer: int, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Keys x [n, heads, head_dim] of a layer, rotated to `positions` [n] if it rotates."""
        kind = self._kinds[layer]
        if not kind.rotated:
            return x
        cos, sin = self._tables[kind.rope]
        return apply(x, cos[positions].unsqueeze(1), sin[positions].unsqueeze(1))


def apply(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates x [n, heads, head_dim]: (low, high) -> (low cos - high sin, high cos + low sin), the minus
    being in `sin`'s low half. Where these are shorter than a head, its first numbers.
    """
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((apply(x[..., :width], cos, sin), x[..., width:]), dim=-1)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _tables(
    frequencies: torch.Tensor, scale: float, positions: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [positions, head_dim] of `frequencies` [head_dim / 2], computed in fp32, a piece at
    a time: all of a million positions at once take 2 GB on the way.
    """
    size = (positions, 2 * frequencies.numel())
    cos, sin = torch.empty(size, dtype=dtype), torch.empty(size, dtype=dtype)
    for start in range(0, positions, _PIECE):
        rows = slice(start, min(start + _PIECE, positions))
        angles = torch.outer(torch.arange(rows.start, rows.stop, dtype=torch.float32), frequencies)
        c, s = angles.cos() * scale, angles.sin() * scale
        torch.cat((c.to(dtype), c.to(dtype)), dim=-1, out=cos[rows])
        torch.cat((-s.to(dtype), s.to(dtype)), dim=-1, out=sin[rows])
    return cos, sin


def _query_scale(config: ModelConfig, positions: int) -> torch.Tensor:
    """1 + beta ln(1 + floor(position / original context)), fp32 [positions]."""
    parameters = config.source["rope_parameters"]
    beta = float(parameters["llama_4_scaling_beta"])
    periods = torch.arange(positions) // int(parameters["original_max_position_embeddings"])
    return 1 + beta * torch.log(1 + periods.float())


def _proportional(parameters: dict[str, Any], head_dim: int, share: float) -> torch.Tensor:
    """Of the first `share` of a head's pairs, as if all of them turned; the others do not (transformers,
    _compute_proportional_rope_parameters).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    found = 1.0 / parameters["rope_theta"] ** exponents / parameters.get("factor", 1.0)
    found[int(share * head_dim // 2) :] = 0.0
    return found


def _frequencies(
    config: ModelConfig, rope: str, positions: int, stretch: float
) -> tuple[torch.Tensor, float]:
    """Inverse frequencies [head_dim / 2] and the attention scale of the checkpoint's RoPE kind, or of one of
    several. In a window distances stay what they were, so nothing is stretched there.
    """
    source = dict(config.source)
    _kv_heads, head_dim = config.heads_of(next(kind for kind in config.kinds if kind.rope == rope))
    several = source.get("rope_parameters") or {"rope_theta": 10000.0}
    parameters = several[rope] if rope else several
    kind, share = parameters.get("rope_type", "default"), parameters.get("partial_rotary_factor", 1.0)
    if kind not in _KINDS:
        raise UserError(
            _("{model} uses the RoPE kind {kind}; known kinds are {known}. Choose another model.").format(
                model=config.name, kind=repr(kind), known=", ".join(_KINDS)
            )
        )
    if rope == SLIDING:
        stretch = 1.0
    if stretch > 1 and (kind != "default" or "frequency_factors" in parameters):
        raise UserError(
            _(
                "{model} has its own RoPE scaling ({kind}) and cannot be stretched further. "
                "Lower context_tokens."
            ).format(model=config.name, kind=kind)
        )
    if stretch > 1:
        kind = "yarn"
        parameters = {
            "rope_type": "yarn",
            "rope_theta": parameters["rope_theta"],
            "factor": stretch,
            "original_max_position_embeddings": config.max_position,
            "partial_rotary_factor": share,
        }
        source["rope_parameters"] = {**several, rope: parameters} if rope else parameters
    if kind == "proportional":
        return _proportional(parameters, head_dim, share), 1.0
    if kind == "default":
        rotated = int(head_dim * share)
        exponents = torch.arange(0, rotated, 2, dtype=torch.float32) / rotated
        # a GGUF states what "llama3" and "proportional" come to: a divisor for each frequency
        factors = torch.tensor(parameters.get("frequency_factors", 1.0))
        found = 1.0 / (parameters["rope_theta"] ** exponents * factors)
        return found * (factors < _UNTURNED), 1.0
    from transformers import CONFIG_MAPPING
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    whole = CONFIG_MAPPING[config.family].from_dict(source)
    named = {"layer_type": rope} if rope else {}
    return ROPE_INIT_FUNCTIONS[kind](whole, torch.device("cpu"), seq_len=positions, **named)
