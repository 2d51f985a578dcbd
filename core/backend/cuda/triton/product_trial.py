"""Whether the compiled products with codes serve on this card: they must give the codes' own numbers there,
and be faster than torch's way, which decodes and multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from core.backend.cpu.quantized_linear import Dequantizer, QuantizedLinear
from core.backend.cuda.triton.products import CardProducts, QuantizedProducts
from core.backend.cuda.triton.sizes import DTYPES
from core.backend.cuda.triton.trial import LOADING, Seconds
from core.backend.shared.quantized import QuantizedMatrix
from core.backend.shared.quantized_example import KINDS, example
from core.text.words import translated as _

_ROWS, _COLUMNS = 130, 1280  # of a matrix on trial: tiles that are not full, two splits
_INPUTS = (1, 17, 40)
_TIMED = (4096, 4096)  # rows and columns of a matrix whose product is timed,
_TIMED_INPUTS = (1, 9)  # with so many inputs
_OFF = 1e-5  # of fp32 sums, beside the rounding of a result; of the sum of all magnitudes


@dataclass(frozen=True, slots=True)
class TriedProduct:
    """The kernel, None where torch decodes, and what the person should know of that."""

    kernel: QuantizedProducts | None
    note: str


def try_product(
    make: Callable[[], QuantizedProducts],
    bits: int,
    *,
    off: str = "",
    device: torch.device,
    dtype: torch.dtype,
    seconds: Seconds,
) -> TriedProduct:
    """Makes the kernel for codes of so many bits and tries it. Whatever goes wrong, torch decodes; `off`,
    where given, is why it does without a trial.
    """
    if off:
        return _torch(bits, off)
    if dtype not in DTYPES:
        none = _("there is no compiled one for {dtype}")
        return _torch(bits, none.format(dtype=str(dtype).removeprefix("torch.")))
    try:
        kernel = make()
        products, dice = CardProducts({bits: kernel}), torch.Generator().manual_seed(0)
        for kind in (one for one in KINDS if one[0] == bits):
            planes = example(kind, dice, rows=_ROWS, columns=_COLUMNS).to(device)
            if not _right(products, planes, dtype, dice):
                return _torch(bits, _("the compiled one computes wrongly on this card"))
        ours, theirs = _times(products, bits, device, dtype, seconds)
    except LOADING as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return _torch(bits, _("the compiled one cannot be used ({reason})").format(reason=said))
    times = _("{ours:.2f} ms, torch's {theirs:.2f} ms").format(ours=1e3 * ours, theirs=1e3 * theirs)
    if ours >= theirs:
        return _torch(bits, _("the compiled one is not faster here ({times})").format(times=times))
    said = _("Weights in codes of {bits} bits: multiplied by the compiled kernel ({times}).")
    return TriedProduct(kernel, said.format(bits=bits, times=times))


def _torch(bits: int, reason: str) -> TriedProduct:
    said = _(
        "Weights in codes of {bits} bits: torch decodes them for every product, which is slow; {reason}."
    )
    return TriedProduct(None, said.format(bits=bits, reason=reason))


def _right(
    products: CardProducts, planes: QuantizedMatrix, dtype: torch.dtype, dice: torch.Generator
) -> bool:
    """Decoded rows to the bit, products within what their sums may be off; NaN is wrong."""
    weights = planes.decoded().to(dtype)
    ids = torch.tensor([_ROWS - 1, 0, 77], device=weights.device)
    if not torch.equal(products.decode(planes, torch.empty_like(weights)), weights):
        return False
    if not torch.equal(products.rows(planes, ids, torch.empty_like(weights[:3])), weights[ids]):
        return False
    exact = weights.double().t()
    for n in _INPUTS:
        x = torch.randn(n, _COLUMNS, generator=dice).to(weights.device, dtype)
        want, size = x.double() @ exact, x.double().abs() @ exact.abs()
        off = (products.multiply(x, [planes]).double() - want).abs()
        if not bool((off <= torch.finfo(dtype).eps * want.abs() + _OFF * size).all()):
            return False
    return True


def _times(
    products: CardProducts, bits: int, device: torch.device, dtype: torch.dtype, seconds: Seconds
) -> tuple[float, float]:
    """Seconds of both over the same matrix, for a pass of one row and one of a verification's."""
    kind = next(one for one in KINDS if one[0] == bits)
    rows, columns = _TIMED
    planes = example(kind, torch.Generator().manual_seed(0), rows=rows, columns=columns).to(device)
    by_torch = QuantizedLinear([planes], None, Dequantizer(dtype, device))
    ours = theirs = 0.0
    for n in _TIMED_INPUTS:
        x = torch.ones(n, columns, dtype=dtype, device=device)
        ours += seconds(lambda x=x: products.multiply(x, [planes]))
        theirs += seconds(lambda x=x: by_torch(x))
    return ours, theirs
