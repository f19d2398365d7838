"""Wheels of every platform hold their library and a true record; what would not run is refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import platform
import sys
import zipfile

import pytest

from resift.native.library import LIBRARY
from tools.binary_checks import BinaryError, check_library
from tools.wheels import PLATFORMS, write_wheel

linux_library = pytest.mark.skipif(
    not LIBRARY.exists() or sys.platform != "linux" or platform.machine() != "x86_64",
    reason="needs a library compiled for Linux on x86-64",
)


@pytest.fixture
def plain(tmp_path):
    """A wheel without compiled code."""
    path = tmp_path / "resift-9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("resift/__init__.py", "")
        archive.writestr("resift-9.9.dist-info/WHEEL", "Tag: py3-none-any")
        archive.writestr("resift-9.9.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_wheel_holds_its_library_and_lists_every_file(tmp_path, plain, name):
    library = tmp_path / "library"
    library.write_bytes(b"compiled")
    made = write_wheel(PLATFORMS[name], plain, library, tmp_path)
    again = write_wheel(PLATFORMS[name], plain, library, tmp_path).read_bytes()
    assert again == made.read_bytes()
    with zipfile.ZipFile(made) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    rows = list(csv.reader(files["resift-9.9.dist-info/RECORD"].decode().splitlines()))
    assert {row[0] for row in rows} == set(files)
    for path, digest, size in rows:
        if digest:
            found = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(files[path]))
    assert b"compiled" in files.values()
    assert all(
        f"Tag: py3-none-{tag}" in files["resift-9.9.dist-info/WHEEL"].decode() for tag in PLATFORMS[name].tag.split(".")
    )


def test_a_compiled_file_that_lies_in_the_package_is_refused(tmp_path, plain):
    """One of an older build, or of another platform, must not travel along."""
    with zipfile.ZipFile(plain, "a") as archive:
        archive.writestr("resift/models/native/old.so", "of another version")
    library = tmp_path / "library"
    library.write_bytes(b"compiled")
    with pytest.raises(BinaryError, match=r"old\.so"):
        write_wheel(PLATFORMS["linux-x86_64"], plain, library, tmp_path)


@linux_library
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"resift_kernels", b"resift_kernel_", "does not export"),
        (b"code_distances_avx2", b"code_distances_av_2", "does not export"),
        (b"GLIBC_2.2.5", b"GLIBC_2.99\0", "newer than"),
        (b"libc.so.6", b"libz.so.6", "needs libz"),
        (b"\x7fELF", b"\x7fELM", "no shared library"),
    ],
)
def test_a_library_that_would_not_run_is_refused(tmp_path, old, new, reason):
    changed = tmp_path / "changed.so"
    data = LIBRARY.read_bytes()
    assert old in data
    changed.write_bytes(data.replace(old, new))
    with pytest.raises(BinaryError, match=reason):
        check_library(changed, "x86_64")


@linux_library
@pytest.mark.slow
def test_an_executable_stack_is_refused(tmp_path):
    data = bytearray(LIBRARY.read_bytes())
    at = data.index((0x6474E551).to_bytes(4, "little"))
    data[at + 4] |= 1
    changed = tmp_path / "changed.so"
    changed.write_bytes(data)
    with pytest.raises(BinaryError, match="executable stack"):
        check_library(changed, "x86_64")
    with pytest.raises(BinaryError, match="for machine"):
        check_library(LIBRARY, "aarch64")
