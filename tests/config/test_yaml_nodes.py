"""Reading YAML: lines, and everything that a file must not be able to do."""

from __future__ import annotations

import pytest

from resift.config.yaml_nodes import MAX_BYTES, from_plain, read_file, read_text
from resift.errors import ConfigError


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_text(text, file="p.yaml")
    return caught.value


def test_values_know_their_lines():
    """Every key and value has its line, counted from 1."""
    tree = read_text("k: 5\nstores:\n  - name: a\n    path: b\n")
    assert tree.key_lines == {"k": 1, "stores": 2}
    [store] = tree.value["stores"].value
    assert (store.line, store.key_lines, store.value["path"].value) == (3, {"name": 3, "path": 4}, "b")


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("k: 1\nk: 2\n", 2, "twice, first in line 1"),
        ("a: 1\nb: [1, 2\n", 3, "Not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "Not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "not allowed"),
        ("a: !secret x\n", 1, "not allowed"),
        ("a: !!binary aGVsbG8=\n", 1, "not allowed"),
        ("a: !!set {b}\n", 1, "not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("1: a\n", 1, "A key must be text"),
        ("? [a, b]\n: c\n", 1, "A key must be text"),
        ("on: a\n", 1, "A key must be text"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "Merge keys"),
        ("a: *missing\n", 1, "undefined alias"),
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("a: &x [*x]\n", 1, "too many nodes or levels"),
    ],
)
def test_anything_but_plain_yaml_is_rejected_with_its_line(text, line, expected):
    """Code, tags, duplicate keys, merges and broken syntax get one message with the line."""
    error = refused(text)
    assert error.line == line
    assert expected in str(error)
    assert str(error).startswith(f"p.yaml:{line}: ")


def test_aliases_that_multiply_are_bounded():
    """A billion laughs are refused at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "too many nodes or levels" in str(refused("\n".join(lines)))


@pytest.mark.slow
def test_endless_nesting_is_rejected():
    """Depth that would overflow the stack is an error like any other."""
    assert "nest" in str(refused("[" * 1500 + "]" * 1500))


@pytest.mark.parametrize("text", ["a: " + "9" * 5000, "a: 2024-02-31"])
def test_impossible_scalars_are_rejected(text):
    """Numbers and dates that Python refuses are mistakes in the file."""
    assert "impossible" in str(refused(text))


def test_binary_files_are_rejected(tmp_path):
    """Missing, huge and non-UTF-8 files get one message each."""
    with pytest.raises(ConfigError, match=r"absent\.yaml: Cannot read the file"):
        read_file(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="Cannot read the file"):
        read_file(tmp_path)
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 256 KiB"):
        read_file(huge)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: The file is not UTF-8"):
        read_file(latin)
    nul = tmp_path / "nul.yaml"
    nul.write_bytes(b"a: \x00\n")
    with pytest.raises(ConfigError, match="Not valid YAML"):
        read_file(nul)


def test_a_byte_order_mark_is_accepted(tmp_path):
    """Files from Windows editors load."""
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbfk: 5\r\n")
    assert read_file(file).value["k"].value == 5


def test_a_dict_that_contains_itself_is_rejected():
    """A configuration from Python is bounded too."""
    loop: dict = {}
    loop["a"] = loop
    with pytest.raises(ConfigError, match="deep"):
        from_plain(loop)
