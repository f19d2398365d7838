"""`python -m tools.run_notebook`: runs examples/first_search.ipynb and stores its outputs.

People who read the notebook on the web see the table and the picture without running it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "first_search.ipynb"


def main() -> int:
    """Run the notebook in an empty folder and save it with its outputs, without times and versions."""
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, NOTEBOOK)
    sys.stderr.write(f"wrote {NOTEBOOK.name}, {NOTEBOOK.stat().st_size // 1024} KB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
