"""The report as a cardiologist reads it: ranges, marks, one caution, one flag per failure, and no words on words."""

import hashlib
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.finetune.agreement import bland_altman, in_words
from fclseg.inference.calibration import Calibration
from fclseg.inference.function import patient_result
from fclseg.inference.measure import Measurement
from fclseg.inference.overlay import ABOVE, _wrapped, write_overlay
from fclseg.inference.ranges import age_remark, judge
from fclseg.inference.report.curve import LINE_HEIGHT, volume_curve
from fclseg.inference.report.earlier import Earlier
from fclseg.inference.report.page import Provenance, write_index, write_patient
from fclseg.inference.report.pdf import _values_page, write_pdf
from fclseg.inference.report.provenance import Provenance as Made
from fclseg.inference.stack import returns, stack_flags, swapped_slices
from fclseg.inference.tables import patient_values
from fclseg.inference.values import Body
from fclseg.networks.model_file import load_model
from fclseg.resources import shipped_model

PROVENANCE = Provenance("0.2.0", "model.safetensors", "0123456789abcdef", "small", ANATOMY.title, "phantoms")


def heart(body=None, lv=(150, 60), rv=(160, 70), myo=110.0, frames=("ED", "ES")):
    volumes = [
        Measurement("Anna", phase, "cine.nii.gz", {"RV": b, "MYO": myo, "LV": a}, {"MYO": 1.05 * myo}, [], number + 1)
        for number, (phase, a, b) in enumerate(zip(frames, lv, rv, strict=True))
    ]
    return patient_result("Anna", volumes, ANATOMY, body or Body())


def test_values_outside_the_range_of_the_patients_sex_are_marked():
    """An LV of 190 ml is normal in men (102 to 230) and large in women (82 to 166)."""
    for sex, outside in (("male", ""), ("female", "high"), (None, "")):
        judged = judge(heart(Body(180, 80, sex=sex), lv=(190, 80)), ANATOMY)
        assert judged["LV end-diastolic volume"].outside == outside
    assert judge(heart(lv=(300, 80)), ANATOMY)["LV end-diastolic volume"].outside == "high", "in both sexes"
    assert judge(heart(rv=(160, 110)), ANATOMY)["RV ejection fraction"].outside == "low"
    indexed = judge(heart(Body(180, 80, sex="male")), ANATOMY)  # 2.0 m2
    assert indexed["LV end-diastolic volume per body surface"].text == "men 60–109 ml/m²"
    assert indexed["RV end-diastolic volume per body surface"].text == "men 47–116 ml/m²"
    assert indexed["RV ejection fraction"].text == "men from 44 %"


def test_the_age_of_the_patient_is_used():
    assert judge(heart(Body(age=12)), ANATOMY) == {}
    for age, words in ((12, "those of adults"), (30, "aged 45 to 74"), (60, "")):
        result = heart(Body(age=age))
        remark = age_remark(result, judge(result, ANATOMY))
        assert words in remark and bool(remark) == bool(words)


def test_a_page_marks_values_and_tells_each_caution_and_source_once(tmp_path):
    result = heart(Body(180, 80, 60, "female", 60), lv=(190, 80))
    result.notes.append("series SAX: slice 3 was acquired 2 times; the last complete one is used")
    text = write_patient(tmp_path, "Anna", result, [], ANATOMY, PROVENANCE).read_text()
    assert '<td class="bad">190 ml high</td>' in text and "women 82–166 ml" in text and "men 102" not in text
    assert text.count("2017;19:18") == 1 and text.count("slice 3 was acquired 2 times") == 1
    for one in ANATOMY.measurements:
        if getattr(one, "caution", ""):
            assert text.count(one.caution.replace("'", "&#39;")) == 1


def test_an_earlier_exam_stands_beside_the_values_in_points_for_percentages(tmp_path):
    before = Earlier("Earlier exam (change)", {"LV ejection fraction": 65.0, "LV end-diastolic volume": 160.0})
    text = write_patient(tmp_path, "Anna", heart(), [], ANATOMY, PROVENANCE, before).read_text()
    assert "65 % (-5 points)" in text and "160 ml (-10 ml)" in text


def test_one_failure_is_one_flag():
    result = heart(Body(180, 80, 60), rv=(5, 4))
    flags = [flag for flag in result.flags if "not plausible" in flag]
    assert flags == [
        "not plausible: RV end-diastolic volume 5 ml, end-systolic volume 4 ml, ejection fraction 20 %, "
        "stroke volume 1 ml, cardiac output 0.1 l/min"
    ]


