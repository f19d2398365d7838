"""What a folder gives: every path is read or has a reason; nothing outside is touched; nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from resift.errors import DataFormatError, InputError
from resift.ingest.indexing import IndexReport, index_paths
from resift.ingest.sources import FileLimits
from resift.ingest.walking import (
    FileFilter,
    FolderWalk,
    compile_patterns,
    find_files,
    is_ignored,
    parse_ignore_rules,
    watch,
)
from resift.ingest.worker import FileReader
from resift.stores.sqlite import SQLiteStore


def reasons(folder: Path, **choice: object) -> dict[str, str]:
    found = find_files([folder], FileFilter(**choice))
    return {one.path.relative_to(folder).as_posix(): one.reason for one in found.skipped}


def names(folder: Path, **choice: object) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in find_files([folder], FileFilter(**choice)).files]


def write(folder: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_every_path_is_read_or_has_a_reason(tmp_path):
    outside = tmp_path / "outside"
    folder = tmp_path / "in"
    write(tmp_path, **{"outside/secret.txt": "secret", "in/a.txt": "a", "in/sub/b.py": "b", "in/x.png": b"\x89PNG\0"})
    write(folder, **{".hidden/c.txt": "c", ".gitignore": "*.log\nbuild/\n", "d.log": "d", "build/e.txt": "e"})
    (folder / "out.txt").symlink_to(outside / "secret.txt")
    (folder / "outdir").symlink_to(outside)
    (folder / "same.txt").symlink_to(folder / "a.txt")
    os.mkfifo(folder / "pipe.txt")
    assert names(folder) == ["a.txt", "sub/b.py"]
    assert reasons(folder) == {
        ".gitignore": "hidden",
        ".hidden": "hidden",
        "build": "ignored by .gitignore",
        "d.log": "ignored by .gitignore",
        "out.txt": "a link to outside the folder",
        "outdir": "a link to outside the folder",
        "pipe.txt": "not a regular file",
        "same.txt": "a link inside the folder",
        "x.png": "not text",
    }
    assert "d.log" in names(folder, gitignore=False)


def test_include_and_exclude_select_files(tmp_path):
    write(tmp_path, **{"a.py": "a", "docs/b.md": "b", "docs/old/c.md": "c", "d.txt": "d"})
    assert names(tmp_path, include=("*.md", "*.py")) == ["a.py", "docs/b.md", "docs/old/c.md"]
    assert names(tmp_path, exclude=("docs/old/",)) == ["a.py", "d.txt", "docs/b.md"]
    assert reasons(tmp_path, include=("docs/**",))["a.py"] == "not in --include"
    with pytest.raises(InputError, match="--include takes patterns"):
        names(tmp_path, include=("!x",))


def test_an_unreadable_folder_is_a_failure_with_a_reason(tmp_path):
    """The walk is given a folder that refuses, as one without permission does."""

    def refusing(folder):
        raise PermissionError(13, "Permission denied")

    walk = FolderWalk(FileFilter(), None, refusing)
    walk.add_folder(tmp_path, tmp_path, [], 0)
    assert [(one.reason, one.failed) for one in walk.found.skipped] == [("Permission denied", True)]


def test_gitignore_rules_match_git(tmp_path):
    """Random rules and paths, compared with git itself."""
    if subprocess.run(["git", "--version"], capture_output=True).returncode:
        pytest.skip("git is not installed")
    random_ = random.Random(7)
    parts, paths = ["a", "b", "ab", "*", "a*", "?", "**", "[ab]", "*.c", "a.c", "[!a]"], []
    for _ in range(60):
        path = "/".join(random_.choice(["a", "b", "ab", "a.c", "b.c", "c"]) for _ in range(random_.randint(1, 4)))
        paths.append(path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for _ in range(25):
        rules = []
        for _ in range(random_.randint(1, 4)):
            body = "/".join(random_.choice(parts) for _ in range(random_.randint(1, 3)))
            rules.append(random_.choice(["", "", "!"]) + random_.choice(["", "/"]) + body + random_.choice(["", "/"]))
        (tmp_path / ".gitignore").write_text("\n".join(rules) + "\n")
        # Without files on the disk git takes every path for a file, and its parents for folders.
        asked = subprocess.run(
            ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin"],
            input="\n".join(paths), capture_output=True, text=True,
        )  # fmt: skip
        theirs = set(asked.stdout.split("\n")) - {""}
        listed = parse_ignore_rules(rules)
        ours = {path for path in paths if left_out(listed, path)}
        assert ours == theirs, rules


def left_out(rules, path: str) -> bool:
    parts = path.split("/")
    if any(is_ignored(rules, "/".join(parts[:end]), folder=True) for end in range(1, len(parts))):
        return True
    return bool(is_ignored(rules, path, folder=False))


def test_hostile_patterns_are_fast():
    started = time.process_time()
    path = "/".join(["a" * 200] * 30) + "b"
    patterns = ["*a" * 400, "**/a*/" * 3 + "x", "[a-z]" * 150]
    assert is_ignored(parse_ignore_rules([*patterns, "**/" * 300 + "x"]), path, folder=False) is None
    assert not any(regex.search(path) for regex in compile_patterns(patterns, "--exclude"))
    assert time.process_time() - started < 2


def indexed(store_path: Path, *paths: Path, **options) -> IndexReport:
    async def run() -> IndexReport:
        store = SQLiteStore(store_path, create=True)
        try:
            return await index_paths(store, list(paths), **options)
        finally:
            await store.close()

    return asyncio.run(run())


def contents(store_path: Path) -> dict[str, str]:
    async def run() -> dict[str, str]:
        store = SQLiteStore(store_path)
        try:
            return {hit.id: hit.text for hit in await store.get(await store.ids())}
        finally:
            await store.close()

    return asyncio.run(run())


def test_an_id_used_in_two_files_is_reported(tmp_path):
    """The second file's row is a problem until the id is free or the ids have paths."""
    write(tmp_path, **{"d/a.jsonl": '{"id": "1", "text": "from a"}\n', "d/b.jsonl": '{"id": "1", "text": "from b"}\n'})
    db = tmp_path / "x.db"
    report = indexed(db, tmp_path / "d")
    assert [(file.path, file.outcome) for file in report.files] == [("d/a.jsonl", "indexed"), ("d/b.jsonl", "partial")]
    assert "the id '1' belongs to file d/a.jsonl" in report.files[1].reason
    assert not report.complete
    assert contents(db) == {"1": "from a"}
    (tmp_path / "d/a.jsonl").unlink()
    again = indexed(db, tmp_path / "d", prune=True)
    assert (again.complete, again.count("removed")) == (True, 1)
    assert contents(db) == {"1": "from b"}
    both = tmp_path / "both.db"
    write(tmp_path, **{"d/a.jsonl": '{"id": "1", "text": "from a"}\n'})
    assert indexed(both, tmp_path / "d", row_ids="path").complete
    assert contents(both) == {"d/a.jsonl#1": "from a", "d/b.jsonl#1": "from b"}


