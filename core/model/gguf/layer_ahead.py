"""The layer of a GGUF that predicts one token further: what its tensors are called, where it is."""

from __future__ import annotations

from core.model.gguf.reader import GgufFile

# beside what attention and MLP have: the GGUF's names by those of checkpoints
NAMES = {
    "mtp.fc": "nextn.eh_proj",
    "mtp.norm": "nextn.shared_head_norm",
    "mtp.pre_fc_norm_embedding": "nextn.enorm",
    "mtp.pre_fc_norm_hidden": "nextn.hnorm",
}


def block_ahead(file: GgufFile) -> int:
    """Its block; -1 without one."""
    joins = f".{NAMES['mtp.fc']}.weight"
    return next((int(name.split(".")[1]) for name in file.tensors if name.endswith(joins)), -1)


def is_layer_alone(file: GgufFile) -> bool:
    """Whether the file holds it without the model's own layers, as llama.cpp's converter writes it to a file
    of its own (https://github.com/ggml-org/llama.cpp/pull/22673).
    """
    block = block_ahead(file)
    blocks = (name for name in file.tensors if name.startswith("blk."))
    return block >= 0 and all(name.startswith(f"blk.{block}.") for name in blocks)
