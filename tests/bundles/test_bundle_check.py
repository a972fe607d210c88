"""The bundles pass the checks of the model zoo, and these notice what is wrong."""

import json
import shutil

import pytest

from fclseg import resources
from fclseg.errors import FCLSegError
from fclseg.finetune.bundle_check import ONNX, check_bundle


def test_the_acdc_bundle_passes():
    lines = list(check_bundle("acdc_unet"))
    assert [line.rpartition(": ")[2] for line in lines[:6]] == ["ok"] * 6
    assert lines[6].endswith("ok") or any(name in lines[6] for name in ONNX), "the extra 'onnx' is optional"


def test_a_bundle_without_weights_is_checked_as_far_as_it_goes():
    lines = list(check_bundle("nifti_unet"))
    assert sum(line.endswith(": ok") for line in lines) == 3
    assert sum("skipped, the bundle has no weights" in line for line in lines) == 4


@pytest.fixture
def copy(tmp_path, monkeypatch):
    folder = tmp_path / "bundles"
    shutil.copytree(resources.resource_folder("bundles"), folder)
    monkeypatch.setattr(resources, "ROOTS", (tmp_path,))
    return folder / "acdc_unet"


def change(copy, **values):
    path = copy / "configs" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda copy: (copy / "docs" / "data_license.txt").unlink(), "files: docs/data_license.txt is missing"),
        (lambda copy: change(copy, version="9.9.9"), "version 9.9.9 is not in the changelog"),
        (lambda copy: change(copy, network_data_format={}), "metadata: "),
        (lambda copy: change(copy, eval_metrics={}), "the metadata do not say how good the weights are"),
    ],
)
def test_faults_are_named(copy, spoil, sentence):
    spoil(copy)
    with pytest.raises(FCLSegError, match=sentence):
        list(check_bundle("acdc_unet"))
