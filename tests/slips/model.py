"""Slips in core/model: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_RANKS = ("tests/ranks/test_logits.py", "tests/ranks/test_exchange.py")
_SEVERAL_CARDS = ("tests/planning/test_several_cards.py",)
_FAR = ("tests/test_far_needles.py",)
_CATALOGUE = ("tests/model/test_catalogue.py",)
_FAMILIES = ("tests/model/test_llama.py", "tests/model/test_families.py")
_AHEAD = ("tests/decoding/test_ahead.py", "tests/model/test_ahead.py")
_DRAFTER = ("tests/planning/test_drafter.py",)
_UNSAID = ("tests/model/test_families.py", "tests/decoding/test_family_laws.py")
_RECORDED = "core/model/recorded_verification.py"
_SHARED = ("tests/model/test_shared_layers.py", "tests/model/test_llama.py")
_REPLAYS = ("tests/model/test_recorded_verification.py",)

_ASSISTANT = ("tests/model/test_assistant.py", "tests/decoding/test_assistant.py")

SLIPS = (
    Slip(
        "core/model/borrowed_rows.py",
        "offset=offset - 1",
        "offset=offset",
        ("tests/model/test_assistant.py",),
    ),
    Slip("core/model/assistant.py", "target.kinds[: target.storing]", "target.kinds", _ASSISTANT),
    Slip(
        "core/model/assistant.py",
        "self._target.embed([token]), row",
        "row, self._target.embed([token])",
        _ASSISTANT,
    ),
    Slip(
        "core/model/ahead.py",
        "parts = (self.model.embed(ids), rows)",
        "parts = (rows, self.model.embed(ids))",
        _AHEAD,
    ),
    Slip(
        "core/model/gguf/layer_ahead.py",
        '"mtp.pre_fc_norm_hidden": "nextn.hnorm"',
        '"mtp.pre_fc_norm_hidden": "nextn.enorm"',
        _AHEAD,
    ),
    Slip(
        "core/model/store/catalogue.py",
        "if shape.ahead and JOINS_AHEAD not in tensor_names(folder):",
        "if False:",
        _AHEAD,
    ),
    Slip("core/model/shapes.py", "own + 2 * self.hidden * self.hidden + 2 * self.hidden", "own", _AHEAD),
    Slip(
        "core/model/shapes.py",
        "return self.weight_bytes(dtype) + head",
        "return self.weight_bytes(dtype)",
        _DRAFTER,
    ),
    Slip(
        "core/model/rope.py",
        "torch.cat((-s.to(dtype), s",
        "torch.cat((s.to(dtype), -s",
        ("tests/model/test_llama.py",),
    ),
    Slip("core/model/llama.py", "if layer.kind.rotated:", "if True:", _FAMILIES),
    Slip("core/model/llama.py", "if layer.kind.scaled:", "if False:", _FAMILIES),
    Slip(
        "core/model/rope.py",
        "1 + beta * torch.log(1 + periods",
        "1 + beta * torch.log(2 + periods",
        _FAMILIES,
    ),
    Slip("core/model/short_convolution.py", "rows[tap : tap + n]", "rows[tap - 1 : tap - 1 + n]", _FAMILIES),
    Slip(
        "core/model/short_convolution.py", "        return gate\n", "        return gate.abs()\n", _FAMILIES
    ),
    Slip("core/model/gguf/config.py", " and name.startswith(behind) == ahead", "", _FAMILIES),
    Slip("core/model/loader.py", "torch.cat((first, last))", "torch.cat((first, gate))", _FAMILIES),
    Slip("core/model/families.py", "int(2 * width / 3)", "width", _FAMILIES),
    Slip(
        "core/model/gguf/architectures.py",
        "FULL if one else CONVOLUTION",
        "CONVOLUTION if one else FULL",
        _FAMILIES,
    ),
    Slip("core/model/delta.py", "part.repeat(1, ", "part.repeat_interleave(dim=1, repeats=", _FAMILIES),
    Slip("core/model/families.py", "        state_sizes(config)\n", "", ("tests/model/test_families.py",)),
    Slip("core/model/value_heads.py", "shared).T.reshape", "shared).reshape", _FAMILIES),
    Slip("core/model/families.py", ' and "linear_attn" not in name', "", ("tests/model/test_quantising.py",)),
    Slip("core/model/gguf/size_estimates.py", "else _NARROWER.get(kind, kind)", "else kind", _CATALOGUE),
    Slip("core/model/loader.py", "found = found.float() + 1", "found = found.float()", _FAMILIES),
    Slip("core/model/loader.py", "times=config.query_scale(kind)", "times=1.0", _FAMILIES),
    Slip("core/model/llama.py", "if bound:", "if False:", _FAMILIES),
    Slip("core/model/llama.py", "if layer.scale != 1:", "if False:", _FAMILIES),
    Slip("core/model/llama.py", "self.rms(kv[-1], layer.v_norm)", "kv[-1]", _FAMILIES),
    Slip("core/model/llama.py", "v = kv[-1] if", "v = self.rms(kv[0], layer.k_norm) if", _FAMILIES),
    Slip("core/model/llama.py", "if config.suppressed else None", "if False else None", _UNSAID),
    Slip("core/model/families.py", "keys_as_values=alike", "keys_as_values=False", _FAMILIES),
    Slip("core/model/rope.py", "found[int(share * head_dim // 2) :] = 0.0", "pass", _FAMILIES),
    Slip("core/model/rope.py", "found * (factors < _UNTURNED)", "found * factors", _FAMILIES),
    Slip("core/model/gguf/size_estimates.py", "_is_finer(layer, with_values)", "False", _CATALOGUE),
    Slip("core/model/families.py", "LayerKind(rope=FULL)", "LayerKind(rope=SLIDING)", _FAMILIES),
    Slip("core/model/families.py", "rotated=bool(flag)", "rotated=True", _FAMILIES),
    Slip(
        "core/model/gguf/dequantize.py",
        "(rest & 15) | ((d >> 2) & 48)",
        "(rest & 15) | ((d >> 2) & 16)",
        ("tests/model/test_gguf_blocks.py",),
    ),
    Slip("core/model/gguf/dequantize.py", "middle=16", "middle=15", ("tests/model/test_gguf_blocks.py",)),
    Slip("core/model/split_weights.py", "return not twice and name", "return name", _RANKS),
    Slip(
        "core/model/split_weights.py",
        "slice(None), self._share.of_heads(columns)",
        "slice(None), Share(0, self._share.size).of_heads(columns)",
        _RANKS,
    ),
    Slip("core/model/llama.py", "self.ranks.agree()\n            yield", "yield", _RANKS),
    Slip(
        "core/model/rope.py", "range(0, positions, _PIECE)", "range(0, min(positions, _PIECE), _PIECE)", _FAR
    ),
    Slip("core/model/shapes.py", "self.kv_heads // ranks", "self.kv_heads", _SEVERAL_CARDS),
    Slip("core/model/llama.py", "cache.attend_again(layer.kind.reads, q", "cache.attend_again(1, q", _SHARED),
    Slip(
        "core/model/families.py",
        "for layer, kind in enumerate(kinds[:storing])}",
        "for layer, kind in reversed(list(enumerate(kinds[:storing])))}",
        _SHARED,
    ),
    Slip("core/model/layer_inputs.py", ", alpha=width**0.5", "", _SHARED),
    Slip("core/model/layer_inputs.py", ".mul_(2**-0.5)", "", _SHARED),
    Slip("core/model/layer_inputs.py", " * x.shape[1] ** -0.5", "", ("tests/model/test_shared_layers.py",)),
    Slip("core/model/llama.py", "inputs[:, layer]", "inputs[:, layer - 1]", _SHARED),
    Slip("core/model/config.py", "kinds = self.kinds[: self.storing]", "kinds = self.kinds", _SHARED),
    Slip(
        "core/model/llama.py",
        "enumerate(self._layers[: self.config.storing])",
        "enumerate(self._layers)",
        _SHARED,
    ),
    Slip(_RECORDED, "self._rows.place(*cache.place())\n", "pass\n", _REPLAYS),
    Slip(_RECORDED, " or cache.observer is not None", "", _REPLAYS),
    Slip(_RECORDED, "if torch.equal(replayed, logits):", "if replayed is not None:", _REPLAYS),
    Slip(_RECORDED, "cache.witness(layer, q, cache.length)", "pass", _REPLAYS),
    Slip(_RECORDED, "met.times < OFTEN or ", "", _REPLAYS),
    Slip(_RECORDED, "cache.length + 1 + n <= cache.capacity", "True", _REPLAYS),
)