def test_prune_refuses_more_than_half(tmp_path):
    """An empty mount point does not empty the index; a lost file or two do go."""
    for number in range(5):
        write(tmp_path, **{f"d/{number}.txt": f"text {number}"})
    db = tmp_path / "x.db"
    indexed(db, tmp_path / "d")
    (tmp_path / "d/0.txt").unlink()
    assert indexed(db, tmp_path / "d", prune=True).count("removed") == 1
    for number in (1, 2, 3):
        (tmp_path / f"d/{number}.txt").unlink()
    with pytest.raises(InputError, match=r"3 of 4 indexed files are gone.*--prune --yes"):
        indexed(db, tmp_path / "d", prune=True)
    assert len(contents(db)) == 4
    assert indexed(db, tmp_path / "d", prune=True, prune_all=True).count("removed") == 3


def test_undecodable_file_names_are_shown_in_hex(tmp_path):
    folder = os.fsencode(tmp_path / "d")
    os.mkdir(folder)
    try:
        with open(folder + b"/na\xefve.txt", "wb") as file:
            file.write(b"words inside")
    except OSError:
        pytest.skip("this file system takes no such names")
    db = tmp_path / "x.db"
    report = indexed(db, tmp_path / "d")
    assert [(file.path, file.outcome) for file in report.files] == [("d/na\\xefve.txt", "indexed")]
    assert indexed(db, tmp_path / "d", prune=True).count("unchanged") == 1
    os.rename(folder + b"/na\xefve.txt", folder + b"/plain.txt")
    gone = indexed(db, tmp_path / "d", prune=True, prune_all=True)
    assert (gone.count("indexed"), gone.count("removed")) == (1, 1)


