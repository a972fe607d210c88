"""The wheel, installed into a new environment and used in an empty folder, far from any source checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from fclseg.finetune.weights import RECIPES
from fclseg.methods.exchange import ROWS

CHECKOUT = Path(__file__).resolve().parents[2]
CONTAINERFILE = CHECKOUT / "deploy" / "Containerfile"
COPIES = re.findall(r"^COPY (.+)$", CONTAINERFILE.read_text(), re.MULTILINE)
SOURCES = [name for line in COPIES for name in line.split()[:-1]]
"""What the container's file copies: a wheel that can be built from it is a package that the container can install."""
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.egg-info", "eval")

pytestmark = [pytest.mark.nightly, pytest.mark.simulator]


def run(command, **options):
    """The output of a command that must succeed; printed, so that ``pytest -s`` shows it."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    print(f"$ {' '.join(map(str, command))}\n{done.stdout}", flush=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources, so that leftovers of an earlier build are not included."""
    folder = tmp_path_factory.mktemp("build")
    (folder / "source").mkdir()
    for name in SOURCES:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / "source" / name, symlinks=True, ignore=NOT_SOURCES)
        else:
            shutil.copy2(source, folder / "source" / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    run([*pip, "--wheel-dir", folder, folder / "source"])
    (path,) = folder.glob("fclseg-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel. It uses the dependencies of this one, because torch is too large to copy."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel])
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture(scope="module")
def shell(installed, tmp_path_factory):
    """Runs a command line of the new environment in an empty folder, without a trace of this one's settings."""
    work = tmp_path_factory.mktemp("empty")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FCLSEG"))}
    kept |= {"PATH": f"{installed / 'bin'}:{os.environ['PATH']}", "FCLSEG_CACHE": str(work.with_name("cache"))}
    return lambda line: run(["bash", "-ec", line], cwd=work, env=kept)


def test_bundles_and_jobs_are_in_the_wheel_as_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        content = {info.filename: info for info in archive.infolist()}
        for bundle in ("acdc_unet", "hvsmr_unet", "nifti_unet"):
            for name in ("train", "evaluate", "inference", "metadata"):
                path = f"bundles/{bundle}/configs/{name}.json"
                assert archive.read(f"fclseg/{path}") == (CHECKOUT / path).read_bytes()
        committed = [path for path in (CHECKOUT / "jobs").rglob("*") if path.is_file()]
        for path in committed:
            assert archive.read(f"fclseg/{path.relative_to(CHECKOUT)}") == path.read_bytes()
    assert {f"fclseg/jobs/{job}/meta.json" for job in ROWS} <= set(content)
    assert not [name for name in content if name.startswith(("tests", "custom"))]
    weights = {f"fclseg/{recipe.path.relative_to(CHECKOUT)}" for recipe in RECIPES.values()}
    calibrations = {
        f"fclseg/{path.relative_to(CHECKOUT)}" for path in CHECKOUT.glob("bundles/*/models/*_calibration.json")
    }
    assert calibrations and {name for name in content if "/models/" in name} == weights | calibrations


def test_the_package_is_the_wheels(shell, installed):
    assert shell("python -c 'import fclseg; print(fclseg.__file__)'").startswith(str(installed))
    paths = shell("python -c 'import sys; print(*sys.path, sep=chr(10))'").split()
    assert not [path for path in paths if (Path(path).parent / "bundles").is_dir()]
    assert shell("fclseg where acdc_unet").startswith(str(installed))


def test_pretraining(shell):
    output = shell("fclseg pretrain --job fclopt_dp --preset demo --rounds 2")
    assert output.startswith("FCLOpt-PTNU-DP, preset demo, 2 sites, 2 rounds")
    shell("test -s runs/fclopt_dp-demo/encoder.safetensors")


def test_a_study(shell):
    shell(
        "fclseg study local --preset demo --methods random,fclopt_dp --labels 1 --folds 1 --sites 2 --patients 4 "
        "--rounds 1 --set finetuning.epochs=2"
    )
    shell("test -s studies/local/report.html")


def test_bundle_training_and_inference(shell):
    shell("fclseg data phantom --out data --patients 3")
    bundle = 'python -m monai.bundle run --bundle_root "$B" --meta_file "$B/configs/metadata.json"'
    shell(
        f'B="$(fclseg where acdc_unet)"; {bundle} --config_file "$B/configs/train.json" --dataset_dir data '
        "--output_dir trained --preset demo --epochs 2"
    )
    output = shell(
        f'B="$(fclseg where acdc_unet)"; {bundle} --config_file "$B/configs/inference.json" --input data/patient001 '
        "--checkpoint trained/model.safetensors --output_dir segmented"
    )
    assert "1 patient written to segmented" in output
    shell("test -s segmented/measurements.csv; test $(ls segmented/*_seg.nii.gz | wc -l) = 2")
