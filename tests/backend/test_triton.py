"""The GPU's compiled kernel: its files, how they are loaded and launched, and that a card which cannot use
them is found out. That it is attention: test_decode_kernels.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from core.backend.base import ScoreRequest
from core.backend.cuda.triton import build, driver
from core.backend.cuda.triton.attention import _LEAST_TOKENS, MOST_ROWS, DecodeAttention, _chunks, _splits
from core.backend.cuda.triton.build import Variant, variants
from core.backend.cuda.triton.driver import CudaDriver, DriverError
from core.backend.cuda.triton.sizes import ARCHIVE, MOST_SPLITS, TILES
from core.backend.shared.compiled import HEAD_DIMS, ROW_TILES
from core.paths import ROOT
from core.planning.layout import CHUNK_RETRIEVAL
from tests.support.fake_driver import TRITON, Library, promise
from tests.support.reference import dense, material

CPU = torch.device("cpu")
VARIANTS = [pytest.param(one, id=one.name) for one in variants()]
CARDS = (80, 86, 89, 90, 120)
SHARED = 48 << 10  # bytes that a launch may have on every card without asking for more
NO_TRITON = f"no compiler: pip install triton=={build.COMPILER}"


def test_files_are_those_of_the_source():
    """A kernel changed without being built again would be tested by nobody."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        assert {one.name for one in variants()} == set(archive.namelist())
    assert {driver.read_kernel(one.name).source for one in variants()} == {build.source_digest()}


def test_the_planner_counts_the_tiles_that_are_compiled():
    """It knows no torch, and so not where their sizes are."""
    assert {dim: max(tiles.rows) for dim, tiles in TILES.items()} == ROW_TILES
    assert tuple(TILES) == HEAD_DIMS


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_file_says_how_it_is_launched(variant: Variant):
    """By its own PTX: threads, arguments, 16-bit tensor cores, cards and drivers that take it."""
    made = driver.read_kernel(variant.name)
    text = made.ptx.decode("ascii")
    assert made.entry == variant.function and int(re.search(r"\.reqntid (\d+)", text)[1]) == 32 * made.warps
    assert made.given < len(made.params) and set(made.params[made.given :]) == {"u64"}
    assert ".version 8.0\n" in text and ".target sm_80\n" in text
    assert made.shared_bytes <= SHARED
    parted = variant.function in ("compare_chunks", "take_chunks")  # fp32 as two bf16, whatever rows are
    number = "bf16" if "bf16" in variant.name or parted else "f16"
    products = {f"mma.sync.aligned.m16n8k16.row.col.f32.{number}.{number}.f32"}
    multiplies = parted or variant.function in ("attend_split", "multiply_codes")
    assert set(re.findall(r"mma\.sync[\w.]+", text)) == (products if multiplies else set())


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.values[0].constants.get("CODED")])
def test_codes_are_widened_once_in_a_program(variant: Variant):
    """Four warps that share a tile of keys widened all of it, each: more instructions than its products."""
    text = driver.read_kernel(variant.name).ptx.decode("ascii")
    codes = 2 * variant.constants["HEAD_DIM"] * variant.constants["TILE_N"]  # of keys and values
    widened = len(re.findall(r"cvt\.rn\.(?:f32\.s8|f16\.s16)", text))
    assert widened * 32 * variant.warps == codes


def archived(file: Path, name: str, text: bytes) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)


@pytest.mark.parametrize(
    "harm", [lambda raw: raw[:-20], lambda raw: raw.replace(b"f32", b"f64"), lambda raw: b""]
)
def test_a_damaged_kernel_is_not_loaded(tmp_path: Path, harm):
    """Half copied, or changed by somebody: said before the driver sees it."""
    name = next(variants()).name
    broken = tmp_path / "kernels.zip"
    with zipfile.ZipFile(ARCHIVE) as archive:
        archived(broken, name, harm(archive.read(name)))
    with pytest.raises(ValueError, match="damaged"):
        driver.read_kernel(name, broken)


