"""Hostile model folders are refused with a reason: no crash, nothing imported, nothing loaded."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError, ModelFileError, ModelNotAllowedError
from resift.models import inspection, onnx_reader, registry
from resift.models.inspection import inspect_file
from resift.models.local_models import allow_local, write_manifest
from resift.models.locate import resolve
from resift.models.onnx_reader import inspect_onnx
from resift.models.registry import disallow_local
from tests.models import hostile_files as make


@pytest.fixture(autouse=True)
def nothing_stays_allowed():
    yield
    for files in registry.allowed_folders():
        disallow_local(files.spec.id)


def refused(name: str, data: bytes) -> str:
    with pytest.raises(ModelFileError) as caught:
        inspect_file(name, data)
    return str(caught.value)


def wrap_as_initializer(tensor: bytes) -> bytes:
    return make.model(make.graph(initializers=(tensor,)))


def wrap_as_attribute(tensor: bytes, *, field: int = 5) -> bytes:
    return make.model(make.graph(nodes=(make.node(attributes=make.part(5, make.part(field, tensor))),)))


def wrap_in_subgraph(tensor: bytes, *, field: int = 6) -> bytes:
    inner = make.graph(initializers=(tensor,))
    return make.model(make.graph(nodes=(make.node("If", attributes=make.part(5, make.part(field, inner))),)))


def wrap_as_sparse(tensor: bytes, *, field: int = 1) -> bytes:
    return make.model(make.graph(more=make.part(15, make.part(field, tensor))))


def wrap_as_sparse_attribute(tensor: bytes, *, field: int = 22) -> bytes:
    sparse = make.part(1, tensor)
    return make.model(make.graph(nodes=(make.node(attributes=make.part(5, make.part(field, sparse))),)))


def wrap_in_function(tensor: bytes) -> bytes:
    inner = make.node("Constant", attributes=make.part(5, make.part(5, tensor)))
    return make.model(more=make.part(25, make.part(1, "f") + make.part(7, inner)))


def wrap_in_training(tensor: bytes) -> bytes:
    return make.model(more=make.part(20, make.part(2, make.graph(initializers=(tensor,)))))


HIDING_PLACES = {
    "initializer": wrap_as_initializer,
    "attribute t": wrap_as_attribute,
    "attribute tensors": lambda t: wrap_as_attribute(t, field=10),
    "subgraph": wrap_in_subgraph,
    "subgraphs": lambda t: wrap_in_subgraph(t, field=11),
    "sparse values": wrap_as_sparse,
    "sparse indices": lambda t: wrap_as_sparse(t, field=2),
    "sparse attribute": wrap_as_sparse_attribute,
    "sparse attributes": lambda t: wrap_as_sparse_attribute(t, field=23),
    "function": wrap_in_function,
    "training": wrap_in_training,
}


@pytest.mark.parametrize("place", HIDING_PLACES)
@pytest.mark.parametrize(
    "location", ["../../etc/passwd", "/etc/passwd", "weights.bin", "*/_ORT_MEM_ADDR_/*", "..\\x", ""]
)
def test_external_data_is_refused_wherever_it_hides(place, location):
    """A tensor that points at another file is refused in every place a tensor can be."""
    assert "another file" in refused("model.onnx", HIDING_PLACES[place](make.external(location)))


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_a_plain_tensor_passes_in_the_same_places(place):
    """The refusals above come from the external data, not from the place."""
    inspect_file("model.onnx", HIDING_PLACES[place](make.tensor(make.floats(1, 2), dims=(2,))))


def test_the_location_flag_alone_is_refused():
    """A tensor that says EXTERNAL without entries is refused too."""
    refused("model.onnx", wrap_as_initializer(make.tensor(dims=(1,), more=make.number(14, 1))))


@pytest.mark.parametrize("place", HIDING_PLACES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused(place, bad):
    """NaN and infinities are refused in raw float32 data."""
    poisoned = make.tensor(make.floats(1, bad), dims=(2,))
    assert "NaN or an infinite" in refused("model.onnx", HIDING_PLACES[place](poisoned))


@pytest.mark.parametrize(
    "poisoned",
    [
        make.tensor(b"\x00\x3c\x00\x7e", dims=(2,), data_type=make.FLOAT16),
        make.tensor(b"\x80\x3f\xc0\x7f", dims=(2,), data_type=make.BFLOAT16),
        make.tensor(dims=(2,), more=make.part(4, make.floats(1, float("nan")))),
        make.tensor(dims=(1,), more=make.varint(4 << 3 | 5) + make.floats(float("nan"))),
        make.tensor(dims=(2,), data_type=make.FLOAT16, more=make.part(5, make.varint(0x3C00) + make.varint(0x7E00))),
        make.tensor(b"\x00" * 8 + b"\x00" * 6 + b"\xf8\x7f", dims=(2,), data_type=11),
        make.tensor(make.floats(float("nan")), dims=()),
        make.tensor(make.floats(float("inf")), dims=()),
    ],
    ids=["f16", "bf16", "float_data", "unpacked", "f16 bits", "f64", "scalar scale", "infinite scale"],
)
def test_nan_is_found_in_every_encoding(poisoned):
    """Half floats, bfloat16, doubles, typed fields and scalar scales are all scanned."""
    assert "NaN or an infinite" in refused("model.onnx", wrap_as_initializer(poisoned))


@pytest.mark.parametrize("field", [2, 7])
def test_nan_is_found_in_float_attributes(field):
    """A Constant may keep its value in an attribute instead of a tensor."""
    nan = make.varint(field << 3 | 5) + make.floats(float("nan"))
    body = make.graph(nodes=(make.node("Constant", attributes=make.part(5, make.part(1, "value_float") + nan)),))
    assert "NaN" in refused("model.onnx", make.model(body))


def test_a_lone_minus_infinity_is_a_mask_constant():
    """Exports keep -inf as a scalar for masked attention; that is not damage."""
    inspect_file("model.onnx", wrap_as_initializer(make.tensor(make.floats(float("-inf")), dims=())))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no graph"),
        (b"\x3a\xff\xff\xff\xff\x0f", "claims"),
        (make.model()[:-1], "claims"),
        (b"\xff" * 32, "ten bytes"),
        (b"\x0b" + make.model(), "wire type"),
        (b"\x00\x00", "field number"),
        (make.model(more=make.part(99, b"x")), "field 99"),
        (make.number(1, 8), "no graph"),
        (wrap_as_initializer(make.tensor(b"\0" * 4, dims=(1 << 40,))), "claims"),
        (wrap_as_initializer(make.tensor(b"\0" * 4, dims=(-1,))), "impossible"),
        (wrap_as_initializer(make.tensor(b"\0" * 4, dims=(9,))), "claims 36 bytes"),
        (wrap_as_initializer(make.tensor(dims=(1 << 20,), more=make.part(4, make.floats(1)))), "claims"),
        (wrap_as_initializer(make.tensor(b"\0" * 4, dims=(1,), data_type=77)), "data type"),
        (
            make.model(make.graph(more=make.part(15, make.number(3, 1 << 20) + make.number(3, 1 << 20)))),
            "unpacks|claims",
        ),
        (make.model(make.graph(nodes=(make.node("EPContext"),))), "EPContext"),
        (b"\0\0\0\0ORTM" + make.model(), "own format"),
    ],
    ids=lambda value: value.split("|")[0] if isinstance(value, str) else f"{len(value)} bytes",
)
def test_malformed_graphs_are_refused_with_the_reason(data, reason):
    """Claims that the bytes do not bear out are named."""
    with pytest.raises(ModelFileError, match=reason):
        inspect_file("model.onnx", data)


def test_deep_nesting_does_not_exhaust_the_stack():
    """Ten thousand nested subgraphs are refused by depth, not by a RecursionError."""
    body = make.graph()
    for _ in range(10_000):
        body = make.graph(nodes=(make.node("If", attributes=make.part(5, make.part(6, body))),))
    assert "nested" in refused("model.onnx", make.model(body))


@pytest.mark.parametrize("limit", [20_000, pytest.param(onnx_reader._MAX_FIELDS, marks=pytest.mark.hardening)])
def test_millions_of_tiny_fields_are_refused(monkeypatch, limit):
    """A file of nothing but two-byte fields runs into the budget."""
    assert onnx_reader._MAX_FIELDS <= 2_000_000
    monkeypatch.setattr(onnx_reader, "_MAX_FIELDS", limit)
    assert "fields" in refused("model.onnx", make.number(1, 8) * (limit + 100_000))


def a_zip(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"x")
    return path.read_bytes()


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "vocab.txt", "model.safetensors"])
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_under_another_name_is_refused(name, protocol):
    """Renaming a pickle makes it no model, whatever its protocol."""
    payload = pickle.dumps({"a": [1, os.path.join, (2, 3)], "b": b"\xff" * 9}, protocol=protocol)
    if name == "vocab.txt" and protocol == 0:
        return  # protocol 0 is text; a vocabulary of odd words is read as words, never unpickled
    refused(name, payload)


def test_archives_and_programs_under_another_name_are_refused(tmp_path):
    """Zip, gzip, ELF, scripts and git-lfs pointers are named for what they are."""
    assert "zip" in refused("model.onnx", a_zip(tmp_path / "x.zip"))
    assert "gzip" in refused("model.onnx", b"\x1f\x8b\x08" + b"0" * 20)
    assert "program" in refused("tokenizer.json", b"\x7fELF" + b"0" * 20)
    assert "script" in refused("vocab.txt", b"#!/bin/sh\n")
    assert "git-lfs" in refused("model.onnx", b"version https://git-lfs.github.com/spec/v1\n")
    assert "tar" in refused("model.onnx", b"x" * 257 + b"ustar" + b"0" * 250)


@pytest.mark.parametrize(
    "text",
    [
        '{"auto_map": {"AutoModel": "modeling.Evil"}}',
        '{"a": [{"auto_map": "x"}]}',
        '{"auto_map": {"x": "y"}, "auto_map": null}',
        '{"\\u0061uto_map": {"x": "y"}}',
        '{"trust_remote_code": true}',
        '{"trust_remote_code": 1}',
        '{"custom_pipelines": {"x": {"impl": "evil.py"}}}',
    ],
)
def test_json_that_asks_for_code_is_refused(text):
    """auto_map and its kin are refused at any depth, escaped or doubled."""
    assert "code" in refused("config.json", text.encode())


def test_the_same_words_in_a_vocabulary_are_only_words():
    """A token called auto_map, or an explicit refusal of remote code, is harmless."""
    inspect_file("vocab.json", b'{"auto_map": 17}')
    inspect_file("config.json", b'{"trust_remote_code": false}')


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'["' + b"\\" * 1_000_001,
        b'"\\"' * 300_000,
        pytest.param(b"[" + b"[]," * 2_100_000 + b"1]", marks=pytest.mark.hardening),
        b'{"a": NaN}',
        b'{"a": 1' + b"0" * 5000 + b"}",
        b"\xff\xfe{}",
        b"",
    ],
    ids=["open", "deep", "backslashes", "quotes", "containers", "nan", "digits", "utf16", "empty"],
)
def test_json_bombs_are_refused(data):
    """Depth, count, endless strings, long numbers and other encodings end in a refusal."""
    refused("config.json", data)


def test_too_many_containers_are_refused(monkeypatch):
    """With a smaller limit, since two million take most of a second."""
    assert inspection._MAX_CONTAINERS <= 2_000_000
    monkeypatch.setattr(inspection, "_MAX_CONTAINERS", 20_000)
    inspect_file("config.json", b"[" + b"[]," * 19_000 + b"1]")
    refused("config.json", b"[" + b"[]," * 21_000 + b"1]")


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        make.safetensors(length=1 << 62),
        make.safetensors(length=1 << 20),
        make.safetensors((1.0, float("nan"))),
        make.safetensors((float("inf"), 1.0)),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 8]}}),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 1 << 40]}}),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        make.safetensors(header={"w": {"dtype": "PKL", "shape": [2], "data_offsets": [0, 8]}}),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}),
        make.safetensors(header={"w": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}),
        make.safetensors(header={"w": [1]}),
        (3).to_bytes(8, "little") + b"[1]",
    ],
    ids=range(14),
)
def test_hostile_safetensors_are_refused(data):
    """Header claims, overlaps, gaps and NaN are refused."""
    refused("model.safetensors", data)


def test_a_sound_safetensors_file_passes():
    """The refusals above are not the only answer."""
    inspect_file("model.safetensors", make.safetensors())


def test_a_sound_folder_is_allowed_and_resolves(tmp_path):
    """A user's own folder loads by its id after one explicit call."""
    place = make.folder(tmp_path / "mine", vocab__txt=b"a\nb\n", model__safetensors=make.safetensors())
    spec = allow_local(place, kind="nli", entailment_index=2)
    files = resolve("local/mine")
    assert files.spec == spec
    assert files.source == "local"
    assert files.onnx_bytes() == make.model()
    assert spec.entailment_index == 2


