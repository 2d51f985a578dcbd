"""What a plan says of weights: their bytes, their formats, and where codes are slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.backend.shared.compiled import ATTENTION, COARSE, CODED_KV, PRODUCTS
from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import Hardware
from core.hardware.gpus import imagined_hardware
from core.model.gguf.size_estimates import in_format
from core.model.shapes import ModelShape
from core.model.store.catalogue import load_catalogue
from core.planning import budget, notes
from core.planning.planner import make_plan
from tests.support.imagined import planned
from tests.support.said import values, worded_by


@pytest.mark.parametrize(
    ("gpu", "dtype", "name", "bits", "weights"),
    [
        # SmolLM2: 134.5 million weights; 8.5 bits a weight as codes
        (None, "float32", "SmolLM2-135M-Instruct", 16, 538.1e6),
        (None, "bfloat16", "SmolLM2-135M-Instruct", 16, 269.0e6),
        (None, "bfloat16", "SmolLM2-135M-Instruct", None, 142.9e6),
        ("RTX 4090", "float16", "SmolLM2-135M-Instruct", 16, 269.0e6),
        ("RTX 4090", "float16", "SmolLM2-135M-Instruct", None, 142.9e6),
        ("RTX 4090", "float16", "Llama-3.2-1B-Instruct", None, 2.472e9),
        ("RTX 4090", "float32", "Llama-3.2-1B-Instruct", None, 4.943e9),
    ],
)
def test_weights_take_the_bytes_of_their_numbers(
    gpu: str | None, dtype: str, name: str, bits: int | None, weights: float
):
    """A line that always counts two bytes a weight promises room that a float32 plan does not have."""
    found = planned(imagined_hardware(gpu=gpu, ram_gib=64), name, context=4096, dtype=dtype, weights=bits)
    lines = {line.name: line.bytes for line in found.budget}
    assert lines[budget.WEIGHTS] == pytest.approx(weights, rel=1e-3)


def test_a_gguf_is_planned_by_what_its_codes_take():
    """Llama-3.1-8B as Q4_K_M: 4.9 GB instead of 16; in 16 bits where that is asked for."""
    shape = replace(
        load_catalogue()["Llama-3.1-8B-Instruct"].shape,
        name="Llama-3.1-8B-Instruct-Q4_K_M",
        format="Q4_K_M",
        code_bits=4,
        coded_weights=8_030_000_000,
        coded_bytes=4_920_000_000,
    )
    hardware = imagined_hardware(ram_gib=64)
    kept = make_plan(hardware, Settings(), target=shape)
    numbers = make_plan(hardware, Settings(weights=16, context_tokens=8192), target=shape)
    assert (kept.weights_kernel, kept.weights_bits, kept.weights_format) == ("codes", 4, "Q4_K_M")
    exact = kept.exact_for.values
    assert (exact["model"], exact["bits"]) == ("Llama-3.1-8B-Instruct-Q4_K_M", 16)
    assert values(exact["weights"]) == {"bits": 4, "format": "Q4_K_M"}
    assert kept.to_json()["exact_for"] == kept.exact_for
    sizes = {line.name: line.bytes for line in kept.budget}
    assert 4.9e9 < sizes[budget.WEIGHTS] < 5.0e9 and sizes[budget.DECODED] > 0
    assert (numbers.weights_kernel, numbers.weights_bits) == ("float", 16)
    assert values(numbers.exact_for.values["weights"]) == {"format": "Q4_K_M", "dtype": "bfloat16"}
    assert numbers.exact_for.values["bits"] == 16
    assert next(line.bytes for line in numbers.budget if line.name == "weights") > 15e9
    like = make_plan(hardware, Settings(context_tokens=8192), target=shape)
    assert like.expected_plain_tbt_ms < numbers.expected_plain_tbt_ms


@pytest.mark.parametrize(
    "name", [name for name, entry in load_catalogue().items() if entry.shape.coded_weights]
)
def test_a_file_is_held_in_little_more_than_its_own_bytes(name: str):
    """By the size that its publisher states: at most 1.15 times as many, though scales lie apart."""
    entry = load_catalogue()[name]
    found = planned(imagined_hardware(ram_gib=64), name, context=4096)
    held = sum(line.bytes for line in found.budget if line.name in (budget.WEIGHTS, budget.LOOKED_UP))
    assert 0.95 * entry.download_bytes < held < 1.15 * entry.download_bytes


def llama_8b_q4() -> ModelShape:
    return in_format(load_catalogue()["Llama-3.1-8B-Instruct"].shape, "Llama-3.1-8B-Instruct", "Q4_K_M")


def card(name: str, **facts: object) -> Hardware:
    pc = imagined_hardware(gpu=name, ram_gib=64)
    return replace(pc, gpus=(replace(pc.gpus[0], **facts),))


def test_codes_on_a_card_are_read_as_they_are():
    """A third of the bytes: chosen without asking, also where the numbers would fit; what is expected of the
    kernel is said to be no more than that.
    """
    shape, hardware = llama_8b_q4(), card("RTX 4090")
    kept, numbers = (
        make_plan(hardware, Settings(weights=bits, context_tokens=8192), target=shape) for bits in (8, 16)
    )
    assert make_plan(hardware, Settings(context_tokens=8192), target=shape) == kept
    (note,) = worded_by(notes._weights, *kept.notes)
    assert kept.weights_kernel == "codes" and "kernel" in note and "slow" not in note
    assert kept.expected_plain_tbt_ms < 0.6 * numbers.expected_plain_tbt_ms
    # bytes at four fifths of what numbers are read at, and nothing sooner
    read_s = shape.pass_bytes("bfloat16") / (0.8 * 0.91 * 1008e9)
    assert kept.expected_plain_tbt_ms > 1e3 * read_s
    assert kept.expected_prefill_s < 1.1 * numbers.expected_prefill_s


@pytest.mark.parametrize(
    "facts", [{"refused": (PRODUCTS,)}, {"compute_capability": (7, 5)}], ids=["refused", "old"]
)
def test_codes_that_torch_decodes_are_said_to_be_slow(facts: dict[str, object]):
    """A trial on the card refused the kernel, or it is not compiled for such: less memory, more time; nothing
    may promise otherwise. So they are chosen only where the numbers they stand for would be slower still.
    """
    shape, hardware = llama_8b_q4(), card("RTX 4090", **facts)
    kept, numbers = (
        make_plan(hardware, Settings(weights=bits, context_tokens=8192), target=shape) for bits in (8, 16)
    )
    assert make_plan(hardware, Settings(context_tokens=8192), target=shape) == numbers
    small = make_plan(card("RTX 4070", **facts), Settings(context_tokens=8192), target=shape)
    assert small.weights_kernel == "codes" and small.exact_for.startswith("Llama 3.1 8B Instruct, 4-bit")
    (note,) = worded_by(notes._weights, *kept.notes)
    assert kept.weights_kernel == "codes" and "kernel" not in note and "slow" in note
    assert kept.bytes_in("VRAM") < numbers.bytes_in("VRAM")
    assert kept.expected_plain_tbt_ms > 2 * numbers.expected_plain_tbt_ms
    assert not worded_by(notes._weights, *numbers.notes)


def test_a_plan_without_our_kernels_counts_on_none():
    """`kernels: library` is planned for as a card that refused all; it changes nothing without one."""
    shape, refused = llama_8b_q4(), card("RTX 4090", refused=(PRODUCTS, CODED_KV))
    asked = Settings(context_tokens=131_072, kernels="library")
    assert make_plan(card("RTX 4090"), asked, target=shape) == make_plan(
        refused, replace(asked, kernels="auto"), target=shape
    )
    cpu = imagined_hardware(ram_gib=64)
    assert make_plan(cpu, asked, target=shape) == make_plan(cpu, replace(asked, kernels="auto"), target=shape)


@pytest.mark.parametrize(
    ("gpu", "layers", "most_ms"), [("RTX 4090", 32, 15), ("RTX 4080", 24, 29), ("RTX 4070", 8, 54)]
)
@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_the_model_most_people_run_reads_a_book_on_their_card(gpu, layers, most_ms, system):
    """Llama-3.1-8B in 4 bits, 131,072 tokens in 8, 64 GB of memory: wholly on 24 GB, most of it on 16."""
    pc = imagined_hardware(gpu=gpu, ram_gib=64, system=system)
    found = make_plan(pc, Settings(context_tokens=131_072, kv=8), target=llama_8b_q4())
    assert found.expected_tbt_ms <= most_ms and found.weights_kernel == "codes"
    assert found.on_chip_layers >= layers - (system == "Windows")
    assert found.bytes_in("VRAM") <= pc.gpus[0].free_bytes


def test_a_cache_in_codes_is_counted_by_what_reads_it():
    """In registers where a kernel may be counted on, else as five times the traffic; heads that it is not
    compiled for are not promised it.
    """
    shape = load_catalogue()["Llama-3.1-8B-Instruct"].shape
    shapes = {dim: replace(shape, head_dim=dim, heads=4096 // dim, kv_heads=1024 // dim) for dim in (128, 32)}
    plans = {
        (dim, refused): make_plan(
            card("RTX 4090", refused=refused), Settings(kv=8, weights=8, context_tokens=65_536), target=one
        )
        for dim, one in shapes.items()
        for refused in ((), (CODED_KV,))
    }
    swift, slow = plans[128, ()], plans[128, (CODED_KV,)]
    cache = 65_536 * shape.kv_bytes_per_token("int8")
    beyond = cache * (1 / 0.91 / 1008e9) * 1e3
    assert slow.expected_plain_tbt_ms > swift.expected_plain_tbt_ms + 2 * beyond
    read = {key: worded_by(notes._kv_format, *one.notes)[1].template for key, one in plans.items()}
    assert "kernel" in read[128, ()] and "kernel" not in read[128, (CODED_KV,)]
    assert read[32, ()] == read[128, (CODED_KV,)]
    assert plans[32, ()].expected_plain_tbt_ms == plans[32, (CODED_KV,)].expected_plain_tbt_ms


@pytest.mark.parametrize(
    ("bits", "code_bits", "fine"), [(4, 8, False), (4, 5, False), (8, 6, True), (4, 4, True)]
)
def test_bits_that_the_model_does_not_have_are_refused(bits, code_bits, fine):
    shape = load_catalogue()["Llama-3.2-1B-Instruct"].shape
    shape = replace(shape, code_bits=code_bits, coded_weights=10**9, coded_bytes=10**9)
    settings = Settings(weights=bits, context_tokens=8192)
    if fine:
        make_plan(imagined_hardware(ram_gib=64), settings, target=shape)
        return
    with pytest.raises(PlanError, match=f"weights of {code_bits} bits"):
        make_plan(imagined_hardware(ram_gib=64), settings, target=shape)


@pytest.mark.parametrize(
    ("name", "least"), [("Llama-3.2-3B-Instruct", 65_536), ("Qwen3-4B-Instruct-2507", 48_000)]
)
def test_a_pc_without_a_card_takes_a_model_of_three_or_four_billion(name: str, least: int):
    """16 GB, AVX2, a GGUF of 4 bits: as far as memory goes, twice as far as in 32 bits."""
    shape = load_catalogue()[name].shape
    coded = shape.parameters - (2 * shape.layers + 1) * shape.hidden
    codes = {"format": "Q4_K_M", "code_bits": 4, "coded_weights": coded, "coded_bytes": coded * 61 // 100}
    pc = imagined_hardware(ram_gib=16, cores=6)
    found = make_plan(pc, Settings(), target=replace(shape, **codes))
    assert found.context_tokens >= least and found.bytes_in("RAM") <= pc.ram_available_bytes
    assert (found.weights_kernel, found.dtype, found.computes) == ("codes", "bfloat16", "float32")
    wide = make_plan(pc, Settings(dtype="float32"), target=replace(shape, **codes))
    assert found.context_tokens > 1.9 * wide.context_tokens
    with pytest.raises(PlanError):
        make_plan(
            pc, Settings(context_tokens=found.context_tokens + 4096, kv=16), target=replace(shape, **codes)
        )


def test_what_the_compiled_kernels_of_a_cpu_do_not_do_takes_torchs_time():
    """Their self-test failed on this computer, or there is none for it: a plan that counts on them promises
    words at ten times the speed. Numbers are then held as they are computed with, which torch reads best.
    """
    pc, shape = imagined_hardware(ram_gib=64, cores=8), llama_8b_q4()
    none, lost = (replace(pc, refused=one) for one in ((ATTENTION,), (PRODUCTS,)))
    old = replace(pc, cpu_flags=frozenset({"sse4_2"}))
    settings = Settings(context_tokens=8192)
    kept, attended, decoded, without = (
        make_plan(one, settings, target=shape) for one in (pc, none, lost, old)
    )
    assert kept.dtype == "bfloat16" and {attended.dtype, decoded.dtype, without.dtype} == {"float32"}
    assert kept.expected_plain_tbt_ms < attended.expected_plain_tbt_ms < 2 * kept.expected_plain_tbt_ms
    assert min(decoded.expected_plain_tbt_ms, without.expected_plain_tbt_ms) > 10 * kept.expected_plain_tbt_ms
    assert decoded.expected_book_s > kept.expected_book_s
    swift, slow = (make_plan(one, replace(settings, kv=8), target=shape) for one in (pc, none))
    assert slow.expected_plain_tbt_ms > 3 * swift.expected_plain_tbt_ms
    said = [worded_by(notes._refused, *one.notes) for one in (kept, attended, decoded)]
    assert not said[0] and said[1] == said[2] and "torch" in said[1][0]


def test_drafts_without_their_kernel_take_the_time_of_exact_products():
    """Its self-test failed on this computer; plain decoding has nothing to do with it."""
    pc, shape = imagined_hardware(ram_gib=64, cores=8), llama_8b_q4()
    settings = Settings(context_tokens=8192)
    kept, lost = (make_plan(one, settings, target=shape) for one in (pc, replace(pc, refused=(COARSE,))))
    assert lost.expected_plain_tbt_ms == kept.expected_plain_tbt_ms and lost.dtype == kept.dtype
    assert lost.expected_tbt_ms > 1.05 * kept.expected_tbt_ms
    numbers = make_plan(replace(pc, refused=(COARSE,)), replace(settings, weights=16), target=shape)
    exact, said, of_numbers = (worded_by(notes._refused, *one.notes) for one in (kept, lost, numbers))
    assert not exact and not of_numbers and "drafts" in said[0]
