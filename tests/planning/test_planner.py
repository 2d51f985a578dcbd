"""The planner: properties over a table of imagined machines, rows by hand, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, product

import pytest

from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import Hardware
from core.hardware.gpus import imagined_gpu, imagined_hardware
from core.model.catalogue import find, load
from core.model.gguf_sizes import in_format
from core.model.shapes import ModelShape
from core.planning import budget, costs
from core.planning.fitting import site_of
from core.planning.known import Known
from core.planning.plan import Plan
from core.planning.planner import plan
from core.planning.wording import format_plan
from core.text.words import GB
from tests.planning.imagined import planned

CARDS = ("RTX 3060", "RTX 3070", "RTX 3080", "RTX 3090", "RTX 4070 Ti", "RTX 4090", "RTX 5090", "A100 80 GB")
RAMS = (16, 32, 64, 128)
PCIES = (12.0, 25.0, 52.0)  # generations 3, 4, 5
CONTEXTS = (8192, 32_768, 131_072)
SAME_SHAPE = {
    "LWM-Text-Chat-256K",
    "LWM-Text-Chat-512K",
    "LWM-Text-Chat-1M",
    "Yarn-Llama-2-7b-128k",
    "Qwen2.5-7B-Instruct-1M",
}
TARGETS = tuple(entry for entry in load().values() if entry.role == "target" and entry.name not in SAME_SHAPE)


@pytest.fixture(scope="module")
def table() -> dict[tuple, tuple[Hardware, Plan | PlanError]]:
    """Every card (and none) x RAM x PCIe generation x model x context."""
    rows = {}
    for card, ram, pcie in product((*CARDS, None), RAMS, PCIES):
        if card is None and pcie != PCIES[0]:
            continue
        hardware = imagined_hardware(gpu=card, ram_gib=ram, pcie_gb_per_s=pcie)
        for entry, context in product(TARGETS, CONTEXTS):
            if context <= entry.shape.longest_context:
                rows[card, ram, pcie, entry.name, context] = (
                    hardware,
                    planned(hardware, entry.name, context=context),
                )
    return rows


def test_table_has_both_outcomes(table):
    plans = sum(isinstance(found, Plan) for _, found in table.values())
    assert plans > 1000
    assert len(table) - plans > 1000


def test_lines_sum_to_at_most_what_is_free(table):
    for key, (hardware, found) in table.items():
        if isinstance(found, PlanError):
            continue
        free = hardware.gpus[0].free_bytes if hardware.gpus else 0
        assert found.bytes_in("VRAM") <= free, key
        assert found.bytes_in("RAM") + found.bytes_in("pinned RAM") <= hardware.ram_available_bytes, key
        assert found.bytes_in("pinned RAM") <= hardware.pinnable_bytes, key


def as_held(found: Plan, shape: ModelShape) -> ModelShape:
    return shape if found.weights_kernel == "codes" else shape.decoded()


def test_lines_hold_the_weights_and_the_whole_kv_cache(table):
    """A line that is forgotten makes everything fit."""
    for key, (_, found) in table.items():
        if isinstance(found, PlanError):
            continue
        shape = find(found.model).shape
        kv = sum(line.bytes for line in found.budget if line.name.startswith("KV cache"))
        assert kv >= found.context_tokens * shape.kv_bytes_per_token(found.kv_rows), key
        assert next(line.bytes for line in found.budget if line.name == "weights") == as_held(
            found, shape
        ).weight_bytes(found.dtype), key
        assert any(line.name == budget.KEPT_FREE for line in found.budget), key
        assert 0 <= found.on_chip_layers <= found.layers, key
        assert (found.staging_blocks == 0) == (found.on_chip_layers == found.layers), key


def test_names_of_lines_are_keys(table):
    """The page translates a name where it shows it: with a number inside it would be in no catalogue."""
    known = {value for value in vars(budget).values() if isinstance(value, str)}
    plans = [found for _, found in table.values() if isinstance(found, Plan)]
    assert {line.name for found in plans for line in found.budget} <= known


def faster_or_finer(better: Plan, found: Plan) -> bool:
    """What a better machine wins may be spent on a KV cache of 16 bits."""
    return better.expected_tbt_ms <= found.expected_tbt_ms or better.kv_bits > found.kv_bits


def test_more_bandwidth_never_gives_a_slower_plan(table):
    for (card, ram, pcie, name, context), (_, found) in table.items():
        faster = {12.0: 25.0, 25.0: 52.0}.get(pcie)
        if card is None or faster is None or isinstance(found, PlanError):
            continue
        better = table[card, ram, faster, name, context][1]
        assert faster_or_finer(better, found), (card, ram, pcie, name, context)


def test_more_ram_never_gives_a_slower_plan_or_a_refusal(table):
    for (card, ram, pcie, name, context), (_, found) in table.items():
        if ram == 128 or isinstance(found, PlanError):
            continue
        better = table[card, 2 * ram, pcie, name, context][1]
        assert isinstance(better, Plan), (card, ram, pcie, name, context)
        assert faster_or_finer(better, found), (card, ram, pcie, name, context)


@pytest.mark.parametrize("entry", TARGETS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("context", CONTEXTS)
def test_more_vram_never_gives_a_slower_plan_or_a_refusal(entry, context):
    """One GiB at a time, so that changes of segment, on-chip layers and draft are crossed one by one."""
    if context > entry.shape.longest_context:
        pytest.skip("beyond the model's longest context")
    base = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    steps = []
    for vram_gib in range(2, 45):
        gpu = imagined_gpu("RTX 4090", vram_gib=vram_gib)
        found = planned(replace(base, gpus=(gpu,)), entry.name, context=context, kv=16)
        steps.append(found)
    for smaller, larger in pairwise(steps):
        if isinstance(smaller, PlanError):
            continue
        assert isinstance(larger, Plan)
        assert larger.expected_tbt_ms <= smaller.expected_tbt_ms
        # codes are read sooner in decoding, and have to be decoded in prefill; shorter segments read the
        # weights more often, and leave room for more layers
        held = [(one.weights_kernel, one.prefill_segment_tokens) for one in (smaller, larger)]
        allowed = 1.05 if held[0] != held[1] else 1.0
        assert larger.expected_prefill_s <= allowed * smaller.expected_prefill_s


def test_faster_gpu_memory_and_arithmetic_never_give_a_slower_plan():
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=64)
    for name in ("Llama-3.1-8B-Instruct", "Qwen3-8B", "Qwen2.5-7B-Instruct-1M"):
        slow = planned(hardware, name, context=131_072, vram_gb_per_s=500, tflops=50)
        memory = planned(hardware, name, context=131_072, vram_gb_per_s=1000, tflops=50)
        both = planned(hardware, name, context=131_072, vram_gb_per_s=1000, tflops=200)
        assert both.expected_tbt_ms <= memory.expected_tbt_ms <= slow.expected_tbt_ms
        assert both.expected_prefill_s < slow.expected_prefill_s


# ---- rows checked by hand ----------------------------------------------------------------------------------


def test_the_papers_4090_row():
    """LWM 7B, 128K, RTX 4090, 128 GB, 25 GB/s, acceptance .92: 312 ms are published for this card.

    By hand: weights 6.738e9 x 2 = 13.48 GB. A layer's KV, 131,072 tokens and 32 of a draft in 18 blocks of
    7,296, is 131,328 x 16 KiB = 2.152 GB. Free: 24 GiB - 0.5 = 25.23 GB. Two layers at work in a prefill
    would be 4.30 GB; swept, in segments of 16,384, a ring of 3 x 7,296 rows and two places for its own are
    0.90 GB, its queries and sums 16384 x 4096 x 6 = 0.40; hidden states 0.13 GB and a chunk 0.41; retrieval
    (4096 + 512 and 160 rows to spare) x 512 KiB = 2.55 GB; tables 0.24, graphs 0.13, context 0.54, reserve
    1.07: together 19.9 GB, so two layers more fit, and a draft model. Verification streams 30 x 2.152 = 64.6
    GB at 25 GB/s: 2.58 s.
    """
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=128, pcie_gb_per_s=25),
        "lwm-text-chat-128k",
        context=131_072,
    )
    assert (found.on_chip_layers, found.swept_prefill, found.prefill_segment_tokens) == (2, True, 16_384)
    assert found.bytes_in("pinned RAM") == 30 * 131_328 * 16_384
    assert 2570 <= found.expected_plain_tbt_ms <= 2610
    assert 200 <= found.expected_tbt_ms <= 312
    assert found.draft_model == "llama-68m"
    assert 50 <= found.expected_prefill_s <= 60  # 1.70 + 4.50 PFLOP at 140 and 110 TFLOP/s


def test_llama_31_8b_at_128k_on_a_4090():
    """By hand: weights 16.06 GB, one layer's KV 131200 x 4 KiB = 0.537 GB, 32 layers 17.2 GB. Decode would
    hold 7 GB of KV (13 layers); prefill's work space, swept in segments of 8,192, and the reserve leave 10.
    """
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25),
        "Llama-3.1-8B-Instruct",
        context=131_072,
    )
    assert (found.on_chip_layers, found.swept_prefill) == (10, True)
    away = found.bytes_in("pinned RAM")
    assert away == pytest.approx(22 * 131_104 * 4096, rel=0.005)
    assert found.expected_plain_tbt_ms == pytest.approx(away / 25e9 * 1e3, rel=0.02)


def test_lwm_in_codes_at_128k_on_a_4090_with_64_gb():
    """At most 110 ms at an acceptance of .92: the past of a prefill streams, and what two whole layers took
    (2.4 GB) holds two layers more. With them it was 10 layers and 115 ms.
    """
    shape = in_format(find("LWM-Text-Chat-128K").shape, "LWM", "Q4_K_M")
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25)
    found = plan(machine, Settings(context_tokens=131_072, kv=8), target=shape)
    assert found.assumed_acceptance == 0.92
    assert found.expected_tbt_ms <= 110
    assert found.on_chip_layers >= 12 and found.swept_prefill
    lines = {line.name: line.bytes for line in found.budget}
    rows = 3 * found.staging_block_tokens + 2 * found.prefill_segment_tokens
    assert lines[budget.KV_AT_WORK] == pytest.approx(rows * 2 * 32 * 144, rel=0.05)
    assert lines[budget.WAITING] == found.prefill_segment_tokens * 32 * (128 * 6 + 4)


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_qwen3_4b_at_262144_tokens_is_accepted_with_24_gb_and_64_gb(system: str):
    """16-bit weights as they are downloaded; of the cache, 39 GB in 16 bits, codes."""
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=64, system=system)
    found = planned(machine, "Qwen3-4B-Instruct-2507", context=262_144)
    assert isinstance(found, Plan), str(found)
    assert (found.context_tokens, found.device) == (262_144, "cuda")
    assert found.bytes_in("VRAM") <= machine.gpus[0].free_bytes
    assert found.on_chip_layers >= 20 and found.expected_tbt_ms <= 60


def test_a_prefill_is_swept_only_where_the_bus_is_hidden():
    """Behind a slow bus short segments would wait for it: 16-bit rows of a 7B model take 16 KiB a token."""
    shape = find("LWM-Text-Chat-128K").shape
    for bus, least in ((25.0, 4428), (12.0, 9225), (1.5, 73_800)):
        machine = imagined_hardware(gpu="RTX 4090", ram_gib=128, pcie_gb_per_s=bus)
        rows = costs.hiding_rows(shape, "bfloat16", site_of(machine, Settings()).speeds, pinned=True)
        assert rows == pytest.approx(least, rel=0.01)
        found = planned(machine, shape.name, context=131_072, kv=16)
        assert found.swept_prefill == (rows <= 32_768)
        assert not found.swept_prefill or found.prefill_segment_tokens >= rows


def test_two_whole_layers_stay_where_they_take_less():
    """Of a model with groups two layers in codes are half a GB; nothing is swept where nothing is gained."""
    machine = imagined_hardware(gpu="RTX 4070", ram_gib=64)
    found = planned(machine, "Qwen3-4B-Instruct-2507", context=8192, on_chip_layers=0)
    assert not isinstance(found, PlanError) and not found.swept_prefill


def test_small_context_on_a_large_card_stays_on_chip():
    """Llama-3.2-1B at 8K on a 4090: 2.5 GB of weights and 0.27 GB of KV. Nothing may cross the bus."""
    found = planned(imagined_hardware(gpu="RTX 4090", ram_gib=32), "Llama-3.2-1B-Instruct", context=8192)
    assert (found.on_chip_layers, found.staging_blocks, found.bytes_in("pinned RAM")) == (16, 0, 0)
    assert found.pcie_gb_per_s is None
    assert found.expected_plain_tbt_ms < 10


def test_the_embedded_model_without_gpu():
    """8,192 native tokens on the CPU; one thread per physical core."""
    plain = imagined_hardware(ram_gib=16, cores=4)
    found = planned(plain, "SmolLM2-135M-Instruct", context=None)
    assert (found.device, found.context_tokens, found.threads) == ("cpu", 8192, 4)
    assert (found.dtype, found.computes) == ("bfloat16", "float32")
    assert found.on_chip_layers == found.layers == 30
    assert {line.place for line in found.budget} == {"RAM", "disk"}


@pytest.mark.parametrize(
    ("system", "name", "flags", "held", "computes"),
    [
        ("Linux", "Intel(R) Core(TM) i5-12400", {"avx2"}, "bfloat16", "float32"),
        ("Linux", "Intel(R) Xeon(R) Processor", {"avx2", "avx512_bf16"}, "bfloat16", "float32"),
        ("Linux", "Intel(R) Xeon(R) Platinum", {"avx2", "avx512_bf16", "amx_bf16"}, "bfloat16", "bfloat16"),
        ("Windows", "AMD Ryzen 9 7950X 16-Core", {"avx2", "avx512_bf16"}, "bfloat16", "bfloat16"),
        ("Darwin", "Apple M2", {"asimd"}, "bfloat16", "float32"),
        ("Darwin", "Intel(R) Core(TM) i7", {"avx2"}, "float32", "float32"),  # no library for it
        ("Linux", "Intel(R) Celeron(R)", {"sse4_2"}, "float32", "float32"),
    ],
)
def test_16_bits_are_held_where_a_kernel_reads_them(system, name, flags, held, computes):
    """Half the memory on most PCs; what is computed is what the CPU is fast at."""
    machine = imagined_hardware(ram_gib=16, cores=4)
    machine = replace(machine, system=system, cpu_name=name, cpu_flags=frozenset(flags))
    found = planned(machine, "SmolLM2-135M-Instruct", context=None)
    assert (found.dtype, found.computes) == (held, computes)
    kv = {line.name: line.bytes for line in found.budget}[budget.KV]
    assert kv >= 30 * 8192 * 2 * 3 * 64 * (2 if held == "bfloat16" else 4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_embedded_model_stays_in_its_codes(dtype: str):
    """Whatever is computed in; a model of 16 bits has none."""
    bf16 = replace(imagined_hardware(ram_gib=16), cpu_flags=frozenset({"avx2", "amx_bf16"}))
    embedded = planned(bf16, "SmolLM2-135M-Instruct", context=None, dtype=dtype)
    numbers = planned(bf16, "SmolLM2-135M-Instruct", context=None, dtype=dtype, weights=16)
    assert (embedded.weights_kernel, numbers.weights_kernel) == ("codes", "float")
    assert (embedded.weights_bits, embedded.weights_format) == (8, "Q8_0")
    kept = "16-bit" if dtype == "bfloat16" else "32-bit"
    told = f"SmolLM2-135M-Instruct, taught to read, 8-bit weights (Q8_0), {kept} KV cache"
    assert embedded.exact_for == told and told in format_plan(embedded)
    assert embedded.to_json()["weights_bits"] == 8
    assert embedded.expected_plain_tbt_ms < numbers.expected_plain_tbt_ms
    assert planned(bf16, "Qwen2.5-0.5B-Instruct", context=8192).weights_kernel == "float"


def test_cpu_times_near_the_measured_ones():
    """What tokens beyond 1,024 add to a pass of one row and of four, by the compiled kernel on two AVX-512
    cores (benchmarks/results/attention.json), and prefill (benchmarks/results/peers.json).
    """
    hardware = replace(
        imagined_hardware(ram_gib=16, cores=2),
        cpu_name="AMD",
        cpu_flags=frozenset({"avx2", "avx512f", "avx512_bf16"}),
    )
    shape, speeds = find("SmolLM2-135M-Instruct").shape, site_of(hardware, Settings()).speeds
    for rows, added_ms in (
        (1, {4096: 5.9, 8192: 17.9, 16_384: 34.5, 32_768: 76.6}),
        (4, {8192: 25.7, 32_768: 116.5}),
    ):
        for context, ms in added_ms.items():
            behind = [
                1e3 * costs.pass_s(shape, "bfloat16", rows=rows, kv_tokens=tokens, speeds=speeds)
                for tokens in (1024, context)
            ]
            assert behind[1] - behind[0] == pytest.approx(ms, rel=0.3), (rows, context)
    for context, seconds in ((8000, 23.4), (16_000, 70.4), (32_000, 183.3)):
        found = planned(hardware, "SmolLM2-135M-Instruct", context=context)
        assert found.expected_prefill_s == pytest.approx(seconds, rel=0.25), context


def test_what_prefill_copies_on_a_cpu_is_counted():
    """In pieces of the sizes that the backend takes. One layer of this shape held 359 MiB at most beside its
    weights and cache (torch's memory profile of a segment behind 12,000 tokens).
    """
    hardware = replace(
        imagined_hardware(ram_gib=64), cpu_flags=frozenset({"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    )
    found = planned(hardware, "Llama-3.1-8B-Instruct", context=16_384)
    (work,) = (line.bytes for line in found.budget if line.name == budget.WORK_PREFILL)
    assert work == pytest.approx(359 * budget.MIB, rel=0.25)


# ---- refusals ----------------------------------------------------------------------------------------------


def test_llama_2_7b_at_128k_on_a_64_gb_pc_is_refused_before_loading():
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25),
        "Yarn-Llama-2-7b-128k",
        context=131_072,
        kv=16,
    )
    message = str(found)
    assert isinstance(found, PlanError)
    assert "GB of RAM" in message
    assert "KV cache" in message
    assert "add RAM" in message
    assert "set kv to 8" in message
    assert "choose Llama-3.1-8B-Instruct" in message
    assert re.search(r"[Ll]ower context_tokens to \d", message)


def test_every_refusal_names_need_supply_and_a_way_out(table):
    for key, (_, found) in table.items():
        if isinstance(found, Plan):
            continue
        message = str(found)
        need, supply = re.search(r"needs ([\d.]+) GB of (?:VRAM|RAM); ([\d.]+) GB is free", message).groups()
        assert float(need) >= float(supply), key
        assert re.search(r"(add RAM|more free VRAM)", message), key


def test_suggested_context_fits_and_a_step_more_does_not():
    """A remedy that does not work is worse than none."""
    for kv, ram_gib in ((16, 64), (None, 32)):
        hardware = imagined_hardware(gpu="RTX 4090", ram_gib=ram_gib, pcie_gb_per_s=25)
        message = str(planned(hardware, "LWM-Text-Chat-128K", context=131_072, kv=kv))
        suggested = int(re.search(r"context_tokens to ([\d,]+)", message)[1].replace(",", ""))
        assert isinstance(planned(hardware, "LWM-Text-Chat-128K", context=suggested, kv=kv), Plan)
        assert isinstance(planned(hardware, "LWM-Text-Chat-128K", context=suggested + 512, kv=kv), PlanError)


# ---- the KV cache's format -------------------------------------------------------------------------------


def test_a_kv_cache_of_8_bits_is_for_what_is_slow_or_does_not_fit():
    """16 bits under 33 ms or under twice the time of 8; whatever is chosen is in the plan, its lines and what
    it is exact for.
    """
    card = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    chosen = {}
    for name, context in (
        ("Llama-3.2-3B-Instruct", 32_768),  # quick
        ("Llama-3.1-8B-Instruct", 131_072),
        ("LWM-Text-Chat-128K", 131_072),  # crosses the bus
        ("Yarn-Llama-2-7b-128k", 8192),
    ):
        auto, sixteen, eight = (planned(card, name, context=context, kv=kv) for kv in (None, 16, 8))
        slow = sixteen.expected_tbt_ms >= 33 and sixteen.expected_tbt_ms >= 2 * eight.expected_tbt_ms
        assert auto == replace(eight if slow else sixteen, notes=auto.notes)
        assert (sixteen.kv_bits, eight.kv_bits) == (16, 8) and (sixteen.kv_rows, eight.kv_rows) == (
            "bfloat16",
            "int8",
        )
        assert eight.exact_for.endswith("8-bit KV cache") and sixteen.exact_for.endswith("16-bit KV cache")
        assert eight.to_json()["kv_bits"] == 8
        shares = [
            sum(line.bytes for line in found.budget if line.name in (budget.KV_ON_CHIP, budget.KV_PINNED))
            for found in (eight, sixteen)
        ]
        assert shares[0] / shares[1] == pytest.approx(144 / 256, rel=0.02)
        chosen[name, context] = auto.kv_bits
    assert chosen["Llama-3.2-3B-Instruct", 32_768] == 16
    small = imagined_hardware(gpu="RTX 4090", ram_gib=64)
    only = planned(small, "LWM-Text-Chat-128K", context=131_072)
    assert isinstance(planned(small, "LWM-Text-Chat-128K", context=131_072, kv=16), PlanError)
    assert only.kv_bits == 8 and any("8 bits" in note and "kv: 16" in note for note in only.notes)


def test_keys_with_a_constant_part_keep_16_bits():
    """Also where 16 bits do not fit; as set 8 are possible, and what they cost is said."""
    small, shape = imagined_hardware(gpu="RTX 4090", ram_gib=64), find("LWM-Text-Chat-128K").shape
    settings = Settings(context_tokens=131_072)
    assert plan(small, settings, target=shape).kv_bits == 8
    with pytest.raises(PlanError):
        plan(small, settings, target=replace(shape, attention_bias=True))
    assert planned(small, "Qwen2.5-7B-Instruct-1M", context=131_072).kv_bits == 16
    asked = planned(small, "Qwen2.5-7B-Instruct-1M", context=131_072, kv=8)
    assert asked.kv_bits == 8 and any("constant part" in note for note in asked.notes)


def test_suggested_ram_is_enough():
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25)
    message = str(planned(hardware, "LWM-Text-Chat-128K", context=131_072, kv=16))
    missing = float(re.search(r"add RAM \(([\d.]+) GB more\)", message)[1])
    more = replace(hardware, ram_available_bytes=hardware.ram_available_bytes + int((missing + 0.1) * 1e9))
    assert isinstance(planned(more, "LWM-Text-Chat-128K", context=131_072, kv=16), Plan)


def test_weights_too_large_for_the_card():
    found = planned(imagined_hardware(gpu="RTX 4090", ram_gib=128), "Yarn-Llama-2-13b-128k", context=131_072)
    assert "of VRAM" in str(found)
    assert "weights 26.0 GB" in str(found)
    found = planned(imagined_hardware(gpu="RTX 3060", ram_gib=64), "Llama-3.1-8B-Instruct", context=None)
    assert "even with only" in str(found)
    assert "choose Qwen3-4B-Instruct-2507" in str(found)


def test_context_beyond_the_model_is_refused():
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    assert "handles at most 131,072 tokens" in str(
        planned(hardware, "Llama-3.1-8B-Instruct", context=200_000)
    )


@pytest.mark.parametrize(("key", "value"), [("on_chip_layers", 20), ("retrieval_budget", 60_000)])
def test_a_figure_of_the_user_that_breaks_the_plan_is_named(key, value):
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=64)
    found = planned(hardware, "Llama-3.1-8B-Instruct", context=131_072, **{key: value})
    assert f"et {key} to auto" in str(found)


def test_cuda_wanted_and_not_there():
    hardware = replace(
        imagined_hardware(ram_gib=16), problems=("The NVIDIA driver does not answer (fault).",)
    )
    found = planned(hardware, "SmolLM2-135M-Instruct", context=None, device="cuda")
    assert "No usable CUDA GPU" in str(found)
    assert "does not answer" in str(found)


def test_the_disk_is_a_place_with_lines():
    """Nobody should find out by a full disk what a model's files and the books read with it take."""
    card = imagined_hardware(gpu="RTX 4090", vram_gib=25, ram_gib=128)
    pc = replace(card, disk_path="/data", disk_free_bytes=40 * GB)
    found = planned(pc, "LWM-Text-Chat-128K", context=131_072, known=Known(snapshot_bytes=10 * GB))
    lines = {line.name: line.bytes for line in found.budget if line.place == "disk"}
    models = find("LWM-Text-Chat-128K").shape, find("llama-68m").shape
    assert lines == {
        "model files": 2 * sum(shape.parameters for shape in models),
        "KV snapshots, at most": 5 * GB,
    }
    assert any("68.7 GB would be kept on disk, more than the 5.0 GB allowed" in note for note in found.notes)
    assert not any("is free in" in note for note in found.notes)

    off = planned(
        replace(pc, disk_free_bytes=10 * GB), "LWM-Text-Chat-128K", context=131_072, snapshot_quota_gb=0
    )
    assert [line.name for line in off.budget if line.place == "disk"] == ["model files"]
    assert any("The model's files take 13.6 GB; 10.0 GB is free in /data." in note for note in off.notes)
