"""The comparison with other programs is fair: no patient is trained on and scored, and all get the same patients."""

import importlib.util
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


@pytest.fixture
def side_by_side(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    spec = importlib.util.spec_from_file_location("side_by_side", PEERS / "side_by_side.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("nnunet", None)


def hospital(folder, centres):
    """Labelled patients in ACDC's layout with empty images."""
    empty = nib.Nifti1Image(np.zeros((4, 4, 2), np.uint8), np.eye(4))
    for number, centre in enumerate(centres, 1):
        patient = folder / f"patient{number:03d}"
        patient.mkdir(parents=True)
        (patient / "Info.cfg").write_text(f"ED: 1\nES: 2\nCentre: {centre}\n")
        for name in ("frame01", "frame01_gt", "frame02", "frame02_gt"):
            nib.save(empty, patient / f"{patient.name}_{name}.nii.gz")
    return folder


def test_labelled_and_scored_patients_are_different_people_of_one_hospital(side_by_side, tmp_path):
    data = hospital(tmp_path / "mnms", [1, 1, 2, 1, 1, 2])
    volumes = read_folder(data)
    train, test = side_by_side.halves(volumes, data, "mnms 1")
    assert [one.patient for one in train] == ["patient001"] * 2 + ["patient004"] * 2
    assert [one.patient for one in test] == ["patient002"] * 2 + ["patient005"] * 2
    assert {one.patient for one in side_by_side.first(train, 1)} == {"patient001"}
    assert side_by_side.first(train, None) == train
    linked = side_by_side.linked(tmp_path / "train", train)
    assert sorted(path.name for path in linked.iterdir()) == ["patient001", "patient004"]
    with pytest.raises(SystemExit, match="no hospital 'mnms 3'"):
        side_by_side.halves(volumes, data, "mnms 3")