def test_an_allowed_folder_declares_languages_and_scale(tmp_path):
    """Any language and the scale of its kind, unless the user says otherwise."""
    place = make.folder(tmp_path / "mine")
    plain = allow_local(place).scorer_info("cross-encoder")
    assert (plain.score_scale, plain.languages) == ("logit", "any")
    told = allow_local(place, languages=("en", "de"), score_scale="probability").scorer_info("x")
    assert (told.score_scale, told.languages) == ("probability", ("en", "de"))
    for wrong in ({"languages": "de"}, {"score_scale": "percent"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            allow_local(place, **wrong)


def test_a_folder_nobody_allowed_is_refused_by_id(tmp_path):
    """Being on disk allows nothing."""
    make.folder(tmp_path / "mine")
    with pytest.raises(ModelNotAllowedError):
        resolve("local/mine")


def test_every_flipped_byte_is_refused_after_allowing(tmp_path):
    """A folder that changed after it was allowed no longer loads, by resolve or by read."""
    place = make.folder(tmp_path / "mine")
    allow_local(place, id="mine/own")
    original = (place / "model.onnx").read_bytes()
    for at in range(len(original)):
        (place / "model.onnx").write_bytes(original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :])
        with pytest.raises(ModelFileError, match="sha256"):
            resolve("mine/own")
    (place / "model.onnx").write_bytes(original)
    assert resolve("mine/own").onnx_bytes() == original


def test_links_are_refused(tmp_path):
    """Symbolic links to files or folders, broken links and hard links are refused."""
    outside = tmp_path / "outside.onnx"
    outside.write_bytes(make.model())
    for kind in ("symlink", "hardlink", "broken", "folder"):
        place = make.folder(tmp_path / kind)
        if kind == "folder":
            (place / "onnx").symlink_to(tmp_path, target_is_directory=True)
        else:
            (place / "model.onnx").unlink()
            if kind == "hardlink":
                os.link(outside, place / "model.onnx")
            else:
                (place / "model.onnx").symlink_to(outside if kind == "symlink" else tmp_path / "nowhere")
        with pytest.raises(ModelFileError, match=r"link"):
            allow_local(place)


def test_a_pipe_in_the_folder_does_not_hang(tmp_path):
    """Something that is no regular file is refused without opening it."""
    place = make.folder(tmp_path / "mine")
    os.mkfifo(place / "config.json")
    with pytest.raises(ModelFileError, match="regular"):
        allow_local(place)


@pytest.mark.parametrize("name", ["evil.py", "pytorch_model.bin", "x.pkl", "custom.so", ".hidden", "model.onnx.data"])
def test_files_of_other_kinds_are_refused(tmp_path, name):
    """Only ONNX, safetensors, JSON and text may lie in a model folder."""
    place = make.folder(tmp_path / "mine")
    (place / name).write_bytes(b"x")
    with pytest.raises(ModelFileError, match="never loaded"):
        allow_local(place)


def test_an_extra_file_is_refused(tmp_path):
    """A file that appears after the manifest was made is refused, also in a subfolder."""
    place = make.folder(tmp_path / "mine")
    write_manifest(place)
    allow_local(place)
    (place / "sub").mkdir()
    (place / "sub" / "extra.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"sub/extra\.json"):
        resolve("local/mine")
    with pytest.raises(ModelFileError, match=r"sub/extra\.json"):
        allow_local(place)


def test_a_crowded_folder_is_refused(tmp_path):
    """Pointing at a home folder by mistake ends quickly."""
    place = make.folder(tmp_path / "mine")
    for at in range(100):
        (place / f"{at}.json").write_text("{}")
    with pytest.raises(ModelFileError, match="too many"):
        allow_local(place)


def test_a_manifest_decides(tmp_path):
    """A manifest given as a mapping, flat or nested, or as a file must match byte for byte."""
    place = make.folder(tmp_path / "mine")
    digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in place.iterdir()}
    assert allow_local(place, digests).id == "local/mine"
    sized = {n: {"sha256": d, "size": (place / n).stat().st_size} for n, d in digests.items()}
    assert allow_local(place, {"files": sized}).id == "local/mine"
    written = tmp_path / "manifest.json"
    written.write_text(json.dumps({"files": sized}))
    assert allow_local(place, written).id == "local/mine"
    with pytest.raises(ModelFileError, match="sha256"):
        allow_local(place, {**digests, "model.onnx": "0" * 64})
    with pytest.raises(ModelFileError, match="lacks"):
        allow_local(place, {**digests, "gone.json": "0" * 64})
    del digests["tokenizer.json"]
    with pytest.raises(ModelFileError, match="not part"):
        allow_local(place, digests)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"files": {}},
        {"../x.json": "0" * 64},
        {"/etc/passwd": "0" * 64},
        {"a\\b.json": "0" * 64},
        {"model.onnx": "short"},
        {"model.onnx": 7},
        {"model.onnx": {"sha256": "0" * 64, "size": "9"}},
        {3: "0" * 64},
    ],
)
def test_odd_manifests_are_refused(tmp_path, manifest):
    """A manifest names plain files and whole digests."""
    with pytest.raises((ModelFileError, InputError)):
        allow_local(make.folder(tmp_path / "mine"), manifest)