@pytest.mark.parametrize(
    "harm",
    [
        lambda raw: raw[:-2000],
        lambda raw: raw.replace(b"PK", b"KP"),
        lambda raw: b"",
        lambda raw: raw[:400] + bytes(byte ^ 255 for byte in raw[400:420]) + raw[420:],
    ],
)
def test_no_kernel_comes_out_of_a_damaged_archive(tmp_path: Path, harm):
    broken = tmp_path / "kernels.zip"
    broken.write_bytes(harm(ARCHIVE.read_bytes()))
    with pytest.raises(ValueError, match="damaged"):
        driver.read_kernel(next(variants()).name, broken)


def test_the_drivers_refusal_comes_in_its_own_words():
    """An old driver knows no newer PTX; a card may be older than the kernels."""
    with pytest.raises(DriverError, match="unsupported toolchain"):
        made(Library(promise, refuses=["load"]))
    kernel, (q, k, v) = (
        made(Library(promise, refuses=["launch"])),
        material(1, 32, dim=64, dtype=torch.float16),
    )
    with pytest.raises(DriverError):
        kernel.attend_part(q, k, v, length=32, causal=True)


def made(library: Library, dtype: torch.dtype = torch.float16, dim: int = 64) -> DecodeAttention:
    return DecodeAttention(CudaDriver(library), CPU, dtype, dim, stream=lambda: 77)


def test_launches_go_to_the_stream_that_computes_and_are_two():
    """A kernel on another stream would overtake the rows it reads."""
    library = Library(promise)
    kernel, (q, k, v) = made(library), material(33, 300, heads=8, dim=64, dtype=torch.float16)
    total = kernel.attend_part(q, k, v, length=300, causal=True)
    kernel.attend_more(total, q, k, v, length=300)
    kernel.attend(q, k, v, length=300, causal=True)
    kernel.attend(q, k, v, length=300, causal=True, sums=ScoreRequest(8))
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"] * 4
    assert {stream for *_, stream in library.launched} == {77}


def test_a_launch_reuses_what_it_hands_over(monkeypatch: pytest.MonkeyPatch):
    """An array of 24 arguments made anew took longer than the launch itself."""
    library, places = Library(promise), []
    kernel, launch = made(library), library.cuLaunchKernel

    def launched(*given: object) -> int:
        places.append(given[-2])
        return launch(*given)

    monkeypatch.setattr(library, "cuLaunchKernel", launched)
    for length in (20, 60):
        q, k, v = material(2, length, dim=64, dtype=torch.float16)
        want, _ = dense(q, k, v, length, True)
        got = kernel.attend(q, k, v, length=length, causal=True)
        assert torch.allclose(got.double(), want, atol=5e-3)
    assert places[0] is places[2] and places[1] is places[3] and places[0] is not places[1]


def test_what_it_does_not_take():
    """Rows that are not read 16 bytes at a time, other numbers, more rows than a verification has."""
    kernel, (q, k, v) = made(Library(promise)), material(1, 64, dim=64, dtype=torch.float16)
    assert kernel.takes(q, k, v)
    many = q.expand(MOST_ROWS + 1, -1, -1)
    odd = torch.zeros(1 + k.numel(), dtype=torch.float16)[1:].view(k.shape)
    narrow = torch.zeros(*k.shape[:3], 65, dtype=torch.float16)[..., :64]
    assert not kernel.takes(many, k, v)
    assert not kernel.takes(q, odd, v) and not kernel.takes(q, k, narrow)
    assert not kernel.takes(q.bfloat16(), k.bfloat16(), v.bfloat16())
    assert not kernel.takes(q[..., :32], k[..., :32], v[..., :32])


