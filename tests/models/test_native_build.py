"""The C code compiles without a warning, stays within its memory, and all kernels return the same bits."""

from __future__ import annotations

import functools
import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resift.native.library import native_kernel
from tools.native_build import FLAGS, FOLDER, CompileError, compile_objects, library_name, run, sources
from tools.wheels import zig

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
PROGRAM = Path(__file__).parent / "kernel_check.c"
TRANSFORMER_PROGRAM = Path(__file__).parent / "transformer_check.c"
STORE_PROGRAM = Path(__file__).parent / "memory_check.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
KERNELS = ("portable", "avx2", "avx512", "neon", "i8mm")
LENGTHS = {PROGRAM: 200, TRANSFORMER_PROGRAM: 135}
# Some more than the 48 rows that attention takes at a time; for a transformer also more than a window.
SHORT_LENGTHS = {PROGRAM: 50, TRANSFORMER_PROGRAM: 62}

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def linked(folder: Path, compiler: list[str], machine: str, *flags: str, programs=(PROGRAM,)) -> list[Path]:
    """Compile the library's files once, and each checking program with them."""
    objects = compile_objects(compiler, machine, folder, flags=(*FLAGS, *flags))
    targets = [folder / program.stem for program in programs]
    for program, target in zip(programs, targets, strict=True):
        sources = [str(program), *map(str, objects)]
        run([*compiler, *FLAGS, *flags, f"-I{FOLDER}", "-o", str(target), *sources, "-lm"])
    return targets


@functools.cache
def answer(command: tuple[str, ...], kernel: str, count: int) -> str:
    """Return what the program prints; skip a kernel that this processor cannot run."""
    done = subprocess.run([*command, kernel, str(count)], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(f"this processor does not run {kernel}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs that run a whole pass, by the name of their file, with the installed library."""
    both = (PROGRAM, TRANSFORMER_PROGRAM)
    folder, library = tmp_path_factory.mktemp("plain"), FOLDER / library_name()
    changed_at = max(path.stat().st_mtime for path in FOLDER.glob("*.[ch]"))
    if sys.platform != "linux" or not library.exists() or library.stat().st_mtime < changed_at:
        made = linked(folder, [str(COMPILER)], platform.machine(), *WARNINGS, programs=both)
        return dict(zip(both, made, strict=True))
    for program in both:
        options = [*FLAGS, *WARNINGS, f"-I{FOLDER}", f"-Wl,-rpath,{FOLDER}"]
        run([str(COMPILER), *options, "-o", str(folder / program.stem), str(program), str(library), "-lm"])
    return {program: folder / program.stem for program in both}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """All checking programs under AddressSanitizer and UBSan, by the name of their file."""
    folder, all_programs = tmp_path_factory.mktemp("watched"), (PROGRAM, TRANSFORMER_PROGRAM, STORE_PROGRAM)
    try:
        made = linked(folder, [str(COMPILER)], platform.machine(), *SANITIZERS, programs=all_programs)
        return dict(zip(all_programs, made, strict=True))
    except CompileError as exc:
        if "asan" in str(exc) or "sanitize" in str(exc):
            pytest.skip("this compiler has no sanitizers")
        raise


@pytest.fixture(scope="module")
def arm_programs(tmp_path_factory):
    """The ARM kernels, cross-compiled and linked statically, under an emulator."""
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("no qemu-aarch64: install Debian's qemu-user")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no cross compiler: pip install ziglang")
    folder = tmp_path_factory.mktemp("arm")
    both = (PROGRAM, TRANSFORMER_PROGRAM)
    made = linked(folder, zig("aarch64-linux-musl"), "aarch64", "-static", "-O1", programs=both)
    return {source: (emulator, "-cpu", "max", str(program)) for source, program in zip(both, made, strict=True)}


@needs_compiler
@pytest.mark.hardening
@pytest.mark.parametrize("source", [PROGRAM, TRANSFORMER_PROGRAM], ids=lambda path: path.stem)
@pytest.mark.parametrize("kernel", ["neon", "i8mm", "portable"])
def test_arm_kernels_return_the_oracles_bits(programs, arm_programs, kernel, source):
    oracle = answer((str(programs[source]),), "portable", SHORT_LENGTHS[source])
    assert answer(arm_programs[source], kernel, SHORT_LENGTHS[source]) == oracle


@needs_compiler
@pytest.mark.parametrize("only", ["-fsyntax-only", pytest.param("-S", marks=pytest.mark.hardening)])
def test_the_code_compiles_without_a_warning(tmp_path, only):
    """Some warnings come from the optimizer, which takes 15 seconds."""
    for file, flags in sources(platform.machine()).items():
        run([str(COMPILER), *FLAGS, *WARNINGS, *flags, only, str(file), "-o", str(tmp_path / file.stem)])


@needs_compiler
@pytest.mark.parametrize("source", [PROGRAM, TRANSFORMER_PROGRAM], ids=lambda path: path.stem)
@pytest.mark.parametrize("kernel", KERNELS[1:])
@pytest.mark.parametrize(
    "lengths", [pytest.param(SHORT_LENGTHS, id="short"), pytest.param(LENGTHS, id="all", marks=pytest.mark.hardening)]
)
def test_each_kernel_returns_the_oracles_bits(programs, lengths, kernel, source):
    """Random weights, many lengths, norms before and after each block, states and classes."""
    program = (str(programs[source]),)
    assert answer(program, kernel, lengths[source]) == answer(program, "portable", lengths[source])


@needs_compiler
@pytest.mark.hardening
@pytest.mark.parametrize("source", [PROGRAM, TRANSFORMER_PROGRAM], ids=lambda path: path.stem)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_stays_within_its_memory(watched, kernel, source, monkeypatch):
    """Buffers of exactly the size that was asked for, under AddressSanitizer and UBSan."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    assert answer((str(watched[source]),), kernel, 80 if kernel == "portable" else LENGTHS[source])


@needs_compiler
@pytest.mark.hardening
@pytest.mark.parametrize("kernel", ["portable", "avx2", "avx512", "neon"])
def test_bit_code_distances_stay_within_their_memory(watched, kernel, monkeypatch):
    """Every kernel gives the distances of the portable one."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    program = (str(watched[STORE_PROGRAM]),)
    assert answer(program, kernel, 0) == answer(program, "portable", 0)


@needs_compiler
def test_portable_bit_code_distances_stay_within_their_memory(tmp_path, monkeypatch):
    """A small sanitizer case: without the forward pass the library compiles in two seconds."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    program, objects = tmp_path / "program", []
    options = [*FLAGS, *SANITIZERS, f"-I{FOLDER}"]
    try:
        for file, flags in sources(platform.machine()).items():
            if not file.name.startswith("bert_"):
                objects.append(str(tmp_path / f"{file.stem}.o"))
                run([str(COMPILER), *options, *flags, "-c", str(file), "-o", objects[-1]])
        run([str(COMPILER), *options, str(STORE_PROGRAM), *objects, "-o", str(program), "-lm"])
    except CompileError as exc:
        if "asan" in str(exc) or "sanitize" in str(exc):
            pytest.skip("this compiler has no sanitizers")
        raise
    assert answer((str(program),), "portable", 0)


def test_the_library_holds_all_kernels_of_this_processor():
    kernel = native_kernel()
    if kernel.library is None:
        pytest.skip(kernel.reason)
    able = kernel.library.resift_kernels().decode().split()
    assert [name for name in able if not hasattr(kernel.library, f"bert_forward_{name}")] == []