def test_a_planted_manifest_link_is_not_written_through(tmp_path):
    """Writing a manifest never overwrites what a link in the folder points at."""
    place = make.folder(tmp_path / "mine")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (place / "resift-manifest.json").symlink_to(victim)
    with pytest.raises(ModelFileError, match="link"):
        write_manifest(place)
    with pytest.raises(ModelFileError, match="link"):
        allow_local(place)
    assert victim.read_text() == "precious"


def test_a_folder_with_an_odd_name_gets_a_plain_id(tmp_path):
    """Spaces and dots in a folder's name do not matter."""
    assert allow_local(make.folder(tmp_path / "my model..v2 (ü)")).id == "local/my-model-v2"


def test_a_pinned_id_cannot_be_taken_over(tmp_path):
    """A folder of one's own cannot pose as a pinned model."""
    with pytest.raises(ModelNotAllowedError, match="built-in"):
        allow_local(make.folder(tmp_path / "mine"), id="cross-encoder/ms-marco-MiniLM-L-12-v2")


def test_missing_parts_are_named(tmp_path):
    """No tokenizer, no graph, two graphs, no folder, a file for a folder: each says so."""
    place = make.folder(tmp_path / "a")
    (place / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        allow_local(place)
    with pytest.raises(ModelFileError, match=r"2 \.onnx"):
        allow_local(make.folder(tmp_path / "b", other__onnx=make.model()))
    assert allow_local(tmp_path / "b", onnx="other.onnx").onnx == "other.onnx"
    with pytest.raises(ModelFileError, match="does not exist"):
        allow_local(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match="not a folder"):
        allow_local(place / "model.onnx")
    with pytest.raises(ModelFileError):
        allow_local("a\0b")


def test_refusing_imports_nothing_from_the_folder(tmp_path, monkeypatch):
    """No module of the folder is imported on the way to the refusal."""
    place = make.folder(tmp_path / "mine", config__json=b'{"auto_map": {"AutoModel": "modeling_evil.Evil"}}')
    (place / "modeling_evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)
    with pytest.raises(ModelFileError):
        allow_local(place)
    (place / "modeling_evil.py").unlink()
    with pytest.raises(ModelFileError, match="code"):
        allow_local(place)
    assert "modeling_evil" not in set(sys.modules) - before


SMALL = make.model(
    make.graph(
        nodes=(make.node(attributes=make.part(5, make.part(5, make.tensor(make.floats(3), dims=(1,))))), make.node()),
        initializers=(make.tensor(make.floats(1, 2), dims=(2,)), make.tensor(b"\1\2", dims=(2,), data_type=make.UINT8)),
        more=make.part(15, make.part(1, make.tensor(make.floats(1), dims=(1,))) + make.number(3, 4)),
    )
)


@given(data=st.data())
def test_damaged_graphs_never_crash_the_inspector(data):
    """Any flips, cuts and insertions end in acceptance or ModelFileError, never in another exception."""
    damaged = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if how == "flip":
            damaged[at] ^= data.draw(st.integers(1, 255))
        elif how == "cut" and len(damaged) > 8:
            del damaged[at:]
        else:
            damaged[at:at] = data.draw(st.binary(max_size=6))
        damaged = damaged or bytearray(b"\0")
    with contextlib.suppress(ModelFileError):
        inspect_onnx("model.onnx", bytes(damaged))


@given(raw=st.binary(max_size=400), name=st.sampled_from(["a.onnx", "a.json", "a.txt", "a.safetensors", "a.bin"]))
def test_random_bytes_never_crash_any_inspector(raw, name):
    """Noise under any name ends in acceptance or ModelFileError."""
    with contextlib.suppress(ModelFileError):
        inspect_file(name, raw)