def test_a_cine_of_two_frames_has_an_ejection_fraction_and_two_files_have_a_reason():
    result = heart(frames=(None, None))
    assert result.value("LV ejection fraction").number == pytest.approx(60)
    assert result.notes == ["there are two frames: the one with the larger LV counts as ED, the other as ES"]
    assert heart().notes == [], "frames that Info.cfg names are no guess"
    volumes = [
        Measurement("A", None, f"{i}.nii.gz", {"RV": 90.0, "MYO": 100.0, "LV": 100.0 - i}, {"MYO": 105.0}, [], i)
        for i in (1, 2)
    ]
    result = patient_result("A", volumes, ANATOMY, Body())
    assert result.value("LV ejection fraction") is None and result.notes[0].startswith(
        "no ejection fraction: ED and ES"
    )


def test_names_of_curves_and_phases_do_not_overlap():
    volumes = [
        Measurement("A", None, "c", {"RV": 100.0 - i, "MYO": 90.0, "LV": 100.5 - i}, {"MYO": 95.0}, [], i + 1)
        for i in range(6)
    ]
    curve = volume_curve(patient_result("A", volumes, ANATOMY, Body()).volumes, ANATOMY)
    places = sorted(line["label"][1] for line in curve["lines"])
    assert places[1] - places[0] >= LINE_HEIGHT
    assert all(line["label"][0] > curve["plot"][2] for line in curve["lines"]), "right of the plot"


def test_the_flags_of_a_picture_have_lines_of_their_own(tmp_path):
    labels = np.zeros((40, 40, 6), np.uint8)
    labels[10:30, 10:30], labels[15:25, 15:25] = 2, 3
    from PIL import Image

    sizes = []
    for flags in ([], ["the outlined area has holes and something else is wrong with it, too"] * 4):
        one = Measurement("A long name of a patient " * 3, "ED", "i", {"RV": 1.0, "MYO": 2.0, "LV": 3.0}, flags=flags)
        write_overlay(tmp_path / "a.png", np.ones(labels.shape), labels, (1.5, 1.5, 8), ANATOMY, one)
        with Image.open(tmp_path / "a.png") as picture:
            sizes.append(picture.size)
            yellow = (np.asarray(picture.convert("RGB")) == (255, 209, 102)).all(axis=-1)
    assert sizes[1][1] > sizes[0][1] and not yellow[:ABOVE].any() and yellow[ABOVE:].any()
    assert len(_wrapped("word " * 400, 500)) > 4


def test_the_hash_in_the_report_is_that_of_the_card():
    path = shipped_model(ANATOMY.bundle)
    digest = Made.of(load_model(path), path).digest
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    card = Path(__file__).parents[2] / "bundles" / ANATOMY.bundle / "docs" / "weights.md"
    assert digest in card.read_text()


def test_the_index_grows_while_patients_are_waiting(tmp_path):
    write_index(tmp_path, [heart()], [], ANATOMY, PROVENANCE, waiting=7)
    text = (tmp_path / "index.html").read_text()
    assert "7 still to come" in text and 'http-equiv="refresh"' in text
    write_index(tmp_path, [heart()], [], ANATOMY, PROVENANCE)
    assert "refresh" not in (tmp_path / "index.html").read_text()


def test_measurements_have_codes_units_and_ranges():
    rows = {row["name"]: row for row in patient_values(heart(Body(sex="male")), ANATOMY)["coded"]}
    fraction = rows["LV ejection fraction"]
    assert (fraction["code"], fraction["scheme"], fraction["unit"], fraction["value"]) == ("8811-2", "LN", "%", 60.0)
    assert fraction["normal"] == "men 48–68 %" and rows["MYO mass"]["unit"] == "g"


def test_the_pdf_is_the_same_for_the_same_result(tmp_path):
    result = heart(Body(180, 80, 60, "male", 50))
    texts = [write_pdf(tmp_path, name, result, [], ANATOMY, PROVENANCE).read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1] and texts[0].startswith(b"%PDF-")
    assert re.search(rb"/Count 2\b", texts[0])