def test_bad_lines_are_reported_on_every_run(tmp_path):
    write(tmp_path, **{"d/a.jsonl": '{"id": "1", "text": "a"}\n{"n": ' + "9" * 5000 + '}\n{"id": "3", "text": "c"}\n'})
    for _ in range(2):
        report = indexed(tmp_path / "x.db", tmp_path / "d")
        assert report.files[0].outcome == "partial"
        assert "line 2" in report.files[0].reason
    assert sorted(contents(tmp_path / "x.db")) == ["1", "3"]


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_pipes_and_devices_are_refused(tmp_path, name):
    path = Path(name) if name.startswith("/") else tmp_path / name
    if not name.startswith("/"):
        os.mkfifo(path)
    elif not path.exists():
        pytest.skip("no such device here")
    report = indexed(tmp_path / "x.db", path)
    assert (report.files[0].outcome, "regular file" in report.files[0].reason) == ("failed", True)


def test_a_file_that_takes_too_long_is_abandoned(tmp_path, monkeypatch):
    """A page of a PDF with an endless loop in its reader; the next file is read all the same."""
    write(tmp_path, **{"a.eml": "Subject: x\n\n" + "body " * 20_000, "b.eml": "Subject: y\n\nbody"})

    async def run() -> tuple[str, list[str]]:
        reader = FileReader(FileLimits(seconds=0.001))
        try:
            with pytest.raises(DataFormatError, match="Takes more than") as slow:
                async for _ in reader.sections(tmp_path / "a.eml", name="a.eml"):
                    pass
            reader._limits = FileLimits()
            read = [section.text async for section in reader.sections(tmp_path / "b.eml", name="b.eml")]
            return str(slow.value), read
        finally:
            await reader.close()

    message, read = asyncio.run(run())
    assert "a.eml" in message
    assert [text.strip() for text in read] == ["body"]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no job control here")
def test_a_suspended_run_loses_nothing(tmp_path):
    """Ctrl-Z and fg: what the reading process was just sending arrives whole."""
    lines = [f"{number} {'seal ' * 30_000}\n" for number in range(40)]
    write(tmp_path, **{"big.txt": "".join(lines)})
    over = threading.Event()

    def stop_and_go(process: asyncio.subprocess.Process) -> None:
        while not over.wait(0.002):
            process.send_signal(signal.SIGSTOP)
            over.wait(0.001)
            process.send_signal(signal.SIGCONT)

    async def run() -> str:
        reader, texts = FileReader(), []
        thread: threading.Thread | None = None
        try:
            async for section in reader.sections(tmp_path / "big.txt", name="big.txt"):
                texts.append(section.text)
                if thread is None:
                    thread = threading.Thread(target=stop_and_go, args=[reader._process])
                    thread.start()
        finally:
            over.set()
            if thread is not None:
                thread.join()
            await reader.close()
        return "".join(texts)

    assert asyncio.run(run()) == "".join(lines)


@pytest.mark.slow
def test_ctrl_c_ends_reading_at_once(tmp_path):
    """A file whose reading takes many seconds, interrupted in the middle: over within a second or so."""
    write(tmp_path, **{"big.md": "> " * 100 + "\n" + ("> - a\n" * 30 + "\n") * 60_000})
    program = textwrap.dedent(
        """
        import sys
        from resift.cli.main import main
        print("started", flush=True)
        sys.exit(main(["index", sys.argv[1], "--store", sys.argv[2], "--text-only"]))
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "big.md"), str(tmp_path / "x.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    # Wait until the process that reads is there, at most ten seconds.
    for _ in range(200):
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout
        if children.strip() or process.poll() is not None:
            break
        time.sleep(0.05)
    assert process.poll() is None
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - started < 5  # one second on a machine with nothing else to do
    assert "Traceback" not in errors


def test_watch_reports_added_and_deleted_files(tmp_path):
    """Yields at once, after each change, and not in between; the clock is the test's own."""
    write(tmp_path, **{"a.txt": "a"})
    looks = 0

    async def tick(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            write(tmp_path, **{"b.txt": "b"})
        elif looks == 4:
            (tmp_path / "a.txt").unlink()
        elif looks == 6:
            raise asyncio.CancelledError

    async def run() -> list[int]:
        seen: list[int] = []
        with contextlib.suppress(asyncio.CancelledError):
            async for _ in watch([tmp_path], sleep=tick):
                seen += [looks]
        return seen

    assert asyncio.run(run()) == [0, 2, 4]
