"""The plan: what runs where on this machine, in numbers and in words. Values only; knows nothing of how they
are chosen.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from core.model.shapes import CODED_ROWS
from core.model.store.catalogue import title_of
from core.text.words import marked as N_
from core.text.words import translated as _

PLACES = (N_("VRAM"), N_("pinned RAM"), N_("RAM"), N_("disk"))
# tokens, a long novel; more is planned only when asked for: it takes memory from the whole machine
AUTO_CONTEXT = 131_072
ASSISTANT = "assistant"  # drafts come from a small model that attends to the model's keys and values
MTP = "mtp"  # drafts come from a layer of the model's own that predicts one token further
USEFUL_CONTEXT = 8192  # below this a model reads a book in too many pieces to be worth its size


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """So many bytes of one purpose in one place. Both names are keys, translated where they are shown."""

    name: str
    bytes: int
    place: str

    def __post_init__(self) -> None:
        assert self.place in PLACES, f"{self.name}: unknown place {self.place!r}"
        assert self.bytes >= 0, f"{self.name}: {self.bytes} bytes"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the engine needs to know of the machine. Bytes and tokens are exact, times are expected."""

    model: str
    device: str  # "cpu" | "cuda"
    dtype: str  # "float32" | "bfloat16" | "float16", of weights and KV cache as they are held
    computes: str  # of what is computed: another where the CPU multiplies float32 faster than 16 bits
    context_tokens: int
    # 1.0: native context; above: positions are stretched by this factor (YaRN)
    context_stretch: float
    layers: int
    on_chip_layers: int  # the first N layers keep their KV cache on the device
    retrieval_budget: int  # tokens the middle level sees
    retrieval_chunk: int
    tail_tokens: int  # room in the retrieval cache for tokens since the last refresh
    draft_model: str | None  # None: n-gram lookup drafts, or see `drafter`
    draft_sinks: int
    draft_window: int
    gamma: int  # outer: tokens proposed to the full cache per round
    middle_gamma: int  # tokens proposed to the retrieval cache at a time
    prefill_segment_tokens: int
    prefill_chunk_tokens: int
    staging_blocks: int  # 0: nothing is offloaded
    staging_block_bytes: int
    staging_block_tokens: int
    threads: int
    # "float" | "codes": the weights stay in the codes of a GGUF
    weights_kernel: str
    # of the weights as they are held: 16, or the bits of most codes of a GGUF, and its format
    weights_bits: int
    weights_format: str
    kv_bits: int  # of the rows of the KV cache; 8: codes
    expected_tbt_ms: float  # in the settings' mode of three levels, at the full context
    expected_plain_tbt_ms: float  # plain decoding, at the full context
    expected_middle_ms: float  # one middle pass over the retrieval cache
    # what each further row adds to a verification at the full context
    expected_row_ms: float
    expected_prefill_s: float  # a prompt of the full context
    assumed_acceptance: float
    pcie_gb_per_s: float | None  # None: nothing crosses a bus
    budget: tuple[BudgetLine, ...]
    notes: tuple[str, ...]
    # "blocks": instead of the first layers, as much of every layer stays on the device
    residency: str = "layers"
    gpu_index: int = 0  # by position on the bus
    expected_draft_ms: float = 0.0  # one pass of the draft model
    # a passage of costs.PASSAGE_TOKENS is read, a token is written behind it, costs.BOOK_TOKENS are read, in
    # parts where the context is shorter
    expected_passage_s: float = 0.0
    expected_passage_tbt_ms: float = 0.0
    expected_book_s: float = 0.0
    # "on" | "auto": short passes are recorded and replayed, everywhere or where it is faster
    cuda_graphs: str = "off"
    # set by the user: exactly so many are proposed, also where fewer are expected to be faster
    fixed_gamma: bool = False
    beside_tokens: int = 0  # of a passage's context, which has room on a card beside a book's
    swept_prefill: bool = False  # the past of a segment streams too (core.cache.segment)
    page_lock_bytes: int | None = None  # what may be page-locked in all; None: as the system allows
    # the system moves the device's memory into its own instead of refusing: so much is to stay free
    keep_free_bytes: int | None = None
    # when this machine was tuned for it: lengths, times and acceptance are measured
    tuned: str = ""
    # the weights are made of a checkpoint of 16 bits, on the first start with it
    rounded: bool = False
    # cards that compute together, by position on the bus, each a share of every layer; (): `gpu_index` alone.
    # Bytes of cards are those of one of them.
    devices: tuple[int, ...] = ()
    # plain decoding was measured to be faster than drafts, so the mode triforce makes none
    plain: bool = False
    # drafts go straight before the full cache: a middle level is expected to be slower
    straight: bool = False
    # plain decoding whose attention to what lies in host memory is the CPU's; None: nothing lies there
    expected_cpu_attention_ms: float | None = None
    # of what lies in host memory: so much the CPU attends to while the bus brings the rest, in verifications
    # and in plain decoding; 0.0: nothing
    cpu_share: float = 0.0
    cpu_share_plain: float = 0.0
    # a verification of one row, where plain decoding has another share
    expected_verify_ms: float | None = None
    expected_unshared_tbt_ms: float | None = None  # both without any share; None: there is none
    expected_unshared_plain_ms: float | None = None
    # who drafts where lookup finds nothing: "lookup": nobody; "model": `draft_model`; "mtp": a layer of the
    # model's own that predicts one token further
    drafter: str = "lookup"
    assumed_draft_acceptance: float = 0.0  # of a token that level drafts

    @property
    def exact_for(self) -> str:
        """The model whose distribution every mode samples from: what "lossless" speaks of. On a card up to
        rounding, which there depends on how many tokens a pass has.
        """
        weights = _("{bits}-bit weights").format(bits=self.weights_bits)
        if self.weights_kernel == "codes":
            codes = _("{bits}-bit weights ({format})")
            weights = codes.format(bits=self.weights_bits, format=self.weights_format)
        elif self.weights_format:
            weights = _("{format} weights as {dtype}").format(format=self.weights_format, dtype=self.dtype)
        said = _("{model}, {weights}, {bits}-bit KV cache")
        if self.device == "cuda":
            said = _("{model}, {weights}, {bits}-bit KV cache, up to rounding on the card")
        return said.format(model=title_of(self.model), weights=weights, bits=self.kv_bits)

    @property
    def verification_ms(self) -> float:
        """A pass over the full cache with one row, in modes that draft, at the full context."""
        if self.expected_verify_ms is None:
            return self.expected_plain_tbt_ms
        return self.expected_verify_ms

    @property
    def kv_rows(self) -> str:
        """The type of the rows of the full KV cache (core.backend.shared.kv_rows)."""
        return CODED_ROWS if self.kv_bits == 8 else self.dtype

    def bytes_in(self, place: str) -> int:
        """The sum of the lines of one place."""
        return sum(line.bytes for line in self.budget if line.place == place)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON, the panel and the log."""
        return {**asdict(self), "exact_for": self.exact_for}
