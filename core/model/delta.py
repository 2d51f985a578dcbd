"""A gated delta rule, token by token and 64 at once: a state of each head that decays, and is corrected by
what it lacks of a token's value under its key. Knows no cache.

Sources: https://arxiv.org/abs/2412.06464 (gated delta networks); transformers,
models/qwen3_5/modeling_qwen3_5.py. Value heads stand tiled, as a GGUF has them: value head j is served by key
head j mod the number of key heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from core.backend.base import Backend, ServedDelta
from core.model.mixer_sizes import DELTA_CHUNK as STEP_ROWS
from core.model.mixer_sizes import DeltaSizes
from core.model.short_convolution import convolved

_AT_ONCE = 4  # such steps whose inner part is computed together
_EPS = 1e-6  # below the norm of a query or key


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """See Recurrence. A row holds what the projections make of a token: queries, keys and values before the
    convolution, then for each value head how much is corrected and how much is kept, before their functions.
    """

    sizes: DeltaSizes
    convolution: torch.Tensor  # fp32 [kernel, channels]
    decay: torch.Tensor  # fp32 [value_heads], negative
    step_bias: torch.Tensor  # likewise
    norm: torch.Tensor  # of what each head finds [value_dim]
    compiled: ServedDelta | None = None  # rows by a kernel of the backend's

    def served_by(self, backend: Backend) -> GatedDelta:
        """With the kernel that it has for this layer, if any."""
        return replace(self, compiled=backend.delta_rows(self, self.one_by_one, self.steps))

    @staticmethod
    def rows(projected: torch.Tensor) -> torch.Tensor:
        """[n, width] of what the projections give, as it is."""
        return projected

    @staticmethod
    def opened(gate: torch.Tensor) -> torch.Tensor:
        """What the gate's numbers [n, values] multiply by, likewise."""
        return F.silu(gate)

    @property
    def step_rows(self) -> int:
        """See Recurrence."""
        return STEP_ROWS

    def one_by_one(self, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See Recurrence."""
        if self.compiled is not None:
            return self.compiled.rows(source, target, rows)
        if source.data_ptr() != target.data_ptr():
            target.copy_(source)
        seen = self.sizes.kernel
        tokens = range(rows.shape[0] - seen + 1)
        return torch.stack([self._step(target, rows[at : at + seen]) for at in tokens])

    def _step(self, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """One token, by torch: `rows` [kernel, width] ends with its own. Returns [heads, value_dim]."""
        q, k, v, kept, corrected = (part[0] for part in self._parts(rows))
        state.mul_(kept.exp()[:, None, None])
        lacking = (v - torch.bmm(k[:, None], state)[:, 0]) * corrected[:, None]  # [heads, value_dim]
        state.baddbmm_(k[:, :, None], lacking[:, None])
        return torch.bmm(q[:, None], state)[:, 0]

    def _parts(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys [n, value_heads, key_dim], values [n, value_heads, value_dim], the logarithm of what
        is kept and the share that is corrected [n, value_heads], fp32, of rows [kernel - 1 + n, width].
        """
        sizes, n, rows = self.sizes, rows.shape[0] - self.sizes.kernel + 1, rows.float()
        keys = sizes.key_heads * sizes.key_dim
        q, k, v = F.silu(convolved(rows[:, : sizes.channels], self.convolution, n)).split(
            (keys, keys, sizes.values), dim=-1
        )
        q, k = (_unit(part.view(n, sizes.key_heads, sizes.key_dim)) for part in (q, k))
        q, k = (part.repeat(1, sizes.value_heads // sizes.key_heads, 1) for part in (q, k))
        corrected, kept = rows[sizes.kernel - 1 :, sizes.channels :].chunk(2, dim=-1)
        kept = self.decay * F.softplus(kept + self.step_bias)
        v = v.reshape(n, sizes.value_heads, sizes.value_dim)
        return q * sizes.key_dim**-0.5, k, v, kept, corrected.sigmoid()

    def steps(self, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See Recurrence: [tokens, value_heads, value_dim]."""
        if self.compiled is not None and self.compiled.steps is not None:
            return self.compiled.steps(state, rows)
        tail, found = self.sizes.kernel - 1, []
        for start in range(0, rows.shape[0] - tail, STEP_ROWS * _AT_ONCE):
            found += self._few_steps(state, rows[start : start + STEP_ROWS * _AT_ONCE + tail])
        return torch.cat(found)

    def _few_steps(self, state: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        """[64, heads, value_dim] of each step. Within one, what every token corrects follows from all before
        it by one triangular system; what the state had before the step comes on top.
        """
        steps = (rows.shape[0] - self.sizes.kernel + 1) // STEP_ROWS
        parts = (part.unflatten(0, (steps, STEP_ROWS)).transpose(1, 2) for part in self._parts(rows))
        q, k, v, kept, corrected = parts  # [steps, heads, 64, ...]
        sum_kept = kept.cumsum(-1)  # from the step's beginning
        between = sum_kept[..., :, None] - sum_kept[..., None, :]  # [steps, heads, 64, 64]
        later = torch.ones(STEP_ROWS, STEP_ROWS, dtype=torch.bool, device=rows.device).triu(1)
        between = between.masked_fill(later, -torch.inf).exp()
        k_corrected, v = k * corrected[..., None], v * corrected[..., None]
        system = (k_corrected @ k.mT) * between
        wanted = torch.cat((v, k_corrected * sum_kept.exp()[..., None]), dim=-1)
        solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        new, old_keys = solved.split((self.sizes.value_dim, self.sizes.key_dim), dim=-1)
        inside = (q @ k.mT) * between
        q = q * sum_kept.exp()[..., None]
        k = k * (sum_kept[..., -1:] - sum_kept).exp()[..., None]
        found = []
        for at in range(steps):
            lacking = new[at] - old_keys[at] @ state
            found.append((q[at] @ state + inside[at] @ lacking).transpose(0, 1))
            state.mul_(sum_kept[at, :, -1].exp()[:, None, None]).baddbmm_(k[at].mT, lacking)
        return found


def _unit(x: torch.Tensor) -> torch.Tensor:
    """Of length 1 over the last dimension."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPS)
