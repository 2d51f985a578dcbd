"""Which build of torch: a table over drivers and GPUs."""

from __future__ import annotations

import pytest

from installer.torch_build import NvidiaDriver, choose_build, parse_nvidia_smi


@pytest.mark.parametrize(
    ("driver", "system", "build"),
    [
        (None, "linux", "cpu"),
        (None, "win32", "cpu"),
        (NvidiaDriver((580, 65, 6), (8, 9)), "linux", "cu130"),  # RTX 4090, newest driver
        (NvidiaDriver((580, 65, 6), (12, 0)), "linux", "cu130"),  # RTX 5090
        (NvidiaDriver((581, 15), (7, 5)), "win32", "cu130"),  # RTX 2080
        (NvidiaDriver((580, 65, 6), (6, 1)), "linux", "cu126"),  # GTX 1080: cu130 has no code for it
        (NvidiaDriver((580, 65, 6), (7, 0)), "linux", "cu126"),
        # RTX 5090, older driver: cu126 has no code for it
        (NvidiaDriver((570, 124), (12, 0)), "linux", "cu128"),
        (NvidiaDriver((570, 124), (8, 9)), "linux", "cu126"),
        (NvidiaDriver((550, 54), (8, 6)), "win32", "cu126"),
        (NvidiaDriver((525, 60, 13), (8, 6)), "linux", "cu126"),  # the oldest driver for CUDA 12
        (NvidiaDriver((525, 60, 13), (8, 6)), "win32", "cpu"),  # Windows wants 528.33
        (NvidiaDriver((528, 33), (8, 6)), "win32", "cu126"),
        (NvidiaDriver((470, 256), (8, 6)), "linux", "cpu"),
        (NvidiaDriver((580, 65), (0, 0)), "linux", "cu130"),  # capability unknown
        (NvidiaDriver((580, 65), (8, 9)), "darwin", "cpu"),
    ],
)
def test_the_build_follows_driver_and_gpu(driver: NvidiaDriver | None, system: str, build: str):
    """A build newer than the driver, or without code for the GPU, fails only when the model runs."""
    assert choose_build(driver, system=system).name == build


def test_an_old_driver_is_told_how_to_get_the_gpu_used():
    """Falling back to the CPU in silence would look like a slow program."""
    assert "update it" in choose_build(NvidiaDriver((470, 256), (8, 6)), system="linux").note


def test_the_users_choice_wins_and_a_typo_is_refused():
    """The way out where detection is wrong."""
    assert choose_build(None, system="linux", override="cu128").name == "cu128"
    with pytest.raises(ValueError, match="cu126"):
        choose_build(None, system="linux", override="cuda12")


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("580.65.06, 8.9\n", NvidiaDriver((580, 65, 6), (8, 9))),
        ("570.124.04, 12.0\n570.124.04, 6.1\n", NvidiaDriver((570, 124, 4), (6, 1))),  # the weakest counts
        ("550.54\n", NvidiaDriver((550, 54), (0, 0))),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("", None),
    ],
)
def test_nvidia_smi_is_read(text: str, driver: NvidiaDriver | None):
    """Its failure text must not be taken for a version."""
    assert parse_nvidia_smi(text) == driver
