"""The page of one patient: the caution about the RV, and that it fits a phone and two sheets of paper."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.inference.function import patient_result
from fclseg.inference.measure import Measurement
from fclseg.inference.overlay import write_overlay
from fclseg.inference.report.page import Provenance, write_index, write_patient
from fclseg.inference.values import Body

BROWSER = shutil.which("chromium")
PROVENANCE = Provenance("0.2.0", "model.safetensors", "0123456789abcdef", "small", ANATOMY.title, "20 phantoms " * 12)
SLICES = 11


def frame(number, lv, rv):
    """A frame of the cycle with the given volumes, split evenly between slices, and something to look at."""
    ml = {"RV": rv, "MYO": 110.0, "LV": lv}
    flags = [] if number > 1 else ["the outlined area has holes"]
    each = {name: [value / SLICES] * SLICES for name, value in ml.items()}
    return Measurement("Anna", None, "cine.nii.gz", ml, {"MYO": 115.5}, flags, number, each)


@pytest.fixture
def page(tmp_path):
    curve = [150, 140, 110, 80, 60, 75, 100, 120, 135, 145]
    result = patient_result("Anna", [frame(i + 1, v, 0.5 * v) for i, v in enumerate(curve)], ANATOMY, Body(170, 70, 65))
    labels = np.zeros((90, 90, SLICES), np.uint8)
    labels[30:60, 30:60], labels[38:52, 38:52], labels[15:30, 35:55] = 2, 3, 1
    pictures = []
    for phase in ("ED", "ES"):
        pictures.append(tmp_path / f"Anna_{phase}_overlay.png")
        voxels = np.random.default_rng(0).random(labels.shape)
        write_overlay(pictures[-1], voxels, labels, (1.5, 1.5, 8.0), ANATOMY, result.phases[phase])
    write_patient(tmp_path, "Anna", result, pictures, ANATOMY, PROVENANCE)
    calibrated = [replace(one, interval=(one.number, 1.3 * one.number)) for one in result.values]
    write_index(tmp_path, [replace(result, values=calibrated)], ["Bert: the image is constant"], ANATOMY, PROVENANCE)
    return tmp_path / "Anna_report.html"


def test_the_ejection_fraction_of_the_rv_carries_its_caution(page):
    text = page.read_text()
    (rv,) = (one for one in ANATOMY.measurements if isinstance(one, EjectionFraction) and one.structure == "RV")
    assert rv.caution and text.count(rv.caution.replace("'", "&#39;")) == 1
    assert text.count("<td>Ejection fraction *</td>") == 1 == text.count("<td>Ejection fraction</td>")
    left, right = text.index("Left ventricle (LV)"), text.index("Right ventricle (RV)")
    assert left < text.index("<td>Ejection fraction</td>") < right < text.index("<td>Ejection fraction *</td>")


def test_the_index_carries_the_caution_and_the_report_says_what_derived_values_come_from(page):
    index, report = (page.with_name("index.html").read_text(), page.read_text())
    assert index.count("<th>RV ejection fraction *</th>") == 1 == index.count("<th>LV ejection fraction</th>")
    assert '* <span class="notice">RV end-diastolic volume, RV ejection fraction</span>: less reliable' in index
    assert "Heart rate: 65 beats per minute" in report and "Body surface area: 1.82 m²" in report


def test_a_flag_of_both_phases_is_told_once():
    frames = [frame(number, volume, volume) for number, volume in ((1, 100), (2, 50), (3, 80))]
    frames[0].flags, frames[1].flags = ["dark", "cut"], ["dark"]
    assert patient_result("Anna", frames, ANATOMY, Body()).flags == ["ED, ES: dark", "ED: cut"]


def browse(*arguments, folder):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={folder}/profile", "--no-first-run", "--disable-background-networking", *arguments]
    return subprocess.run(command, capture_output=True, text=True).stdout


WIDER = """onload=()=>{const d=document.getElementById("f").contentDocument;
for(const e of d.querySelectorAll("details"))e.open=true;const w=d.documentElement.clientWidth;
const out=[...d.querySelectorAll("body *:not(figure img)")].filter(e=>
e.getBoundingClientRect().right>w+1||e.scrollWidth>e.clientWidth+1&&e.className=="scroll");
document.getElementById("w").textContent="outside: "+out.length}"""


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="needs a browser, which nothing else here does")
def test_it_fits_a_phone_a_tablet_and_two_sheets(page):
    folder = page.parent
    browse(f"--print-to-pdf={folder}/page.pdf", "--no-pdf-header-footer", f"file://{page}", folder=folder)
    assert re.findall(rb"/Count (\d+)", (folder / "page.pdf").read_bytes()) == [b"2"]
    for name, width in ((page.name, 390), ("index.html", 390), ("index.html", 820), ("index.html", 1200)):
        (folder / "phone.html").write_text(
            f'<iframe id="f" src="file://{folder}/{name}" style="width:{width}px;height:800px;border:0"></iframe>'
            f'<p id="w"></p><script>{WIDER}</script>'
        )
        answer = browse("--dump-dom", f"file://{folder}/phone.html", folder=folder)
        assert re.findall('<p id="w">(.*?)</p>', answer) == ["outside: 0"]
