"""Verification: the memo is cheap and is never fooled; reading returns the bytes that were hashed."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from resift.errors import ModelFileError
from resift.models import verify as module
from resift.models.registry import PinnedFile
from resift.models.verify import read_unpinned, read_verified, verify

DATA = b"weights" * 1000


@pytest.fixture
def file(tmp_path):
    """A file and its pin, last written an hour ago."""
    path = tmp_path / "model.onnx"
    path.write_bytes(DATA)
    return path, PinnedFile(name=path.name, size=len(DATA), sha256=hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def settled(monkeypatch):
    """A clock that is an hour ahead, so that the file counts as not touched lately."""
    real = time.time_ns
    monkeypatch.setattr(module.time, "time_ns", lambda: real() + 3_600_000_000_000)


@pytest.fixture
def hashed(monkeypatch):
    """How often a file was hashed by `verify`."""
    calls: list[object] = []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: calls.append(file) or real(file, name))
    return calls


def test_a_file_is_hashed_once_while_it_is_not_touched(file, settled, hashed):
    """The second check is a stat."""
    for _ in range(3):
        verify(*file)
    assert len(hashed) == 1


@pytest.mark.parametrize("how", ["rewritten", "replaced", "touched back"])
def test_a_touched_file_is_hashed_again(file, settled, how):
    """A change is found although size, and in one case the time, are the same."""
    path, pinned = file
    verify(path, pinned)
    before = path.stat()
    if how == "replaced":
        other = path.with_name("other")
        other.write_bytes(b"x" + DATA[1:])
        other.replace(path)
    else:
        path.write_bytes(b"x" + DATA[1:])
    if how == "touched back":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(ModelFileError, match="sha256"):
        verify(path, pinned)


def test_a_file_written_a_moment_ago_is_not_remembered(file, hashed):
    """File times tick slowly; a change within one tick must not slip through."""
    path, pinned = file
    verify(path, pinned)
    path.write_bytes(b"x" + DATA[1:])
    with pytest.raises(ModelFileError, match="sha256"):
        verify(path, pinned)
    assert len(hashed) == 2


def test_reading_always_hashes_what_it_returns(file, settled):
    """A remembered file that changed is still refused at reading."""
    path, pinned = file
    assert read_verified(path, pinned) == DATA
    path.write_bytes(b"x" + DATA[1:])
    with pytest.raises(ModelFileError, match="sha256"):
        read_verified(path, pinned)


@pytest.mark.parametrize("check", [verify, read_verified])
def test_a_file_of_another_size_is_refused(file, check):
    """Longer and shorter files are refused by size."""
    path, pinned = file
    for data in (DATA + b"x", DATA[:-1], b""):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="bytes"):
            check(path, pinned)


@pytest.mark.parametrize("check", [verify, read_verified])
def test_what_is_no_file_is_refused_without_waiting(file, check):
    """A folder, a pipe, a device and nothing at all are refused."""
    path, pinned = file
    os.mkfifo(path.with_name("pipe"))
    for other in (path.parent, path.with_name("pipe"), path.with_name("gone")):
        with pytest.raises(ModelFileError):
            check(other, pinned)


def test_unpinned_files_are_read_up_to_a_limit(file):
    """Without a pin the size is capped."""
    path, _ = file
    assert read_unpinned(path) == DATA
    with pytest.raises(ModelFileError, match="limit"):
        read_unpinned(path, limit=10)
