"""The device of a plan, and the models loaded onto it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from core import paths
from core.assembly.cache_factory import kv_type, slack
from core.assembly.composition import DraftModel
from core.backend.base import Backend
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.delta import native_delta
from core.backend.cpu.native.layers import native_layers
from core.backend.cpu.native.products import coarse_products, native_products
from core.backend.cuda.backend import CudaBackend
from core.backend.ranks import SINGLE, Ranks
from core.backend.shared.compiled import ATTENTION, COARSE, DELTA, PRODUCTS
from core.config import Settings
from core.errors import UserError
from core.events import Progress
from core.hardware.cpu import cpu_flags
from core.hardware.facts import GIB
from core.hardware.measured import DeviceTrials, Measurements
from core.model.assistant import load_assistant
from core.model.llama import LlamaModel
from core.model.loader import load_ahead, load_draft, load_model
from core.planning.budget import CUDA_CONTEXT_BYTES
from core.planning.layout import OVERRUN
from core.planning.plan import ASSISTANT, MTP, Plan
from core.text.words import translated as _


def new_backend(plan: Plan, settings: Settings, *, rank: int = 0) -> Backend:
    """The device that the plan is for; of several the one of this rank. Raises UserError when it is not
    there, or cannot compute in the plan's dtype.
    """
    ranks = max(1, len(plan.devices))
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if plan.device == "cuda":
        cap = None if settings.vram_gib is None else int(settings.vram_gib * GIB) - CUDA_CONTEXT_BYTES
        return CudaBackend(
            dtypes[plan.dtype],
            index=plan.devices[rank] if plan.devices else plan.gpu_index,
            memory_cap_bytes=cap,
            keep_free_bytes=plan.keep_free_bytes,
            page_lock_bytes=plan.page_lock_bytes and plan.page_lock_bytes // ranks,
            trials=kernel_trials,
            own_kernels=settings.kernels == "auto",
            cpu=partial(cpu_beside_card, max(1, plan.threads // ranks)),
        )
    if plan.dtype == "float16":
        raise UserError(
            _("The CPU computes in float32 or bfloat16, not in float16. Set dtype to auto in the settings.")
        )
    threads = max(1, plan.threads // ranks)
    return cpu_backend(dtypes[plan.computes], storage=dtypes[plan.dtype], threads=threads)


def kernel_trials(device: str) -> DeviceTrials:
    """What is known of kernels that broke the program there."""
    return DeviceTrials(Measurements(paths.data_dir()), device)


def cpu_backend(
    dtype: torch.dtype, *, storage: torch.dtype | None = None, threads: int | None = None
) -> CpuBackend:
    """This CPU with the compiled kernels that it has. See CpuBackend."""
    flags = cpu_flags()
    native, products = native_attention(flags), native_products(flags)
    coarse = coarse_products(flags) if products is not None else None
    delta = native_delta(flags)
    found = {ATTENTION: native, PRODUCTS: products, COARSE: coarse, DELTA: delta}
    return CpuBackend(
        dtype,
        storage=storage,
        threads=threads,
        native=native,
        products=products,
        coarse=coarse,
        layers=native_layers(flags, native, products),
        delta=delta,
        refused=[name for name, kernel in found.items() if kernel is None],
    )


def cpu_beside_card(threads: int) -> CpuBackend:
    """This CPU beside a card: for attention to what lies in host memory."""
    return CpuBackend(threads=threads, native=native_attention(cpu_flags()))


def load_models(
    plan: Plan,
    backend: Backend,
    model_dir: Path,
    draft_dir: Path | None,
    progress: Progress | None,
    ranks: Ranks = SINGLE,
) -> tuple[LlamaModel, DraftModel | None]:
    """Target, of several ranks the share of this one, and draft, which is whole on each: a model, or a layer
    of the target's own. Raises UserError when the device does not hold them or a checkpoint does not suit.
    """
    try:
        return _loaded(plan, backend, model_dir, draft_dir, progress, ranks)
    except RuntimeError as error:
        if not backend.out_of_memory(error):
            raise
        raise UserError(
            _(
                "The weights of {model} do not fit into what is free of the GPU's memory. "
                "Close other programs that use the GPU, or choose a smaller model."
            ).format(model=plan.model)
        ) from error


def _loaded(
    plan: Plan,
    backend: Backend,
    model_dir: Path,
    draft_dir: Path | None,
    progress: Progress | None,
    ranks: Ranks,
) -> tuple[LlamaModel, DraftModel | None]:
    model = load_model(
        model_dir,
        backend,
        positions=plan.context_tokens + OVERRUN,
        stretch=plan.context_stretch,
        in_codes=plan.weights_kernel == "codes",
        progress=progress,
        ranks=ranks,
    )
    slots = plan.draft_sinks + plan.draft_window + slack(plan)
    draft: DraftModel | None = None
    if plan.drafter == ASSISTANT:
        draft = load_assistant(draft_dir, backend, target=model)
    elif plan.drafter == MTP:
        in_codes = plan.weights_kernel == "codes"
        draft = load_ahead(draft_dir or model_dir, backend, target=model, positions=slots, in_codes=in_codes)
    elif draft_dir:
        draft = load_draft(
            draft_dir,
            backend,
            target=model,
            target_dir=model_dir,
            positions=slots,
            in_codes=plan.device == "cpu",
        )
    prepare_attention(plan, backend, model, draft)
    return model, draft


def prepare_attention(plan: Plan, backend: Backend, model: LlamaModel, draft: DraftModel | None) -> None:
    """Has kernels chosen for what both will attend to, while there is memory to try them in: before caches
    are made.
    """
    for config in [one.config for one in (model, draft) if one is not None]:
        for sizes in {config.heads_of(kind) for kind in config.kinds}:
            backend.prepare(config.heads, *sizes)
    if plan.kv_bits == 8:  # besides numbers, which its retrieval cache holds
        backend.prepare(model.config.heads, model.config.kv_heads, model.config.head_dim, rows=kv_type(plan))
