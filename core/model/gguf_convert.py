"""Turns a Llama GGUF into a safetensors checkpoint folder, keeping its 4-bit codes. Runs once per model;
knows nothing of downloads.

transformers reads the GGUF (weights dequantised, config, tokenizer). Beside its `model.safetensors` this
writes `codes.safetensors`: the checkpoint's own integer codes with their group scales, so that integer
kernels compute with exactly the weights of the checkpoint instead of a second quantisation. Formats: Q4_1 (w
= d*q + m, q in 0..15) and Q8_0 (w = d*q, q in -128..127), groups of 32. Matrices that an adapter changes get
the codes nearest to the sum, and those codes are then their weights.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from core.events import Progress
from core.model import adapter as adapters
from core.text.words import translated as _

log = logging.getLogger(__name__)

GROUP = 32

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, out: Path, progress: Progress | None = None, *, adapter: Path | None = None) -> None:
    """Writes config, tokenizer, `model.safetensors` (float16) and `codes.safetensors` for `gguf` into the
    existing folder `out`, with what `adapter` (core.model.adapter) changes.

    Raises ValueError when the file is not a Llama-architecture GGUF; leaves cleaning up `out` to the caller.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    report = progress or (lambda stage, fraction: None)
    report(_("Reading the model file"), 0.0)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    if model.config.model_type != "llama":
        raise ValueError(
            f"{gguf.name} holds a {model.config.model_type} model; only the llama architecture is converted"
        )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    report(_("Keeping the 4-bit codes"), 0.4)
    weights = dict(model.named_parameters())
    codes = _codes(gguf, weights, model.config.num_attention_heads, model.config.num_key_value_heads)
    if adapter is not None:
        codes |= _taught(weights, adapters.load(adapter))
    save_file(codes, out / "codes.safetensors")
    report(_("Writing the weights"), 0.7)
    _save(model, out)
    tokenizer.save_pretrained(out)
    report(_("Model ready"), 1.0)


def _taught(
    weights: dict[str, torch.Tensor], factors: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """Adds the factors to the weights, which become what their new codes stand for; returns these codes."""
    found: dict[str, torch.Tensor] = {}
    for name, (down, up) in factors.items():
        weight = weights[f"{name}.weight"]
        # float16 first, as it is stored and was learned on
        made = adapters.requantised(adapters.merged(weight.detach().half(), down, up))
        found |= dict(zip((f"{name}.codes", f"{name}.scale", f"{name}.offset"), made, strict=True))
        weight.data.copy_(adapters.rebuilt(*made))
    return found


def _save(model: torch.nn.Module, out: Path) -> None:
    """A plain checkpoint: transformers refuses `save_pretrained` for what it read from a GGUF."""
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    weights = {
        name: value.detach().to(torch.float16).contiguous()
        for name, value in model.state_dict().items()
        if name not in tied
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    dropped = {"quantization_config", "_name_or_path", "_model_name_or_path"}
    config = {key: value for key, value in model.config.to_dict().items() if key not in dropped}
    config |= {"dtype": "float16", "architectures": ["LlamaForCausalLM"]}
    (out / "config.json").write_text(json.dumps(config, indent=2, default=str), encoding="utf-8")
    model.generation_config.save_pretrained(out)


def _codes(
    gguf: Path, weights: dict[str, torch.Tensor], heads: int, kv_heads: int
) -> dict[str, torch.Tensor]:
    """The integer codes of every Q4_1 and Q8_0 tensor as `<name>.codes` uint8/int8 [out, in], `.scale` and
    `.offset` float16 [out, in/32]."""
    from gguf import GGUFReader

    found: dict[str, torch.Tensor] = {}
    for tensor in GGUFReader(gguf).tensors:
        name = _checkpoint_name(tensor.name)
        unpack = {"Q4_1": _unpack_q4_1, "Q8_0": _unpack_q8_0}.get(tensor.tensor_type.name)
        if name is None or unpack is None:
            continue
        rows, columns = int(tensor.shape[1]), int(tensor.shape[0])
        codes, scale, offset = (
            _rows_as_in_checkpoint(part, name, heads, kv_heads) for part in unpack(tensor.data, rows, columns)
        )
        d, m = scale.astype(np.float32)[..., None], offset.astype(np.float32)[..., None]
        rebuilt = codes.reshape(rows, -1, GROUP).astype(np.float32) * d + m
        if not np.allclose(rebuilt.reshape(rows, columns), weights[name].detach().numpy(), atol=1e-6):
            log.warning("codes of %s do not rebuild its weights; the float weights are used", name)
            continue
        stem = name.removesuffix(".weight")
        for field, values in (("codes", codes), ("scale", scale), ("offset", offset)):
            found[f"{stem}.{field}"] = torch.from_numpy(values)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def _checkpoint_name(gguf_name: str) -> str | None:
    if gguf_name == "token_embd.weight":
        return "model.embed_tokens.weight"
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _NAMES and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.weight"
    return None


def _unpack_q4_1(data: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # fp16 d, fp16 m, 16 bytes of two codes
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(rows, columns // GROUP, 20)
    halves = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    packed = blocks[..., 4:]
    codes = np.concatenate([packed & 0x0F, packed >> 4], axis=-1).reshape(rows, columns)
    return codes, halves[..., 0].copy(), halves[..., 1].copy()


def _unpack_q8_0(data: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # fp16 d, 32 signed bytes
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(rows, columns // GROUP, 34)
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].copy()
    codes = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(rows, columns)
    return codes, scale, np.zeros_like(scale)


def _rows_as_in_checkpoint(part: np.ndarray, name: str, heads: int, kv_heads: int) -> np.ndarray:
    """GGUF interleaves the two rotary halves of each q and k head; checkpoints keep them apart."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return part
    n = heads if "q_proj" in name else kv_heads
    return np.ascontiguousarray(
        part.reshape(n, part.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(part.shape)
    )
