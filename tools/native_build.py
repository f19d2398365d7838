"""How the C files of `src/resift/native` become one library: for the build hook, the wheels and the tests.

To add a C file, name it in `SOURCES` with the flags of its processor. Each file is compiled by itself:
only a kernel may use its processor's instructions: what decides whether to call it must run everywhere.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "resift" / "native"

_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx2", "fma")

SOURCES: dict[str, dict[str, Sequence[str]]] = {
    "any": {"processor.c": (), "bert_portable.c": (), "codes_portable.c": ()},
    "x86_64": {
        "bert_avx2.c": ("-mavx2", "-mfma"),
        "codes_avx2.c": ("-mavx2",),
        "codes_avx512.c": tuple(f"-m{feature}" for feature in _AVX512),
        "bert_avx512.c": tuple(f"-m{feature}" for feature in _AVX512),
    },
    "aarch64": {
        "bert_neon.c": ("-mcpu=generic+dotprod",),
        "bert_i8mm.c": ("-mcpu=generic+dotprod+i8mm",),
        "codes_neon.c": (),
    },
}
"""The C files of each processor architecture and the flags of each."""

FLAGS = (
    "-std=c11",
    "-O3",
    "-fvisibility=hidden",
    # Contraction would fuse products and sums that the definition rounds one by one.
    "-ffp-contract=off",
    "-fno-math-errno",
)

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


class CompileError(Exception):
    """The compiler refused a file; the message is its own."""


def library_name(system: str = sys.platform) -> str:
    """Return the name of the shared library on a system as `sys.platform` spells it."""
    return {"win32": "resift.dll", "darwin": "libresift.dylib"}.get(system, "libresift.so")


def sources(machine: str) -> dict[Path, Sequence[str]]:
    """Return the C files for a processor as `platform.machine` spells it, with their flags."""
    named = SOURCES["any"] | SOURCES.get(_ARCHITECTURES.get(machine.lower(), ""), {})
    return {FOLDER / name: flags for name, flags in named.items()}


def compile_objects(compiler: Sequence[str], machine: str, folder: Path, *, flags: Sequence[str] = FLAGS) -> list[Path]:
    """Compile every C file for a processor into a folder and return the object files."""
    objects = []
    for source, own in sources(machine).items():
        target = folder / f"{source.stem}.o"
        run([*compiler, *flags, *own, "-c", "-o", str(target), str(source)])
        objects.append(target)
    return objects


def build_library(
    compiler: Sequence[str], machine: str, target: Path, *, system: str = sys.platform, extra: Sequence[str] = ()
) -> None:
    """Compile and link the shared library; CompileError carries the compiler's own words."""
    position = () if system == "win32" else ("-fPIC",)
    libraries = () if system == "win32" else ("-lm",)
    with tempfile.TemporaryDirectory() as folder:
        objects = compile_objects(compiler, machine, Path(folder), flags=(*FLAGS, *position, *extra))
        run([*compiler, *extra, "-shared", "-o", str(target), *map(str, objects), *libraries])


def run(command: Sequence[str]) -> None:
    """Run a compiler and raise CompileError with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
    if done.returncode != 0:
        raise CompileError(done.stderr.strip()[:2000])
