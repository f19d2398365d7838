"""Whether a shared library runs where its wheel says: its machine, an old glibc, no executable stack."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

GLIBC = (2, 17)
"""The oldest glibc that manylinux2014 promises."""

_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
_MACH_CPUS = {"x86_64": 0x01000007, "aarch64": 0x0100000C}
_PE_MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_LINUX_LIBRARIES = frozenset({"libc.so.6", "libm.so.6"})
_SYMBOLS = ("resift_interface", "resift_kernels", "bert_forward_portable", "code_distances_portable")
_KERNEL_SYMBOLS = {
    "x86_64": ("bert_forward_avx2", "bert_forward_avx512", "code_distances_avx2", "code_distances_avx512"),
    "aarch64": ("bert_forward_neon", "bert_forward_i8mm", "code_distances_neon"),
}


class BinaryError(Exception):
    """A library that would not load, or not safely, where its wheel says it does."""


def check_library(path: Path, machine: str) -> None:
    """Raise BinaryError with the reason if the library must not be shipped."""
    data = path.read_bytes()
    if data[:4] == b"\x7fELF":
        _check_elf(path.name, data, machine)
    elif data[:4] == b"\xcf\xfa\xed\xfe":
        _check_mach(path.name, data, machine)
    elif data[:2] == b"MZ":
        _check_pe(path.name, data, machine)
    else:
        raise BinaryError(f"{path.name} is no shared library")
    for symbol in (*_SYMBOLS, *_KERNEL_SYMBOLS[machine]):
        if symbol.encode() not in data:
            raise BinaryError(f"{path.name} does not export {symbol}")


def _check_elf(name: str, data: bytes, machine: str) -> None:
    (found,) = struct.unpack_from("<H", data, 18)
    if found != _ELF_MACHINES[machine]:
        raise BinaryError(f"{name} is for machine {found}")
    stacks = [flags for kind, flags, _, _ in _segments(data) if kind == 0x6474E551]
    if not stacks or stacks[0] & 1:
        raise BinaryError(f"{name} asks for an executable stack")
    others = set(_needed(data)) - _LINUX_LIBRARIES
    if others:
        raise BinaryError(f"{name} needs {', '.join(sorted(others))}")
    for wanted in sorted(set(re.findall(rb"GLIBC_(\d+(?:\.\d+)+)", data))):
        if tuple(map(int, wanted.split(b"."))) > GLIBC:
            raise BinaryError(f"{name} needs glibc {wanted.decode()}, newer than {GLIBC[0]}.{GLIBC[1]}")


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, flags, offset and size of each program header."""
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, flags, start, _, _, length = struct.unpack_from("<IIQQQQ", data, offset + number * size)
        yield kind, flags, start, length


def _needed(data: bytes) -> Iterator[str]:
    """Yield the libraries that a library is linked with."""
    start, length = next((start, length) for kind, _, start, length in _segments(data) if kind == 2)
    entries = [struct.unpack_from("<QQ", data, at) for at in range(start, start + length, 16)]
    strings = next(value for tag, value in entries if tag == 5)  # an address, which is the offset in first segments
    for tag, value in entries:
        if tag == 1:
            yield data[strings + value : data.index(b"\0", strings + value)].decode()


def _check_mach(name: str, data: bytes, machine: str) -> None:
    (cpu,) = struct.unpack_from("<I", data, 4)
    if cpu != _MACH_CPUS[machine]:
        raise BinaryError(f"{name} is for processor {cpu:#x}")
    count, at, commands = struct.unpack_from("<I", data, 16)[0], 32, set()
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        commands.add(command)
        at += size
    if machine == "aarch64" and 0x1D not in commands:
        raise BinaryError(f"{name} is not signed, which ARM Macs refuse to load")


def _check_pe(name: str, data: bytes, machine: str) -> None:
    (header,) = struct.unpack_from("<I", data, 0x3C)
    (found,) = struct.unpack_from("<H", data, header + 4)
    if found != _PE_MACHINES[machine]:
        raise BinaryError(f"{name} is for machine {found:#x}")
