"""``fclseg evaluate`` on tiny label maps whose scores are known by counting."""

import json

import nibabel as nib
import numpy as np
import pytest

from fclseg.api import evaluate
from fclseg.cli import main
from fclseg.errors import DataError
from fclseg.evaluation.people import Person, halved

SHAPE = (12, 12, 3)


def bar(value, rows, into=None):
    """A label map with a structure in the first ``rows`` rows of a column that is its own."""
    labels = np.zeros(SHAPE, np.uint8) if into is None else into
    labels[:rows, value * 3] = value
    return labels


def save(path, labels, spacing=(1.0, 1.0, 10.0)):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(labels, np.diag([*spacing, 1.0])), path)


def add_patient(root, name, truths, info=""):
    """Two frames, ED is 1 and ES is 2, with the given label maps."""
    for frame, truth in enumerate(truths, start=1):
        save(
            root / name / f"{name}_frame{frame:02d}.nii.gz",
            np.random.default_rng(frame).integers(0, 99, SHAPE, np.uint8),
        )
        save(root / name / f"{name}_frame{frame:02d}_gt.nii.gz", truth)
    (root / name / "Info.cfg").write_text(f"ED: 1\nES: 2\n{info}")


@pytest.fixture
def folders(tmp_path):
    """Two patients of two hospitals. The LV has 10 rows at ED and 4 at ES; the results have 8 and 4."""
    labelled, results = tmp_path / "clinic", tmp_path / "results"
    truths = [bar(3, rows, bar(1, 6)) for rows in (10, 4)]
    found = [bar(3, rows, bar(1, 6)) for rows in (8, 4)]
    for name, info in (
        ("p1", "Centre: 1\nGroup: DCM\nVendor: A\n"),
        ("p2", "Centre: 2\nGroup: NOR\nSpacing: nominal\n"),
    ):
        add_patient(labelled, name, truths, info)
        for frame, labels in enumerate(found, start=1):
            save(results / f"{name}_frame{frame:02d}_seg.nii.gz", labels)
    return results, labelled


def test_scores_are_those_counted_by_hand(folders, tmp_path):
    evaluated = evaluate([folders], tmp_path / "out")
    first = next(row for row in evaluated.patients if row["patient"] == "p1")
    assert first["dice_LV"] == pytest.approx((2 * 8 / 18 + 1) / 2, abs=1e-5)
    assert first["dice_RV"] == 1
    assert first["dice_MYO"] is None  # no expert outlined it
    assert first["dice"] == pytest.approx((first["dice_LV"] + 1) / 2)
    assert (first["ef_LV"], first["true_ef_LV"]) == (50.0, 60.0)
    assert first["volume_percent_LV_ED"] == -20 and first["volume_percent_LV_ES"] == 0
    volume = evaluated.volumes[0]
    assert volume["true_ml_LV"] == pytest.approx(10 * 3 * 10 / 1000) and volume["ml_LV"] == pytest.approx(0.24)
    assert volume["hd95_LV"] == pytest.approx(2)  # two rows of 1 mm are missing at one end
    nominal = next(row for row in evaluated.volumes if row["patient"] == "p2")
    assert "hd95_LV" not in nominal


def test_hospitals_and_groups_have_their_own_lines(folders, tmp_path):
    evaluate([folders], tmp_path / "out")
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert set(found["hospitals"]) == {"clinic 1", "clinic 2"} and set(found["groups"]) == {"DCM", "NOR"}
    assert found["hospitals"]["clinic 1"]["patients"] == 1
    assert found["all"]["ef_LV_error"] == 10 and found["all"]["ef_LV_bias"] == -10
    assert (tmp_path / "out" / "patients.csv").read_text().count("\n") == 3


def test_a_table_of_patients_comes_before_info(folders, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("patient,hospital,group\np1,North,MINF\n")
    evaluated = evaluate([folders], patients=table)
    assert [(row["hospital"], row["group"]) for row in evaluated.patients] == [("North", "MINF"), ("clinic 2", "NOR")]


def test_results_of_a_whole_cycle_are_found_by_frame(folders, tmp_path):
    _, labelled = folders
    cycle = np.stack([bar(3, rows, bar(1, 6)) for rows in (10, 4)], axis=-1)
    save(tmp_path / "cycles" / "p1_4d_seg.nii.gz", cycle)
    evaluated = evaluate([(tmp_path / "cycles", labelled)])
    assert [row["dice"] for row in evaluated.patients] == [1]
    assert evaluated.missing == ["clinic 2 p2"]


def test_halves_are_equal_within_each_hospital_and_group_and_fixed():
    people = [Person(f"p{i:02d}", "AB"[i % 2], group="XY"[i // 10]) for i in range(20)]
    found = halved(people)
    for hospital in "AB":
        for group in "XY":
            names = [one.patient for one in people if (one.hospital, one.group) == (hospital, group)]
            assert [found[name].half for name in names] == ["choose", "report"] * 2 + ["choose"]
    assert halved(people[::-1]) == found


def test_half_and_few_restrict_the_patients(folders):
    assert len(evaluate([folders], half="choose").patients) == 2
    with pytest.raises(DataError):
        evaluate([folders], half="report")
    assert len(evaluate([folders], per_group=1).patients) == 2


def test_flags_of_the_results_are_counted(folders):
    results, _ = folders
    flags = {"p1": {"look_at": ["LV is missing"]}, "p2": {"look_at": []}}
    (results / "measurements.json").write_text(json.dumps({"patients": flags}))
    whole = evaluate([folders]).figures()["all"]
    assert (whole["bad"], whole["good"], whole["good_flagged"]) == (0, 2, 1)  # an error of exactly 10 points is not bad


def test_the_command_prints_the_table_and_refuses_half_a_pair(folders, capsys):
    assert main(["evaluate", *map(str, folders), "--no-hd95"]) == 0
    shown = capsys.readouterr().out
    assert "clinic 1" in shown and "-20%" in shown and "10.0" in shown
    assert main(["evaluate", str(folders[0])]) == 1
    assert "pairs" in capsys.readouterr().err


def test_a_label_map_on_another_grid_is_refused(folders):
    results, _ = folders
    save(results / "p1_frame01_seg.nii.gz", np.zeros((12, 12, 4), np.uint8))
    with pytest.raises(DataError, match="p1_frame01_seg"):
        evaluate([folders])


def test_the_page_shows_hospitals_groups_and_the_worst_patient(folders, tmp_path):
    results, _ = folders
    (results / "p1_frame01_overlay.png").write_bytes(b"picture")
    evaluate([folders], tmp_path / "out")
    page = (tmp_path / "out" / "evaluation.html").read_text()
    assert "clinic 1" in page and "NOR" in page and "cGljdHVyZQ==" in page and "-20%" in page


def test_slices_that_nobody_labelled_do_not_count(folders):
    results, labelled = folders
    partly = bar(3, 10, bar(1, 6))
    partly[..., 0] = 255
    save(labelled / "p1" / "p1_frame01_gt.nii.gz", partly)
    wrong = bar(3, 8, bar(1, 6))
    wrong[..., 0] = 1
    save(results / "p1_frame01_seg.nii.gz", wrong)
    volume = evaluate([folders]).volumes[0]
    assert volume["dice_LV"] == pytest.approx(2 * 8 / 18, abs=1e-5) and volume["dice_RV"] == 1
    assert volume["true_ml_LV"] is None
