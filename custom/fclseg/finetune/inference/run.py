"""The whole of inference: every case segmented, drawn and measured, and all of it written to one folder."""

from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from tqdm import tqdm

from fclseg.anatomy.records import Volume
from fclseg.errors import DataError
from fclseg.files import make_folder, whole_file
from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.cases import output_names, read_case
from fclseg.finetune.inference.measure import Measurement, by_patient, ejection_fractions, measure, write_tables
from fclseg.finetune.inference.overlay import write_overlay
from fclseg.finetune.inference.segment import Segmenter


class Inference:
    """``run()`` writes NAME_seg.nii.gz and NAME_overlay.png per volume, measurements.csv and measurements.json."""

    def __init__(self, segmenter: Segmenter, cases: Sequence[Volume], output_dir: str | Path):
        self.segmenter, self.cases, self.output_dir = segmenter, cases, Path(output_dir)

    def run(self) -> list[Measurement]:
        """One bad file does not stop the others; it is named at the end."""
        make_folder(self.output_dir)
        measurements, refused = [], []
        names = output_names(self.cases)
        for case, name in tqdm(list(zip(self.cases, names, strict=True)), desc="segmenting", unit="volume"):
            try:
                measurements.append(self._one(case, name))
            except DataError as error:
                refused.append(str(error))
        if measurements:
            write_tables(self.output_dir, measurements, self.segmenter.model.anatomy)
            self._tell(measurements)
        if refused:
            raise DataError(f"{len(refused)} of {len(self.cases)} volumes refused: {' / '.join(refused)}")
        return measurements

    def _one(self, case: Volume, name: str) -> Measurement:
        image, voxels = read_case(case)
        labels = self.segmenter(voxels, case)
        anatomy = self.segmenter.model.anatomy
        voxel_mm3 = float(np.prod(case.spacing))
        result = measure(labels, voxel_mm3, anatomy, patient=case.patient, phase=case.phase, image=case.image.name)
        with whole_file(self.output_dir / f"{name}_seg.nii.gz") as draft:
            nib.save(label_image(labels, image), draft)
        with whole_file(self.output_dir / f"{name}_overlay.png") as draft:
            write_overlay(draft, voxels, labels, case.spacing, anatomy, result)
        return result

    def _tell(self, measurements: list[Measurement]) -> None:
        for patient, volumes in by_patient(measurements).items():
            for volume in volumes:
                amounts = ", ".join(f"{name} {value:.1f} ml" for name, value in volume.ml.items())
                masses = "".join(f", {name} {value:.1f} g" for name, value in volume.g.items())
                print(f"{patient} {volume.phase or ''}: {amounts}{masses}")
            for name, value in ejection_fractions(volumes, self.segmenter.model.anatomy).items():
                print(f"{patient}: {name} ejection fraction {value:.0f} %")
        print(f"{len(measurements)} volumes written to {self.output_dir}. {NOTICE}")


def label_image(labels: np.ndarray, image: nib.Nifti1Image) -> nib.Nifti1Image:
    """A label map with the input's own affine, voxel sizes and units."""
    header = image.header.copy()
    header.set_data_dtype(np.uint8)
    header["cal_min"] = header["cal_max"] = 0  # the display range of the grey values does not fit classes
    header["descrip"] = NOTICE.encode()[:79]
    return type(image)(labels, image.affine, header)
