"""What a clinician's odd inputs give: each is made from phantoms, run through the command, and written with its output.

    python benchmarks/clinic_walk.py --out DIR            # DIR/clinic_walk.csv

Needs dcmtk for the compressed export.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom

from fclseg.cli import main as fclseg
from fclseg.phantom.dataset import write_phantom
from fclseg.resources import shipped_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "dicom"))
from series_writer import directions, write_series  # a cine series as a scanner exports it

SPACING, PHASES = (1.5, 1.5, 10.0), 4
Files = list[Path]


class Walk:
    """Phantoms, and one function per odd input: it fills a folder and returns what the command is given."""

    def __init__(self, out: Path):
        self.out = out
        write_phantom(out / "phantoms", "acdc", patients=2, seed=3, frames=PHASES)
        self.patients = sorted((out / "phantoms").glob("patient*"))
        cine = nib.load(next(self.patients[0].glob("*_4d.nii.gz")))
        self.voxels = np.asarray(cine.dataobj).astype(np.uint16)[:, :, ::-1]  # scanners begin at the apex

    def export(self, folder: Path, **options: object) -> Files:
        write_series(folder, self.voxels, SPACING, **options)
        for path in folder.iterdir():
            _change(path, SeriesDescription="cine SAX", PatientSex="F", PatientAge="063Y")
        return sorted(folder.iterdir())

    def plain(self, folder: Path) -> Path:
        self.export(folder)
        return folder

    def jpeg(self, folder: Path) -> Path:
        for path in self.export(folder):
            subprocess.run(["dcmcjpeg", "+e1", path, path], check=True)
        return folder

    def truncated(self, folder: Path) -> Path:
        for path in self.export(folder):
            path.write_bytes(path.read_bytes()[:-5000])
        return folder

    def repeated_breath_hold(self, folder: Path) -> Path:
        like = pydicom.dcmread(self.export(folder)[0])
        again = folder.with_name(f"{folder.name} again")
        for path in self.export(again):
            image = pydicom.dcmread(path)
            if (image.InstanceNumber - 1) // PHASES == 3:
                tags = {name: like[name].value for name in ("StudyInstanceUID", "SeriesInstanceUID")}
                tags |= {"FrameOfReferenceUID": like.FrameOfReferenceUID, "InstanceNumber": 1000 + image.InstanceNumber}
                _change(path, **tags)
                path.rename(folder / f"again{path.name}")
        shutil.rmtree(again)
        return folder

    def lost_phase(self, folder: Path) -> Path:
        _one(self.export(folder), lambda image: image.InstanceNumber == 3 * PHASES + 2).unlink()
        return folder

    def uneven_gaps(self, folder: Path) -> Path:
        normal = np.cross(*directions())
        for path in self.export(folder):
            image = pydicom.dcmread(path)
            if (image.InstanceNumber - 1) // PHASES >= 5:
                place = np.array(image.ImagePositionPatient, float) + normal
                _change(path, ImagePositionPatient=[float(f"{value:.6f}") for value in place])
        return folder

    def axial_beside(self, folder: Path) -> Path:
        study = pydicom.dcmread(self.export(folder / "cine")[0]).StudyInstanceUID
        for path in self.export(folder / "axial"):
            slice_number = (pydicom.dcmread(path).InstanceNumber - 1) // PHASES
            place = {"ImagePositionPatient": [-80.0, -60.0, 10.0 * slice_number], "StudyInstanceUID": study}
            turned = {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "SeriesDescription": "axial"}
            _change(path, **place, **turned)
        return folder

    def twice(self, folder: Path) -> Path:
        self.export(folder / "a")
        shutil.copytree(folder / "a", folder / "b")
        return folder

    def one_file(self, folder: Path) -> Path:
        return self.export(folder)[0]

    def zipped(self, folder: Path) -> Path:
        files = self.export(folder)
        with zipfile.ZipFile(folder / "exam.zip", "w") as archive:
            for path in files:
                archive.write(path, path.name)
        return folder / "exam.zip"

    def without_preamble(self, folder: Path) -> Path:
        for path in self.export(folder):
            image = pydicom.dcmread(path)
            with open(path, "wb") as file:
                raw = pydicom.filebase.DicomIO(file)
                raw.is_little_endian, raw.is_implicit_VR = True, True
                pydicom.filewriter.write_dataset(raw, image)
        return folder

    def frames(self, folder: Path, names: dict[str, str], patient: int = 0) -> Path:
        """Frames of a phantom under other names."""
        folder.mkdir(parents=True, exist_ok=True)
        source = self.patients[patient]
        lines = dict(line.split(": ", 1) for line in (source / "Info.cfg").read_text().splitlines() if ": " in line)
        for phase, name in names.items():
            shutil.copy(source / f"{source.name}_frame{int(lines[phase]):02d}.nii.gz", folder / f"{name}.nii.gz")
        return folder

    def flat(self, folder: Path) -> Path:
        for number in (0, 1):
            name = f"patient00{number + 1}_frame"
            self.frames(folder, {"ED": f"{name}01", "ES": f"{name}12"}, number)
        return folder

    def pair(self, folder: Path) -> Path:
        return self.frames(folder, {"ED": "scan ED", "ES": "scan ES"})

    def two_frames(self, folder: Path) -> Path:
        self.frames(folder, {"ED": "a", "ES": "b"})
        images = [nib.load(folder / f"{name}.nii.gz") for name in "ab"]
        both = np.stack([np.asarray(image.dataobj) for image in images], axis=-1)
        nib.save(nib.Nifti1Image(both, images[0].affine), folder / "cine.nii.gz")
        return folder / "cine.nii.gz"

    def changed(self, folder: Path, change: Callable[[np.ndarray], np.ndarray]) -> Path:
        """The pair with other voxels."""
        for path in self.pair(folder).iterdir():
            image = nib.load(path)
            nib.save(nib.Nifti1Image(change(np.asarray(image.dataobj)), image.affine), path)
        return folder

    def nan_padding(self, folder: Path) -> Path:
        return self.changed(
            folder, lambda voxels: np.pad(voxels * 1.0, ((8, 8), (8, 8), (0, 0)), constant_values=np.nan)
        )

    def swapped_slices(self, folder: Path) -> Path:
        return self.changed(folder, lambda voxels: voxels[:, :, [0, 1, 2, 4, 3, *range(5, voxels.shape[2])]])

    def mirrored(self, folder: Path) -> Path:
        return self.changed(folder, lambda voxels: voxels[::-1])


DEFECTS = {
    "a plain export: cautions, sex and age of the header": "plain",
    "JPEG Lossless fails with the wrong reason": "jpeg",
    "truncated DICOM likewise": "truncated",
    "one repeated breath-hold refuses the exam": "repeated_breath_hold",
    "one slice with one phase fewer": "lost_phase",
    "gaps of 10 and 11 mm": "uneven_gaps",
    "an axial stack becomes a second patient": "axial_beside",
    "the same export twice becomes more phases": "twice",
    "a single DICOM file is refused": "one_file",
    "a zip archive is refused": "zipped",
    "DICOM without preamble is refused": "without_preamble",
    "a flat folder of ACDC-named files is misread": "flat",
    "scan ED and scan ES in one folder are misread": "pair",
    "a cine of two frames gives no EF and no reason": "two_frames",
    "NaN padding is refused": "nan_padding",
    "swapped middle slices are silent": "swapped_slices",
    "RV and LV may be exchanged is never said": "mirrored",
}


def start_of_finetuning(out: Path) -> tuple[str, str]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        fclseg(["finetune", "--help"])
    words = " ".join(text.getvalue().split())
    return "fclseg finetune --help", words[words.index("--network FILE the network") :].split(" --preset")[0]


def bundle_elsewhere(out: Path) -> tuple[str, str]:
    bundle = shipped_model("acdc_unet").parents[1]
    config, given = bundle / "configs" / "inference.json", out / "inputs" / "pair"
    command = ["-m", "monai.bundle", "run", "--config_file", config, "--input", given, "--output_dir", out / "none"]
    said = subprocess.run([sys.executable, "-W", "ignore", *command], cwd=out, capture_output=True, text=True).stderr
    return "python -m monai.bundle run --config_file .../inference.json --input inputs/pair", said.splitlines()[-1]


def hash_of_the_model(out: Path) -> tuple[str, str]:
    weights = shipped_model("acdc_unet")
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    pages = {"report": next((out / "results").rglob("*_report.html")), "card": weights.parents[1] / "docs/weights.md"}
    found = {name: digest in path.read_text(encoding="utf-8") for name, path in pages.items()}
    return "sha256sum models/model.safetensors", "; ".join(f"the same in the {one}: {found[one]}" for one in found)


def codes_of_segments(out: Path) -> tuple[str, str]:
    objects = [pydicom.dcmread(path) for path in (out / "results" / "inputs" / "plain").glob("*.dcm")]
    segments = [one for one in objects if one.Modality == "SEG"]
    codes = {
        f"{segment.SegmentLabel}: {segment.SegmentedPropertyTypeCodeSequence[0].CodeMeaning}, "
        f"colour {list(segment.RecommendedDisplayCIELabValue)}"
        for one in segments
        for segment in one.SegmentSequence
    }
    series = len({one.SeriesInstanceUID for one in segments})
    return "dcmdump results/*.dcm", f"{len(segments)} phases in {series} series; " + "; ".join(sorted(codes))


OTHERS = {
    "fine-tuning starts from random weights by default": start_of_finetuning,
    "a bundle without --bundle_root: the error does not name it": bundle_elsewhere,
    "the model hash of the report is not the SHA-256 of the card": hash_of_the_model,
    "every segment coded Heart, no colours, one series per phase": codes_of_segments,
}


def _change(path: Path, **tags: object) -> None:
    image = pydicom.dcmread(path)
    for name, value in tags.items():
        setattr(image, name, value)
    image.save_as(path)


def _one(files: Files, fits: Callable[[pydicom.Dataset], bool]) -> Path:
    return next(path for path in files if fits(pydicom.dcmread(path)))


def run(given: Path, out: Path) -> str:
    """What the command prints, without the folders of this machine."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = fclseg(["segment", str(given), "--out", str(out / "results" / given.parent.name / given.name)])
    said = text.getvalue().replace(f"{out}/", "").strip()
    return f"{said}\n[exit code {code}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="for inputs, results and the table; emptied first")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    walk = Walk(out)
    with open(out / "clinic_walk.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["what was found before", "command", "output now"])
        for defect, name in DEFECTS.items():
            given = getattr(walk, name)(out / "inputs" / name)
            said = run(given, out)
            table.writerow([defect, f"fclseg segment {given.relative_to(out)} --out results", said])
            print(f"{defect}:\n{said}\n", flush=True)
        for defect, look in OTHERS.items():
            command, said = look(out)
            table.writerow([defect, command, said])
            print(f"{defect}:\n{said}\n", flush=True)


if __name__ == "__main__":
    main()
