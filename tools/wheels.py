"""`python -m tools.wheels` builds a wheel for each platform from any machine, and checks what is in it.

The compiler is `ziglang` from the package index, which brings every platform's headers. Each wheel holds all
kernels of its platform in one library that any Python loads by ctypes, so a wheel is of a platform, not of a
version of Python.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.binary_checks import BinaryError, check_library
from tools.native_build import build_library, library_name

ROOT = Path(__file__).resolve().parent.parent
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a wheel: the same sources give the same bytes."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that gets a wheel."""

    machine: str
    system: str
    target: str
    tag: str


PLATFORMS = {
    "linux-x86_64": Platform("x86_64", "linux", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
    "linux-aarch64": Platform(
        "aarch64", "linux", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64"
    ),
    "macos-arm64": Platform("aarch64", "darwin", "aarch64-macos.11.0", "macosx_11_0_arm64"),
    "macos-x86_64": Platform("x86_64", "darwin", "x86_64-macos.10.15", "macosx_10_15_x86_64"),
    "windows-x86_64": Platform("x86_64", "win32", "x86_64-windows-gnu", "win_amd64"),
}


def zig(target: str) -> list[str]:
    """Return the command of the C compiler for a target."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def build_wheel(platform: Platform, plain: Path, folder: Path) -> Path:
    """Compile the library of one platform, check it, and write the platform's wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / library_name(platform.system)
        stripped = ("-s",) if platform.system != "darwin" else ()
        build_library(zig(platform.target), platform.machine, library, system=platform.system, extra=stripped)
        check_library(library, platform.machine)
        return write_wheel(platform, plain, library, folder)


def write_wheel(platform: Platform, plain: Path, library: Path, folder: Path) -> Path:
    """Write the wheel of a platform from the wheel without compiled code and the platform's library."""
    name, version, *_ = plain.name.split("-")
    target = folder / f"{name}-{version}-py3-none-{platform.tag}.whl"
    files = _read(plain)
    strays = sorted(name for name in files if name.endswith((".so", ".dylib", ".dll", ".pyd", ".o")))
    if strays:
        raise BinaryError(f"compiled files that were not built here lie in the package: {', '.join(strays)}")
    files[f"resift/native/{library_name(platform.system)}"] = library.read_bytes()
    info = f"{name}-{version}.dist-info"
    files[f"{info}/WHEEL"] = _wheel_file(platform.tag)
    _write(target, files, record=f"{info}/RECORD")
    return target


def plain_wheel(folder: Path) -> Path:
    """Build the wheel without compiled code."""
    # In an environment of its own, which pip makes: the build backend is no requirement of developers.
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, env={**os.environ, "RESIFT_COMPILE": "0"})  # noqa: S603
    return next(folder.glob("resift-*-py3-none-any.whl"))


def _read(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def _wheel_file(tags: str) -> bytes:
    lines = ["Wheel-Version: 1.0", "Generator: resift tools.wheels", "Root-Is-Purelib: false"]
    lines += [f"Tag: py3-none-{tag}" for tag in tags.split(".")]
    return ("\n".join(lines) + "\n").encode()


def _write(target: Path, files: dict[str, bytes], *, record: str) -> None:
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in sorted(files.items())]
    listed = {**files, record: ("\n".join([*rows, f"{record},,"]) + "\n").encode()}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(listed, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, listed[name])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(words: Sequence[str] | None = None) -> int:
    """Build the wheels that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=__doc__)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"of {', '.join(PLATFORMS)} (all)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="folder of the wheels (dist)")
    options = parser.parse_args(words)
    unknown = sorted(set(options.platforms) - PLATFORMS.keys())
    if unknown:
        parser.error(f"unknown platform {unknown[0]!r}; known: {', '.join(PLATFORMS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = plain_wheel(Path(folder))
        for name in options.platforms or PLATFORMS:
            wheel = build_wheel(PLATFORMS[name], plain, options.output)
            sys.stdout.write(f"{wheel.name}  {wheel.stat().st_size / 1e6:.2f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
