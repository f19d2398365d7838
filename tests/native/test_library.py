"""A library that was built for other Python code is refused in words; nothing of it is called."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess

import pytest

from resift.cli.doctor import check_engine
from resift.errors import ConfigError
from resift.models.onnx_bert import UnknownArchitectureError
from resift.models.session import NativeSession
from resift.native import library
from tools.native_build import FOLDER

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

INTERFACES = {1: "5903d9052a4ba72d", 2: "52c9007e9ee82426", 3: "4d9650bb4fa973e3", 4: "325257afb92aab70"}
"""The digest of what Python sees of the C code, by the number that stands for it."""

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.fixture
def use_library(monkeypatch, tmp_path):
    """Let a library with these lines of C stand where Resift's own stands."""

    def use(code: str) -> None:
        source, target = tmp_path / "stale.c", tmp_path / library.LIBRARY.name
        source.write_text(code)
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
        monkeypatch.setattr(library, "LIBRARY", target)
        library.usable_kernels.cache_clear()

    monkeypatch.delenv(library.SWITCH, raising=False)
    yield use
    monkeypatch.undo()
    library.usable_kernels.cache_clear()


NEVER = "#include <stdlib.h>\nconst char *resift_kernels(void) { abort(); }\n"


@needs_compiler
@pytest.mark.parametrize(
    ("code", "interface"), [(NEVER, 0), (NEVER + "int resift_interface(void) { return 99; }\n", 99)]
)
def test_a_library_of_another_version_is_refused_in_words(use_library, monkeypatch, code, interface):
    """Older ones have no number at all; newer ones have another."""
    use_library(code)
    kernel = library.native_kernel()
    assert kernel.name is None
    assert f"interface {interface}, but this Python code requires {library.INTERFACE}" in kernel.reason
    assert "pip install" in kernel.fix
    with pytest.raises(UnknownArchitectureError, match="pip install"):
        NativeSession(b"")
    finding = check_engine()
    assert (finding.state, finding.fix) == ("broken", kernel.fix)
    monkeypatch.setenv(library.SWITCH, "portable")
    with pytest.raises(ConfigError, match=r"has no effect.*other sources"):
        library.native_kernel()


def test_a_file_that_is_no_library_is_named(monkeypatch, tmp_path):
    broken = tmp_path / library.LIBRARY.name
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(library, "LIBRARY", broken)
    monkeypatch.delenv(library.SWITCH, raising=False)
    library.usable_kernels.cache_clear()
    try:
        kernel = library.native_kernel()
    finally:
        library.usable_kernels.cache_clear()
    assert kernel.name is None
    assert "does not load here" in kernel.reason
    assert kernel.fix


def test_the_interface_has_one_number_on_both_sides():
    header = (FOLDER / "processor.h").read_text()
    assert f"RESIFT_INTERFACE = {library.INTERFACE} " in header


def test_a_changed_interface_gets_a_new_number():
    """What ctypes relies on: structures, and the words from EXPORT to the body or semicolon."""
    seen = []
    for file in sorted([*FOLDER.glob("*.h"), *FOLDER.glob("*.c")]):
        code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL).replace("\\\n", "")
        seen += re.findall(r"EXPORT [^{;#]*\([^{;#]*\)[^{;#]*\)|EXPORT [^{;#]*\([^{;#]*\)", code)
        if file.name == "bert.h":
            seen += re.findall(r"typedef struct.*?\} \w+;", code, flags=re.DOTALL)
    digest = hashlib.sha256("\n".join(re.sub(r"\s+", " ", one) for one in seen).encode()).hexdigest()
    assert INTERFACES.get(library.INTERFACE) == digest[:16], (
        "The C interface changed: raise RESIFT_INTERFACE in processor.h and INTERFACE in library.py, "
        f"and put the new digest into INTERFACES: {digest[:16]!r}"
    )