@pytest.mark.parametrize("earlier", [None, Earlier("Earlier exam of 2024-03-01 (change)", {"MYO mass": 220.0})])
@pytest.mark.parametrize("sex", ["male", None])
def test_no_words_of_the_pdf_are_on_other_words(earlier, sex):
    """As a renderer places them, with the longest values: intervals, marks, ranges of both sexes."""
    result = heart(Body(178, 182, 66, sex, 30), lv=(480, 20), rv=(30, 12), myo=290.0)
    result.values = [replace(one, interval=(one.number * 0.8, one.number * 1.2)) for one in result.values]
    result.about_intervals = "In brackets: where an expert's value is expected with 90 %"
    figure = _values_page(result, ANATOMY, PROVENANCE, earlier)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(one.get_text(), one.get_window_extent(renderer)) for one in figure.texts if one.get_text()]
    assert any(text.endswith("high") for text, _ in boxes) and any("m² (Mosteller" in text for text, _ in boxes)
    for (first, one), (second, two) in combinations(boxes, 2):
        assert not one.overlaps(two), (first, second)
    assert all(box.x1 <= figure.bbox.x1 for _, box in boxes)


def test_a_page_says_what_brackets_mean(tmp_path):
    result = heart()
    result.about_intervals = Calibration("", 66, (), 0.9, {}, {}).about_intervals
    text = write_patient(tmp_path, "Anna", result, [], ANATOMY, PROVENANCE).read_text()
    assert "expected with 90 %, from 66 labelled patients." in text


def test_no_change_is_no_negative_zero():
    earlier = Earlier("", {"LV ejection fraction": 60.3})
    assert earlier.change(heart().value("LV ejection fraction")) == "60 % (+0 points)"


def cone(slices=10):
    """A heart that gets smaller from base to apex, with the RV where it usually is."""
    x, y, s = np.meshgrid(np.arange(60), np.arange(60), np.arange(slices), indexing="ij")
    labels = np.zeros(x.shape, np.uint8)
    size = 14 - s
    labels[np.hypot(x - 22, y - 34) < size] = 1
    labels[np.hypot(x - 36, y - 30) < size] = 2
    labels[np.hypot(x - 36, y - 30) < size - 4] = 3
    noise = np.random.default_rng(0).normal(0, 0.05, labels.shape)
    return np.array([0.1, 1.0, 0.2, 0.9])[labels] + noise, labels


def test_swapped_slices_and_exchanged_ventricles_are_noticed():
    voxels, labels = cone()
    spacing = (1.5, 1.5, 8.0)
    assert stack_flags(voxels, labels, spacing, ANATOMY) == []
    order = [0, 1, 2, 4, 3, 5, 6, 7, 8, 9]
    assert swapped_slices(voxels[..., order], labels[..., order], spacing) == 3
    (flag,) = stack_flags(voxels[..., order], labels[..., order], spacing, ANATOMY)
    assert flag.startswith("slices 4 and 5 may be swapped")
    (flag,) = stack_flags(voxels, np.array([0, 3, 2, 1], np.uint8)[labels], spacing, ANATOMY)
    assert "RV and LV may be exchanged" in flag
    (flag,) = stack_flags(voxels[::-1], labels[::-1], spacing, ANATOMY)
    assert "or the image is mirrored" in flag


def test_a_cavity_that_vanishes_and_returns_is_noticed():
    assert returns(np.array([0, 30, 100, 80, 60, 12, 30])) == []  # nearly gone is less than a tenth
    assert returns(np.array([0, 30, 100, 80, 9, 21, 0])) == [(4, 5)]
    assert returns(np.array([40, 0, 100, 80, 9, 20, 0])) == [(1, 0)]
    assert returns(np.zeros(5, int)) == []
    voxels, labels = cone()
    labels[:, :, 3][labels[:, :, 3] == 3] = 0
    flags = stack_flags(voxels, labels, (1.5, 1.5, 8.0), ANATOMY)
    assert "LV nearly vanishes in slice 4 and is back in slice 5: check both slices" in flags


def test_limits_of_agreement_need_two_patients_and_percentages_differ_by_points():
    assert in_words(bland_altman([(51.5, 50.0)], "%")) == "bias +1.5 points in one patient: limits need two or more"
    words = in_words(bland_altman([(51.0, 50.0), (53.0, 50.0)], "%"))
    assert words == "bias +2.0 points, limits -0.8 to +4.8", "1.96 times the standard deviation of 1 and 3"
