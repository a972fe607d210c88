"""Files of version 0.1 are still read: results of cells, and study.json with the words it used."""

import json

from fclseg.study.report.page import write_report
from fclseg.study.stored import present_document, present_result

FIGURES = {"structures": {"RV": 0.4, "MYO": 0.5, "LV": 0.6}, "hd95": {"RV": 9.0, "MYO": 8.0, "LV": 7.0}}
PLACE = {"row": "fcl", "labels": 1, "reading": "frozen"}
ENTRY = PLACE | FIGURES | {"paper": None, "comparison": None, "runs": [], "scores": []}
DOCUMENT = {
    "table": "transfer", "title": "Transfer", "about": "About.", "symbol": "M", "spread": "fold", "labels": [1],
    "readings": ["frozen"], "baseline": "fcl", "rows": [{"key": "fcl", "title": "FCL", "method": "fcl"}],
    "entries": [ENTRY | {"summary": {"mean": 0.5, "sd": None, "groups": 1, "runs": 1, "fine_tunings": 1}}],
    "curves": [PLACE | {"loss": [1.0, 0.5]}], "pictures": [], "failures": [], "missing": 0, "seconds": 3.0,
    "pretraining": [{"method": "fcl", "seed": 0, "name": "fcl-demo-seed0", "seconds": 5.0, "rounds": []}],
    "settings": {
        "preset": {"name": "demo", "rounds": 4, "lr_moco": 0.05, "calibration_rounds": 2},
        "folds": 1, "seeds": 1, "pretrain_seeds": 1,
        "data": {"name": "acdc", "layout": "acdc", "fingerprint": "abc", "sites": {"site-1": 4}},
        "target": {"name": "hv", "layout": "hvsmr", "fingerprint": "def", "sites": {"site-1": 4}},
    },
    "command": "fclseg study transfer", "version": "0.1.0",
    "machine": {"processor": "x", "cores": 2, "python": "3.11", "system": "Linux"},
}  # fmt: skip
"""As version 0.1 wrote it."""


def test_a_stored_result_has_its_metrics():
    found = present_result({"dice": 0.5, **FIGURES})
    assert [(one["name"], one["structures"]["LV"]) for one in found["metrics"]] == [("dice", 0.6), ("hd95", 7.0)]
    assert [one["name"] for one in present_result({"dice": 0.5, **FIGURES, "hd95": {}})["metrics"]] == ["dice"]
    assert present_result(found) is found


def test_a_stored_study_still_has_a_report(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps(DOCUMENT))
    page = write_report(tmp_path, command="fclseg report here").read_text()
    assert "frozen-encoder evaluation" in page and "HD95, mm" in page and ">7.0</td>" in page
    assert "Pre-training: fcl, seed 0" in page and "fclseg report here" in page
    assert "axial cardiovascular MRI" in page


def test_names_are_those_of_today():
    study = present_document(json.loads(json.dumps(DOCUMENT)))
    assert study["modes"] == ["frozen"] == [entry["mode"] for entry in study["entries"]]
    assert study["settings"]["preset"] == {
        "name": "demo", "pretraining.rounds": 4, "lr_moco": 0.05, "pretraining.calibration_rounds": 2,
    }  # fmt: skip
    assert [one["name"] for one in study["settings"]["target"]["structures"]] == ["MYO", "BP"]
