"""Atomic writes replace a file completely or leave it unchanged."""

from __future__ import annotations

import os
import resource
import signal
import stat

import pytest

from resift._internal.files import atomic_file, atomic_write
from resift.errors import FileWriteError

np = pytest.importorskip("numpy")


def test_a_planted_link_is_not_followed(tmp_path):
    """The temporary name is unpredictable and links are refused."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / f".out.txt.{os.getpid()}.part").symlink_to(victim)
    atomic_write(tmp_path / "out.txt", "new")
    assert victim.read_text() == "kept"
    assert (tmp_path / "out.txt").read_text() == "new"


def test_a_new_file_has_the_usual_permissions(tmp_path):
    mask = os.umask(0o022)
    try:
        atomic_write(tmp_path / "out.txt", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == 0o644


def test_the_error_names_the_target_and_not_the_temporary_file(tmp_path):
    target = tmp_path / "missing" / "out.txt"
    for place, why in ((target, "No such file"), (tmp_path, "directory"), (tmp_path / ("n" * 300), "too long")):
        with pytest.raises(FileWriteError, match=why) as caught:
            atomic_write(place, "x")
        assert str(caught.value).startswith(f"{place}: ")
        assert isinstance(caught.value, OSError)


def full_disk(write) -> None:
    """Run the write in a child that may write 4 kB to any file, as if the disk were full after that."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write()
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_full_disk_keeps_the_previous_file(tmp_path):
    target = tmp_path / "out.txt"
    atomic_write(target, "old")

    def write() -> None:
        with atomic_file(target) as file:
            file.write(b"x" * 100_000)

    full_disk(write)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    """Otherwise root could replace /dev/null by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic_file(pipe) as file:
            file.write(b"bytes")
        atomic_write(pipe, ", text")
        assert os.read(reader, 100) == b"bytes, text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
