"""Which models are not divided among several devices. No torch."""

from __future__ import annotations

from core.text.words import translated as _


def why_undivided(name: str, kv_heads: int, ranks: int, *, stateful: bool, shared: bool) -> str:
    """Why a model cannot be divided among so many cards; "" where it can. `shared`: layers read what others
    hold, or take in what tokens bring to them.
    """
    if shared:
        said = _(
            "{model} has layers that share keys and values, which are not divided among graphics cards. Name "
            "one card in devices, or choose another model."
        )
        return said.format(model=name)
    if stateful:
        said = _(
            "{model} has layers that keep a state instead of keys and values, which are not divided among "
            "graphics cards. Name one card in devices, or choose another model."
        )
        return said.format(model=name)
    if kv_heads % ranks:
        said = _(
            "{model} has {heads} key/value heads, which do not divide by {cards} graphics cards. Name as "
            "many cards in devices as {heads} divides by, or choose another model."
        )
        return said.format(model=name, heads=kv_heads, cards=ranks)
    return ""
