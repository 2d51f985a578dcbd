"""Builds attention.c, products.c, layers.c and delta.c for every system, on any of them.

    pip install ziglang==0.15.1
    python -m core.backend.cpu.native.build [--out FOLDER] [attention] [products] [layers] [delta]

The compiler is a clang that knows all systems (https://pypi.org/project/ziglang); with the pinned version
the libraries come out the same to the byte wherever they are built. Each carries the SHA-256 of its source,
by which a test tells that the two belong together.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCES = ("attention", "products", "layers", "delta")
COMPILER = "0.15.1"
# instruction set -> lanes of a register, the CPU it needs
_SETS = {
    "x86_64": {"avx512": (16, "x86_64_v4"), "avx2": (8, "x86_64_v3")},
    "aarch64": {"neon": (4, "generic")},
}
# the same of attention.c
_DOTS = _SETS | {
    "x86_64": {
        "avx512vnni": (16, "x86_64_v4+avx512vnni"),
        "avxvnni": (8, "x86_64_v3+avxvnni"),
        "avx2": (8, "x86_64_v3"),
    }
}
# end of the file's name -> (target, machine)
_SYSTEMS = {
    "linux-x86_64.so": ("x86_64-linux-gnu.2.17", "x86_64"),
    "linux-aarch64.so": ("aarch64-linux-gnu.2.17", "aarch64"),
    "windows-x86_64.dll": ("x86_64-windows-gnu", "x86_64"),
    "darwin-aarch64.dylib": ("aarch64-macos.12.0", "aarch64"),
}
LIBRARIES = {f"{source}-{system}": (source, system) for source in SOURCES for system in _SYSTEMS}
_FLAGS = ["-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-fno-ident", "-Wall", "-Wextra", "-Werror"]


def c_source_digest(source: str) -> str:
    """SHA-256 of a C source and of what it includes, directly, in hexadecimal."""
    text = (FOLDER / f"{source}.c").read_bytes()
    included = re.findall(rb'^#include "(.+)"', text, re.MULTILINE)
    read = b"".join((FOLDER / name.decode()).read_bytes() for name in included)
    return hashlib.sha256(read + text).hexdigest()


def build_libraries(out: Path, sources: Collection[str] = SOURCES) -> None:
    """All libraries of `sources` into `out`. Raises CalledProcessError with the compiler's words on
    stderr.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for name, (source, system) in LIBRARIES.items():
            if source not in sources:
                continue
            target, machine = _SYSTEMS[system]
            sets = (_DOTS if source == "attention" else _SETS)[machine]
            objects = []
            for instructions, (lanes, cpu) in sets.items():
                objects.append(str(Path(scratch) / f"{instructions}.o"))
                defines = [f"-DWIDTH={lanes}", f"-DISA={instructions}"]
                if len(objects) == 1:
                    defines.append(f'-DSOURCE="{c_source_digest(source)}"')
                _compile(target, f"-mcpu={cpu}", *_FLAGS, *defines, "-c", f"{source}.c", "-o", objects[-1])
            # the name inside a dylib would otherwise be the path of this build
            named = [f"-Wl,-install_name,@rpath/{source}.dylib"] if name.endswith(".dylib") else []
            _compile(target, "-shared", "-s", *named, *objects, "-o", str(out / name))
            if name.endswith(".dll"):
                _undate(out / name)
    for left in (*out.glob("*.pdb"), *out.glob("*.lib")):
        left.unlink()


def _compile(target: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *arguments]
    subprocess.run(command, check=True, cwd=FOLDER)


def _undate(library: Path) -> None:
    """Zero the moment of the build in a Windows library's header: IMAGE_FILE_HEADER.TimeDateStamp."""
    content = bytearray(library.read_bytes())
    header = int.from_bytes(content[0x3C:0x40], "little")
    content[header + 8 : header + 12] = bytes(4)
    library.write_bytes(content)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("sources", nargs="*", default=SOURCES, help="default: all")
    options = parser.parse_args()
    build_libraries(options.out, options.sources)


if __name__ == "__main__":
    main()
