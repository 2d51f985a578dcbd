"""What layers that keep a state measure. No torch."""

from __future__ import annotations

from dataclasses import dataclass

DELTA_CHUNK = 64  # tokens of a gated delta rule that are computed together in a prefill


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """What a layer with a gated delta rule measures. `kernel`: rows that its convolution sees."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def values(self) -> int:
        """Numbers of the values of one token."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Numbers of one token that pass through the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.values

    @property
    def width(self) -> int:
        """Numbers that a token leaves until it is final: the channels, and two for each value head."""
        return self.channels + 2 * self.value_heads

    @property
    def size(self) -> tuple[int, ...]:
        """Of one state."""
        return self.value_heads, self.key_dim, self.value_dim

    def parameters(self, hidden: int) -> int:
        """Weights of such a layer: what makes its rows, the gate, the output."""
        return hidden * (self.width + 2 * self.values)

    @property
    def flops(self) -> int:
        """Of one token, chunked: products within a chunk, and with the state."""
        inside = DELTA_CHUNK * (5 * self.key_dim + 3 * self.value_dim)
        return self.value_heads * (inside + 8 * self.key_dim * self.value_dim)


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """What a layer with a short convolution measures. `kernel`: rows that it sees, which are all it keeps."""

    channels: int
    kernel: int

    @property
    def width(self) -> int:
        """Numbers that a token leaves."""
        return self.channels

    @property
    def values(self) -> int:
        """Numbers that the output takes."""
        return self.channels

    @property
    def size(self) -> tuple[int, ...]:
        """Of one state."""
        return (0,)

    def parameters(self, hidden: int) -> int:
        """Weights of such a layer: three projections and the output."""
        return 4 * hidden * self.channels

    @property
    def flops(self) -> int:
        """Of one token."""
        return 2 * (self.kernel + 1) * self.channels


StateSizes = DeltaSizes | ConvolutionSizes