@pytest.mark.parametrize(
    ("chunk", "blocks", "block_tokens", "chunks"),
    [(CHUNK_RETRIEVAL, 3, 512, 192), (16, 3, 48, 18), (16, 2, 40, 0), (4, 1, 64, 0), (12, 1, 48, 0)]
    + [(8, 1, 76, 10), (8, 2, 76, 0), (16, 1, 72, 0)],
)
def test_which_sums_of_chunks_are_left(chunk: int, blocks: int, block_tokens: int, chunks: int):
    """Those that a plan has by itself always; none that would lie across two blocks."""
    assert _chunks(chunk, blocks, block_tokens) == chunks
    kernel, sums = made(Library(promise)), ScoreRequest(chunk)
    q, k, v = material(2, 20, block=block_tokens, blocks=blocks, dim=64, dtype=torch.float16)
    kernel.attend(q, k, v, length=20, causal=True, sums=sums)
    assert (sums.found is None) == (chunks == 0)
    assert sums.found is None or sums.found.shape == (q.shape[1], chunks * 8 // chunk)


@pytest.mark.parametrize("block_tokens", [32, 40, 512, 1000, 4096, 131_072, 131_104])
@pytest.mark.parametrize("blocks", [1, 3, 64, 300])
def test_splits_cover_the_blocks_and_are_not_too_many(blocks: int, block_tokens: int):
    """`join_splits` takes so many at once; what they are of must not depend on the rows of a pass. A cache
    that is a little longer than a power of two must not leave half of the card's multiprocessors idle.
    """
    for tokens in {one.tokens for one in TILES.values()}:
        tiles, each, splits = _splits(blocks, block_tokens, tokens)
        assert 1 <= splits <= MOST_SPLITS and (splits - 1) * each < tiles <= splits * each
        assert splits > MOST_SPLITS // 2 or each == _LEAST_TOKENS // tokens


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason=NO_TRITON)
def test_files_are_what_the_source_builds(tmp_path: Path):
    """To the byte; compiled code in a repository is to be believed only as far as it can be made again."""
    run(["-m", "core.backend.cuda.triton.build", "--out", str(tmp_path / "made.zip")])
    with zipfile.ZipFile(tmp_path / "made.zip") as made, zipfile.ZipFile(ARCHIVE) as shipped:
        for variant in variants():
            assert made.read(variant.name) == shipped.read(variant.name), variant.name


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason=NO_TRITON)
@pytest.mark.parametrize("card", CARDS)
def test_every_card_that_is_served_has_room(card: int, tmp_path: Path):
    """The machine code that a card's driver would make: no register spilled."""
    import triton

    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    for variant in variants():
        source = tmp_path / "kernel.ptx"
        source.write_bytes(driver.read_kernel(variant.name).ptx)
        said = subprocess.run(
            [assembler, "--verbose", f"--gpu-name=sm_{card}", source, "-o", tmp_path / "out"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        assert "0 bytes spill stores, 0 bytes spill loads" in said, f"{variant.name}: {said}"


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason=NO_TRITON)
def test_a_warp_holds_whole_rows_in_tiles_of_every_height():
    """What gives a row among many the bits it has alone: the same sums in the same order."""
    code = (
        "from core.backend.cuda.triton.build import make, variants\n"
        "for one in variants():\n"
        "    if one.function == 'attend_split' and 'bf16' in one.name:\n"
        "        text = make(one).asm['ttgir']\n"
        "        layouts = [line for line in text.splitlines() if line.startswith('#mma = ')]\n"
        "        print(one.warps, one.constants['HEAD_DIM'], layouts)\n"
    )
    for line in run(["-c", code]).splitlines():
        warps, dim, _ = line.split(" ", 2)
        shared = TILES[int(dim)].warps is not None  # a row among its warps, in tiles of one height alone
        assert f"warpsPerCTA = [{f'1, {warps}' if shared else f'{warps}, 1'}]" in line
        assert line.count("warpsPerCTA") == 1 and (not shared or len({*TILES[int(dim)].rows}) == 1)


def run(arguments: list[str]) -> str:
    """Python with a Triton that compiles: in this process it interprets."""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], env=plain, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
