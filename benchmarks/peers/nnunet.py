"""nnU-Net, trained for a given CPU time: its own planning, preprocessing, network, augmentation, loss and prediction.

It lives in an environment of its own and is not a dependency of this project. What only its image readers, plots and
transformers need is left out of that environment, because those packages bring another build of torch.
"""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

from fclseg.anatomy.records import Volume

HERE = Path(__file__).resolve().parent
DATASET, NAME = "501", "Dataset501_Peer"
CONFIGURATION, FOLD, TRAINER = "2d", "all", "CpuBudgetTrainer"
ITSELF = ("nnunetv2==2.8.1", "dynamic-network-architectures", "batchgenerators", "batchgeneratorsv2", "acvl-utils")
NEEDED = (
    *("nibabel", "SimpleITK", "scipy", "scikit-image", "scikit-learn", "matplotlib", "pandas", "tqdm", "tifffile"),
    *("einops", "blosc2", "requests", "seaborn", "connected-components-3d", "fft-conv-pytorch", "threadpoolctl"),
)


def environment(folder: Path) -> Path:
    """The environment's folder of programs, installed if it is not there, with our trainer among nnU-Net's."""
    programs = folder / "bin"
    if not (programs / "nnUNetv2_train").exists():
        print(f"installing nnU-Net into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        for packages in (("torch==2.13.0",), NEEDED, ("--no-deps", *ITSELF)):
            subprocess.run([programs / "pip", "install", "--quiet", *packages], check=True)
    found = subprocess.run(
        [programs / "python", "-c", "import nnunetv2; print(nnunetv2.__path__[0])"], check=True, capture_output=True
    )
    trainers = Path(found.stdout.decode().strip()) / "training" / "nnUNetTrainer"
    shutil.copy(HERE / "nnunet_trainer.py", trainers / f"{TRAINER}.py")
    return programs


class NNUNet:
    """``train`` and ``predict`` with all of its files in ``folder``. Programs are those of ``environment``."""

    def __init__(self, programs: Path, folder: Path, batch: int | None) -> None:
        self.programs, self.folder = programs, folder
        self.settings = {
            **os.environ,
            **{f"nnUNet_{name}": str(folder / name) for name in ("raw", "preprocessed", "results")},
            "nnUNet_compile": "f",
            "OMP_NUM_THREADS": "1",
            "nnUNet_n_proc_DA": "1",
            "PEER_BATCH": "" if batch is None else str(batch),
        }

    def train(self, volumes: Sequence[Volume], structures: dict[str, int], cpu_seconds: float) -> dict[str, float]:
        """Returns the steps, the images in a step and the CPU seconds of training."""
        shutil.rmtree(self.folder, ignore_errors=True)
        raw = self.folder / "raw" / NAME
        self._copy_images(volumes, raw / "imagesTr")
        (raw / "labelsTr").mkdir()
        for volume in volumes:
            shutil.copy(str(volume.label), raw / "labelsTr" / f"{case(volume)}.nii.gz")
        about = {"channel_names": {"0": "cineMRI"}, "labels": {"background": 0, **structures}}
        about |= {"numTraining": len(volumes), "file_ending": ".nii.gz"}
        (raw / "dataset.json").write_text(json.dumps(about, indent=2))
        self._run("nnUNetv2_plan_and_preprocess", "-d", DATASET, "-c", CONFIGURATION, "-np", 1, "-npfp", 1)
        self.settings["PEER_CPU_SECONDS"] = str(cpu_seconds)
        # Augmentation in the training process, where its CPU time is counted. Planning does not accept a zero.
        self.settings["nnUNet_n_proc_DA"] = "0"
        self._run("nnUNetv2_train", DATASET, CONFIGURATION, FOLD, "-device", "cpu", "-tr", TRAINER)
        (budget,) = (self.folder / "results").glob("**/budget.json")
        spent: dict[str, float] = json.loads(budget.read_text())
        return spent

    def predict(self, volumes: Sequence[Volume]) -> Path:
        """A folder with one label map for each volume."""
        self._copy_images(volumes, self.folder / "test")
        places = ("-i", self.folder / "test", "-o", self.folder / "predicted")
        trained = ("-d", DATASET, "-c", CONFIGURATION, "-f", FOLD, "-tr", TRAINER)
        self._run("nnUNetv2_predict", *places, *trained, "-device", "cpu", "-npp", 1, "-nps", 1)
        return self.folder / "predicted"

    def _copy_images(self, volumes: Sequence[Volume], folder: Path) -> None:
        folder.mkdir(parents=True)
        for volume in volumes:
            shutil.copy(volume.image, folder / f"{case(volume)}_0000.nii.gz")

    def _run(self, program: str, *arguments: object) -> None:
        """Its output goes to a file, whose end is shown if it fails."""
        log = self.folder / f"{program}.log"
        with open(log, "w") as stream:
            done = subprocess.run(
                [self.programs / program, *map(str, arguments)], env=self.settings, stdout=stream, stderr=stream
            )
        if done.returncode:
            raise SystemExit(f"{program} failed; the end of {log}:\n{log.read_text()[-2000:]}")


def case(volume: Volume) -> str:
    return volume.image.name.removesuffix(".nii.gz")
