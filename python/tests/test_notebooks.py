"""The notebooks run as they are written, from the first cell to the last."""

import json
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "notebooks"
# Packages that a notebook needs beside the wheel.
NEEDS = {"lora-for-people": ("torch", "transformers", "peft")}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_runs(name, tmp_path):
    for package in ("nbclient", "ipykernel", *NEEDS.get(name, ())):
        pytest.importorskip(package)
    import nbclient
    import nbformat

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs and all(output.output_type != "error" for output in outputs)


def test_no_notebook_holds_an_output():
    for path in FOLDER.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code"), path
