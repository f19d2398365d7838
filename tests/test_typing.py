"""What a type checker says of code that uses Resift: mistakes are found before it runs, right code passes."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RIGHT = """
import asyncio
from resift import CrossEncoderReranker, Embedder, MemoryStore, Pipeline, SQLiteStore, Tiered, fuse, rerank
from resift.models import Embedder as FromModels
from resift.rerankers import CrossEncoderReranker as FromRerankers
from resift.pipeline import StoreRef
from resift.stores import SQLiteStore as FromStores

store = SQLiteStore("my.db", embedder=Embedder())
fuse({"a": ["x"], "b": ["y"]}, method="linear", normalize="min-max", weights=[1, 2], k=3)
rerank("question", ["text"], k=1, deadline_s=0.5)
pipeline = Pipeline([store.text, store.vectors], rerank=CrossEncoderReranker(), k=3)
Pipeline(MemoryStore())
Pipeline([StoreRef(name="docs", store=store, k=5), MemoryStore()])
Pipeline.default(store, k=3, deadline_s=1.0)
Pipeline.from_yaml("pipeline.yaml", k=3, rerank=None)
Tiered(CrossEncoderReranker(), [FromRerankers()])
ids: list[str] = pipeline.rank("question").ids
async def find() -> float | None:
    return (await pipeline.search("question"))[0].score
"""

WRONG = {
    "fuse([], metod='rrf')": 'Unexpected keyword argument "metod"',
    "fuse([], k_param='60')": 'Argument "k_param" to "fuse" has incompatible type',
    "fuse([], k=2.5)": 'Argument "k" to "fuse" has incompatible type',
    "Pipeline.default(SQLiteStore('x'), kk=3)": 'Unexpected keyword argument "kk"',
    "Pipeline.from_yaml('p.yaml', deadline='1')": 'Unexpected keyword argument "deadline"',
    "Pipeline('my.db')": 'Argument 1 to "Pipeline" has incompatible type "str"',
    "Pipeline(['my.db'])": "has incompatible type",
    "rerank('q', ['t'], k='3')": 'Argument "k" has incompatible type "str"',
    "CrossEncoderReranker(agregate='max')": 'Unexpected keyword argument "agregate"',
    "resift.rerenk('q', [])": 'Module has no attribute "rerenk"',
    "resift.stores.SQLStore('x')": 'Module has no attribute "SQLStore"',
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> list[str]:
    """What mypy says of right and wrong code, checked in one go."""
    api = pytest.importorskip("mypy.api", reason="needs resift[dev]")
    folder = tmp_path_factory.mktemp("typed")
    (folder / "right.py").write_text(RIGHT)
    lines = [
        "import resift, resift.stores",
        "from resift import CrossEncoderReranker, Pipeline, SQLiteStore, fuse, rerank",
    ]
    (folder / "wrong.py").write_text("\n".join([*lines, *WRONG]) + "\n")
    out, err, _ = api.run(
        [
            "--no-error-summary",
            # The options of `python -m mypy`, so that its cache can be used.
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
            str(folder / "right.py"),
            str(folder / "wrong.py"),
        ]
    )
    assert not err, err
    return out.splitlines()


def test_right_code_passes(findings):
    """Every name, option and argument of a first hour is typed, and mypy agrees."""
    assert [line for line in findings if "right.py" in line] == []


@pytest.mark.parametrize(("number", "code"), list(enumerate(WRONG, start=3)))
def test_a_mistake_is_found_before_it_runs(findings, number, code):
    """A misspelt option, a wrong type, a name that does not exist."""
    said = [line for line in findings if f"wrong.py:{number}: error" in line]
    assert any(WRONG[code] in line for line in said), said
