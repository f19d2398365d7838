"""The C code compiles without a warning, stays within its memory, and all kernels return the same bits."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from resift.native.library import native_kernel
from tools.native_build import FLAGS, FOLDER, CompileError, compile_objects, run
from tools.wheels import zig

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
PROGRAM = Path(__file__).parent / "kernel_check.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
KERNELS = ("portable", "avx2", "avx512", "neon", "i8mm")
ARM_LENGTHS = 40

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def linked(folder: Path, compiler: list[str], machine: str, *flags: str) -> Path:
    """Compile the library's files and the checking program into one program."""
    target = folder / "program"
    objects = compile_objects(compiler, machine, folder, flags=(*FLAGS, *flags))
    run(
        [*compiler, *FLAGS, *flags, f"-I{FOLDER}", "-o", str(target), str(PROGRAM), *map(str, objects), "-lm"]
    )
    return target


def answer(command: list[str], kernel: str, tokens: int) -> str:
    """Return what the program prints; skip a kernel that this processor cannot run."""
    done = subprocess.run([*command, kernel, str(tokens)], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        pytest.skip(f"this processor does not run {kernel}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return linked(tmp_path_factory.mktemp("plain"), [str(COMPILER)], platform.machine(), *WARNINGS)


@pytest.fixture(scope="module")
def watched_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    try:
        return linked(folder, [str(COMPILER)], platform.machine(), *SANITIZERS)
    except CompileError as exc:
        if "asan" in str(exc) or "sanitize" in str(exc):
            pytest.skip("this compiler has no sanitizers")
        raise


@pytest.fixture(scope="module")
def arm_program(tmp_path_factory):
    """The ARM kernels, cross-compiled and linked statically, under an emulator."""
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("no qemu-aarch64: install Debian's qemu-user")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no cross compiler: pip install ziglang")
    folder = tmp_path_factory.mktemp("arm")
    return [
        emulator,
        "-cpu",
        "max",
        str(linked(folder, zig("aarch64-linux-musl"), "aarch64", "-static", "-O1")),
    ]


@needs_compiler
@pytest.mark.parametrize("kernel", ["neon", "i8mm", "portable"])
def test_arm_kernels_return_the_oracles_bits(program, arm_program, kernel):
    assert answer(arm_program, kernel, ARM_LENGTHS) == answer([str(program)], "portable", ARM_LENGTHS)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS[1:])
def test_each_kernel_returns_the_oracles_bits(program, kernel):
    """Random weights, every length to 70 and some to 200, both layer norms, states and classes."""
    assert answer([str(program)], kernel, 200) == answer([str(program)], "portable", 200)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_stays_within_its_memory(watched_program, kernel, monkeypatch):
    """Buffers of exactly the size that was asked for, under AddressSanitizer and UBSan."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    assert answer([str(watched_program)], kernel, 80 if kernel == "portable" else 200)


def test_the_library_holds_all_kernels_of_this_processor():
    kernel = native_kernel()
    if kernel.library is None:
        pytest.skip(kernel.reason)
    able = kernel.library.resift_kernels().decode().split()
    assert [name for name in able if not hasattr(kernel.library, f"bert_forward_{name}")] == []
