"""The planner: rows checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.backend.shared.compiled import ROW_TILES
from core.build import allowance_bytes
from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import GIB
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import find
from core.planning import budget, costs, layout
from core.planning.fitting import site_of
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.planning.wording import format_plan
from tests.support.imagined import PINNED, RAM, planned


def test_the_papers_4090_row():
    """LWM 7B, 128K, RTX 4090, 128 GB, 25 GB/s, acceptance .92: 312 ms are published for this card.

    By hand: weights 6.738e9 x 2 = 13.48 GB. A layer's KV, 131,072 tokens and 32 of a draft in 18 blocks of
    7,296, is 131,328 x 16 KiB = 2.152 GB. Free: 24 GiB - 0.5 = 25.23 GB. Two layers at work in a prefill
    would be 4.30 GB; swept, in segments of 16,384, a ring of 3 x 7,296 rows and two places for its own are
    0.90 GB, its queries and sums 16384 x 4096 x 6 = 0.40; hidden states 0.13 GB and a chunk 0.41; retrieval
    (4096 + 512 and 160 rows to spare) x 512 KiB = 2.55 GB, a passage (1,240 tokens and 32) 0.67; tables 0.24,
    graphs 0.13, context 0.54, reserve 1.07: together 20.6 GB, so two layers more fit, and a draft model.
    Verification streams 30 x 2.152 = 64.6 GB at 25 GB/s: 2.58 s.
    """
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=128, pcie_gb_per_s=25),
        "lwm-text-chat-128k",
        context=131_072,
        weights=16,
        kv=16,
    )
    assert (found.on_chip_layers, found.swept_prefill, found.prefill_segment_tokens) == (2, True, 16_384)
    assert found.bytes_in(PINNED) == 30 * 131_328 * 16_384
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
        weights=16,
        kv=16,
    )
    assert (found.on_chip_layers, found.swept_prefill) == (10, True)
    away = found.bytes_in(PINNED)
    assert away == pytest.approx(22 * 131_104 * 4096, rel=0.005)
    assert found.expected_plain_tbt_ms == pytest.approx(away / 25e9 * 1e3, rel=0.02)


def test_lwm_in_codes_at_128k_on_a_4090_with_64_gb():
    """It ships in 16 bits alone and is rounded to Q4_0. At most 110 ms at an acceptance of .92: the past of a
    prefill streams, and what two whole layers took (2.4 GB) holds two layers more.
    """
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=64, pcie_gb_per_s=25)
    settings = Settings(context_tokens=131_072, kv=8, weights=4)
    found = make_plan(machine, settings, target=find("LWM-Text-Chat-128K").shape)
    assert (found.weights_format, found.rounded) == ("Q4_0", True)
    assert found.assumed_acceptance == 0.92
    assert found.expected_tbt_ms <= 110
    assert found.on_chip_layers >= 12 and found.swept_prefill
    lines = {line.name: line.bytes for line in found.budget}
    rows = 3 * found.staging_block_tokens + 2 * found.prefill_segment_tokens
    assert lines[budget.KV_AT_WORK] == pytest.approx(rows * 2 * 32 * 144, rel=0.05)
    assert lines[budget.WAITING] == found.prefill_segment_tokens * 32 * (128 * 6 + 4)


@pytest.mark.parametrize(("gpu", "layers"), [("RTX 4090", 12), ("RTX 4080", 5), ("RTX 4070", 1)])
@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_lwm_at_128k_is_accepted_as_it_is_set_up_by_default(gpu, layers, system):
    """With 64 GB of memory: nobody has to find the settings that round it and its cache. On 24 GB at most 110
    ms, on Windows as well.
    """
    machine = imagined_hardware(gpu=gpu, ram_gib=64, system=system)
    found = planned(machine, "LWM-Text-Chat-128K", context=131_072)
    assert isinstance(found, Plan), str(found)
    assert (found.weights_format, found.kv_bits, found.rounded) == ("Q4_0", 8, True)
    assert found.on_chip_layers >= layers
    assert gpu != "RTX 4090" or found.expected_tbt_ms <= 110


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_qwen3_4b_at_262144_tokens_is_accepted_with_24_gb_and_64_gb(system: str):
    """16-bit weights as they are downloaded; of the cache, 39 GB in 16 bits, codes."""
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=64, system=system)
    found = planned(machine, "Qwen3-4B-Instruct-2507", context=262_144, weights=16)
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
        found = planned(machine, shape.name, context=131_072, kv=16, weights=16)
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
    assert (found.on_chip_layers, found.staging_blocks, found.bytes_in(PINNED)) == (16, 0, 0)
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


def test_what_is_kept_of_texts_read_before_has_its_line():
    """The worker held 4.9 GB where the plan said 3.3: contexts of parts and passages stood nowhere in it."""
    pc, name = imagined_hardware(ram_gib=16, cores=4), "SmolLM2-135M-Instruct"
    found = planned(pc, name, context=None)
    lines = {line.name: line.bytes for line in found.budget if line.place == RAM}
    needed = found.bytes_in(RAM) - lines[budget.KV_BEFORE]
    assert lines[budget.KV_BEFORE] == (pc.ram_available_bytes - needed) // 4
    assert allowance_bytes(found) == lines[budget.KV] + lines[budget.KV_BEFORE]
    roomy = planned(imagined_hardware(ram_gib=128, cores=4), name, context=None)
    assert allowance_bytes(roomy) == lines[budget.KV] + 4 * GIB
    tight = planned(replace(pc, ram_available_bytes=needed), name, context=None)
    assert (tight.bytes_in(RAM), allowance_bytes(tight)) == (needed, 0)
    card = planned(imagined_hardware(gpu="RTX 4090", ram_gib=32), name, context=None)
    assert allowance_bytes(card) == 0 and budget.KV_BEFORE not in {line.name for line in card.budget}


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
    told = f"SmolLM2 135M Instruct, taught to read, 8-bit weights (Q8_0), {kept} KV cache"
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
    for rows, added_ms in ((1, {8192: 8.5, 16_384: 17.9, 32_768: 34.6}), (4, {16_384: 28.2, 32_768: 52.2})):
        for context, ms in added_ms.items():
            behind = [
                1e3 * costs.pass_s(shape, "bfloat16", rows=rows, kv_tokens=tokens, speeds=speeds)
                for tokens in (1024, context)
            ]
            assert behind[1] - behind[0] == pytest.approx(ms, rel=0.3), (rows, context)
    for context, seconds in ((8000, 20.8), (16_000, 65.2), (32_000, 205.7)):
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
    assert work == pytest.approx(359 * layout.MIB, rel=0.25)


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "Qwen2.5-7B-Instruct"])
@pytest.mark.parametrize("context", [32_768, 131_072])
def test_a_draft_on_a_card_stays_within_one_tile_of_attention(name: str, context: int):
    """A row more, and every key is read again; where acceptance is high, drafts were longer than that. Behind
    a bus that is hidden.
    """
    shape = find(name).shape
    settings = Settings(context_tokens=context, assumed_acceptance=0.99)
    found = make_plan(imagined_hardware(gpu="RTX 4090", ram_gib=64), settings, target=shape)
    assert found.on_chip_layers == found.layers
    assert (found.gamma + 1) * shape.heads // shape.kv_heads <= ROW_TILES[shape.head_dim]
