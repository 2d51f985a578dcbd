"""The table of GPUs and machines imagined from it."""

from __future__ import annotations

import pytest

from core.errors import UserError
from core.hardware.facts import GIB
from core.hardware.gpus import imagine, imagined_hardware, known_gpus, look_up, of_class


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4070ti", "RTX 4070 Ti"),
        ("4090", "RTX 4090"),
        ("RTX 3060 12", "RTX 3060"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("RTX4070TiSUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4060 Ti", "RTX 4060 Ti"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("A100", "A100 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA GeForce GTX 1650", "GTX 1650"),
        ("NVIDIA GeForce GTX 1660 SUPER", "GTX 1660 SUPER"),
        ("NVIDIA GeForce RTX 2060", "RTX 2060"),
        ("NVIDIA GeForce RTX 2070 SUPER", "RTX 2070 SUPER"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("RTX 2060, 12 GB", "RTX 2060 12 GB"),
        ("NVIDIA GeForce RTX 3050", "RTX 3050"),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", "RTX 3050 Laptop"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "RTX 3050 6 GB Laptop"),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", "RTX 4050 Laptop"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "RTX 4060 Laptop"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 5050", "RTX 5050"),
        ("NVIDIA GeForce RTX 5060", "RTX 5060"),
        ("5060 ti 8gb", "RTX 5060 Ti 8 GB"),
    ],
)
def test_names_as_drivers_and_people_write_them(name, expected):
    assert look_up(name).name == expected


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 3090 Laptop GPU", "GeForce GTX 1080", "RX 7900 XTX", "", "NVIDIA"]
)
def test_others_are_not_guessed(name):
    """A laptop GPU has its desktop namesake's name and about half its speed."""
    assert look_up(name) is None


@pytest.mark.parametrize(
    ("name", "vram_gib", "expected"),
    [
        ("NVIDIA GeForce RTX 3050", 5.99, "RTX 3050 6 GB"),
        ("NVIDIA GeForce RTX 3060", 7.99, "RTX 3060 8 GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.99, "RTX 4060 Ti"),
        ("NVIDIA GeForce RTX 5060 Ti", 7.99, "RTX 5060 Ti 8 GB"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 15.99, "RTX 3080 16 GB Laptop"),
    ],
)
def test_of_cards_of_one_name_the_driver_tells_the_size(name, vram_gib, expected):
    """The RTX 3050 with 6 GB reads its memory at three quarters of the rate of that with 8."""
    assert look_up(name, vram_bytes=int(vram_gib * GIB)).name == expected


@pytest.mark.parametrize("desktop", ["RTX 3060", "RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090"])
def test_a_laptop_card_is_slower_than_its_namesake(desktop):
    laptop, other = look_up(f"NVIDIA GeForce {desktop} Laptop GPU"), look_up(f"NVIDIA GeForce {desktop}")
    assert laptop.vram_gib <= other.vram_gib and laptop.tflops < other.tflops
    assert laptop.memory_gb_per_s < other.memory_gb_per_s


@pytest.mark.parametrize(
    ("capability", "vram_gib", "like"),
    [
        ((12, 0), 7.9, "RTX 5050"),
        ((8, 9), 15.9, "RTX 4060 Ti"),
        ((13, 0), 31.5, "RTX 5090"),  # newer than the table
        ((6, 1), 8, "RTX 2060 SUPER"),  # older
        (None, 4, "GTX 1650"),
    ],
)
def test_an_unknown_card_counts_as_the_slowest_of_its_class(capability, vram_gib, like):
    assert of_class(capability, int(vram_gib * GIB)).name == like


def test_every_line_finds_itself():
    for spec in known_gpus():
        assert look_up(f"NVIDIA {spec.name}", vram_bytes=int(spec.vram_gib * GIB)) == spec
        assert 100 <= spec.memory_gb_per_s <= 10_000
        assert 3 <= spec.tflops <= 2000


def test_imagined_machines():
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=64, system="windows")
    assert (machine.system, machine.pinnable_bytes) == ("Windows", int(25.6 * GIB))
    assert machine.gpus[0].free_bytes < machine.gpus[0].vram_bytes == 24 * GIB
    assert imagined_hardware(gpu="RTX 4090", vram_gib=48).gpus[0].vram_bytes == 48 * GIB
    assert imagined_hardware(gpu="RTX 4060 Ti").gpus[0].pcie_gb_per_s == 12.5  # eight lanes
    assert imagined_hardware(gpu="none").gpus == ()


def test_this_machine_with_parts_exchanged():
    base = imagined_hardware(gpu="RTX 3060", ram_gib=16)
    assert imagine(base) is base
    with_card = imagine(base, gpu="RTX 4090", pcie_gb_per_s=20)
    assert (with_card.gpus[0].name, with_card.gpus[0].pcie_gb_per_s, with_card.ram_bytes) == (
        "RTX 4090",
        20,
        16 * GIB,
    )
    assert with_card.cpu_flags == base.cpu_flags
    more_ram = imagine(base, ram_gib=128)
    assert (more_ram.gpus[0].name, more_ram.ram_bytes) == ("RTX 3060", 128 * GIB)
    assert more_ram.ram_available_bytes > 120 * GIB
    assert imagine(base, system="windows").pinnable_bytes == int(6.4 * GIB)
    assert imagine(base, vram_gib=24).gpus[0].vram_bytes == 24 * GIB
    assert imagine(base, gpu="none").gpus == ()
    with pytest.raises(UserError, match="--gpu"):
        imagine(imagined_hardware(), vram_gib=24)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UserError, match="nearest name is RTX 5090"):
        imagined_hardware(gpu="RTX 5099")
    with pytest.raises(UserError, match="Linux, Windows or macOS"):
        imagined_hardware(system="BeOS")
