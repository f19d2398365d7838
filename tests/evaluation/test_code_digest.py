"""Answers are kept under the code that gave them."""

from __future__ import annotations

from pathlib import Path

from resift.evaluation import runner as module
from resift.evaluation.runner import code_digest


def digest_of(folder: Path, monkeypatch) -> str:
    monkeypatch.setattr(module, "files", lambda _: folder)
    code_digest.cache_clear()
    try:
        return code_digest()
    finally:
        code_digest.cache_clear()


def test_changed_renamed_and_new_modules_change_the_digest_and_the_command_line_does_not(tmp_path, monkeypatch):
    room = tmp_path / "shape"
    room.mkdir()
    (room / "blending.py").write_text("WEIGHT = 0.75\n")
    before = digest_of(tmp_path, monkeypatch)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "eval.py").write_text("print()\n")
    (room / "notes.txt").write_text("no code\n")
    assert digest_of(tmp_path, monkeypatch) == before
    (room / "blending.py").write_text("WEIGHT = 0.76\n")
    changed = digest_of(tmp_path, monkeypatch)
    (room / "blending.py").rename(room / "blend.py")
    renamed = digest_of(tmp_path, monkeypatch)
    (room / "forward.c").write_text("int main(void);\n")
    with_kernel = digest_of(tmp_path, monkeypatch)
    (room / "weights.json").write_text("{}\n")
    assert len({before, changed, renamed, with_kernel, digest_of(tmp_path, monkeypatch)}) == 5


def test_the_real_package_has_one_digest():
    assert code_digest() == code_digest()
    assert len(code_digest()) == 64
