"""The small model that comes along with Gemma 4 and drafts for it: how its configuration is read, and what it
measures. No torch.

It has no keys and values of its own, but attends to those of the model's last layers (transformers,
models/gemma4_assistant).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from core.errors import UserError
from core.model.families import text_config
from core.model.shapes import DTYPE_BYTES, ModelShape
from core.text.words import translated as _

_TYPES = ("gemma4_assistant", "gemma4_unified_assistant")


def is_assistant(config: Mapping[str, Any]) -> bool:
    """Whether a transformers configuration is that of such a model."""
    return config.get("model_type") in _TYPES


def layers_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What its configuration says of its layers, as if they had keys and values; its logits are unbounded."""
    none = {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "final_logit_softcapping": None}
    return {"rms_norm_eps": 1e-6, **text_config(config), **none}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantShape(ModelShape):
    """Such a model as the planner sees it. `backbone`: numbers of a row of the model that it drafts for.
    `groups`: of so many groups of tokens it looks at the `named` nearest; 0: at all tokens.
    """

    backbone: int
    groups: int = 0
    named: int = 0

    @property
    def layers_parameters(self) -> int:
        """See ModelShape. With what takes the model's rows in and makes them."""
        own = ModelShape.layers_parameters.fget(self)
        return own + 3 * self.hidden * self.backbone + self.groups * self.hidden

    def pass_bytes(self, dtype: str) -> int:
        """See ModelShape."""
        tokens = self.vocab * self.named // self.groups if self.groups else self.vocab
        return (self.layers_parameters + tokens * self.hidden) * DTYPE_BYTES[dtype]

    def suits(self, target: ModelShape) -> bool:
        """Whether it drafts for this model, by their sizes."""
        windows = ("window", "window_heads", "window_dim")
        own = [self.backbone, *(getattr(self, name) for name in ("kv_heads", "head_dim", "vocab", *windows))]
        names = ("hidden", "kv_heads", "head_dim", "vocab", *windows)
        return own == [getattr(target, name) for name in names]


def assistant_shape(config: Mapping[str, Any], *, name: str) -> AssistantShape:
    """The shape in its config.json. Raises UserError for one that cannot run here."""
    base = ModelShape.from_hf_config(layers_config(config), name=name)
    given = {one.name: getattr(base, one.name) for one in fields(base)}
    # all of its layers read what another model's hold
    given |= {"readers": base.layers, "windowed_readers": base.windowed, "windowed": 0}
    try:
        groups = int(config["num_centroids"]) if config.get("use_ordered_embeddings") else 0
        named = int(config["centroid_intermediate_top_k"]) if groups else 0
        return AssistantShape(
            **given, backbone=int(config["backbone_hidden_size"]), groups=groups, named=named
        )
    except (KeyError, TypeError, ValueError) as error:
        said = _("config.json of {model} is incomplete ({error}). Download it again.")
        raise UserError(said.format(model=name, error=error)) from error
