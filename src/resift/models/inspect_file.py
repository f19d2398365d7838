"""Whether a file's bytes are what its name says and hold nothing that could run; chooses the inspector."""

from __future__ import annotations

from pathlib import PurePosixPath

from resift.errors import ModelFileError
from resift.models.json_inspect import inspect_json
from resift.models.onnx_inspect import inspect_onnx
from resift.models.safetensors_inspect import inspect_safetensors

_DISGUISES = (
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"PK\x03\x04", "a zip archive (PyTorch checkpoints are zipped pickles)"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a numpy file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"#!", "a script"),
    (b"version https://git-lfs", "a git-lfs pointer: fetch the file itself"),
)


def inspect_file(name: str, data: bytes) -> None:
    """Raise `ModelFileError` with the reason if the bytes must not be loaded under that name."""
    for magic, what in _DISGUISES:
        if data.startswith(magic):
            raise ModelFileError(f"{name!r} is {what}, whatever its name says. It is never loaded.")
    if data[4:8] == b"ORTM":
        raise ModelFileError(
            f"{name!r} is in the runtime's own format, which cannot be inspected. Give the ONNX file."
        )
    if data[257:262] == b"ustar":
        raise ModelFileError(f"{name!r} is a tar archive, whatever its name says. It is never loaded.")
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".onnx":
        inspect_onnx(name, data)
    elif suffix == ".safetensors":
        inspect_safetensors(name, data)
    elif suffix == ".json":
        inspect_json(name, data)
    elif suffix == ".txt":
        _inspect_text(name, data)
    else:
        raise ModelFileError(f"{name!r} is of a kind that is never loaded.")


def _inspect_text(name: str, data: bytes) -> None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ModelFileError(f"{name!r} is not UTF-8 text.") from exc
    if "\0" in text:
        raise ModelFileError(f"{name!r} holds NUL bytes, so it is not text.")
