"""Pipeline files on the pages are valid; a block without stores is a part of a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resift.config import inspect_yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
STORES = "stores:\n  - {name: docs, kind: sqlite, path: docs.db}\n"
OTHER_PROGRAMS = ("model_list:", "http_options:")
BLOCKS = [
    pytest.param(block, id=page.stem)
    for page in sorted(DOCS.rglob("*.md"))
    if "reference" not in page.parts
    for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"))
    if not any(word in block for word in OTHER_PROGRAMS)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_yaml_block_is_a_valid_pipeline(block, tmp_path):
    """Its files and variables are the reader's; everything else must be right."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(block if "stores:" in block else STORES + block, encoding="utf-8")
    _, problems = inspect_yaml(file, expand=False)
    wrong = [line for line in problems.lines() if "does not exist" not in line]
    assert wrong == []
