"""The examples that people copy run unchanged: the README's Python code and the notebook."""

import json
import re
from pathlib import Path

import pytest

from fclseg.networks.loading import read_tensors

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def namespace(tmp_path, monkeypatch):
    """Where an example runs: an empty folder and no names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    return {"__name__": "__main__"}


def test_the_readmes_python(namespace, tmp_path):
    (example,) = re.findall(r"```python\n(.+?)```", (CHECKOUT / "README.md").read_text(), re.DOTALL)
    exec(compile(example, "README.md", "exec"), namespace)
    assert len(namespace["run"].losses) == 2 and 0 <= namespace["model"].evaluation.mean_dice <= 1
    assert len(list((tmp_path / "segmented").glob("*_seg.nii.gz"))) == 2
    assert (tmp_path / "segmented" / "measurements.csv").is_file()


@pytest.mark.nightly
@pytest.mark.simulator
def test_the_notebook(namespace, tmp_path):
    cells = json.loads((CHECKOUT / "docs" / "quickstart.ipynb").read_text())["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
    assert namespace["over_nvflare"].losses == namespace["run"].losses
    encoders = [read_tensors(namespace[name].encoder)[0] for name in ("run", "over_nvflare")]
    assert all((encoders[0][name] == tensor).all() for name, tensor in encoders[1].items())
    assert type(namespace["strided"].model) is type(tmp_path) and namespace["strided"].model.is_file()
