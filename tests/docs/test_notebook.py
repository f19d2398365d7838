"""The notebook in examples/ runs in a real kernel, top to bottom, and shows the ranking as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_search.ipynb"


def shown(cell) -> str:
    return "".join(output.get("text", "") + str(output.get("data", {}).get("text/html", "")) for output in cell.outputs)


@pytest.mark.real_model
def test_the_notebook_runs(tmp_path):
    pytest.importorskip("tokenizers")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    picture = shown(code[0])
    assert "<svg" in picture
    assert "Books go back after four weeks." in picture
    assert "Ranked " in shown(code[1])
    assert "Lunch is served at noon." in shown(code[-1])


def test_it_is_kept_with_its_outputs():
    """Readers on the web see the table and the picture; `python -m tools.run_notebook` stores them."""
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert "<table" in shown(code[0])
    assert "<svg" in shown(code[0])
    assert str(Path.home()) not in NOTEBOOK.read_text(encoding="utf-8")
