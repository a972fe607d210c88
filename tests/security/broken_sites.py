"""Ways in which a site's images or settings can be broken, all with the name of a patient in them."""

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nibabel
import numpy as np

from fclseg.phantom.dataset import write_phantom

NAME = "Mueller_Anna_19470311"


@cache
def _template() -> tempfile.TemporaryDirectory:
    """A folder of one phantom patient with the name of a person, made once."""
    made = tempfile.TemporaryDirectory()
    write_phantom(Path(made.name) / "data", patients=1, frames=2)
    (patient,) = [path for path in (Path(made.name) / "data").iterdir() if path.is_dir()]
    for file in patient.iterdir():
        file.rename(file.with_name(file.name.replace(patient.name, NAME)))
    patient.rename(patient.with_name(NAME))
    return made


def healthy(folder: Path) -> None:
    """A fresh copy of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(_template().name) / "data", folder)


def image(data: Path) -> Path:
    return data / NAME / f"{NAME}_frame01.nii.gz"


def voxels(data: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    for path in (data / NAME).glob("*frame*[0-9].nii.gz"):
        source = nibabel.load(path)
        values = change(np.asarray(source.dataobj, dtype=np.float32))
        nibabel.save(nibabel.Nifti1Image(values, source.affine), path)


def settings(**values: object) -> Callable[[Path, dict], None]:
    return lambda data, own: own.update(values)


def folder(change: Callable[[Path], object]) -> Callable[[Path, dict], None]:
    def apply(data: Path, own: dict) -> None:
        change(data)

    return apply


def _splits(data: Path, own: dict, text: str) -> None:
    path = data.parent / f"{NAME}.json"
    path.write_text(text)
    own["splits"] = str(path)


def _replace_by_folder(data: Path) -> None:
    image(data).unlink()
    image(data).mkdir()


def _without_header(data: Path) -> None:
    image(data).write_bytes(gzip.compress(gzip.decompress(image(data).read_bytes())[400:]))


FAULTS: dict[str, Callable[[Path, dict], None]] = {
    "truncated": folder(lambda data: image(data).write_bytes(image(data).read_bytes()[:900])),
    "empty file": folder(lambda data: image(data).write_bytes(b"")),
    "not gzip": folder(lambda data: image(data).write_bytes(b"NIfTI of " + NAME.encode())),
    "garbage in gzip": folder(lambda data: image(data).write_bytes(gzip.compress(NAME.encode() * 200))),
    "no header": folder(_without_header),
    "nan": folder(lambda data: voxels(data, lambda values: values * np.nan)),
    "infinite": folder(lambda data: voxels(data, lambda values: values + np.inf)),
    "constant": folder(lambda data: voxels(data, np.zeros_like)),
    "wrong shape": folder(lambda data: voxels(data, lambda values: values[:-3])),
    "4D": folder(lambda data: voxels(data, lambda values: np.stack([values, values], -1))),
    "a folder in its place": folder(_replace_by_folder),
    "a link into nothing": folder(lambda data: (image(data).unlink(), image(data).symlink_to(f"/nowhere/{NAME}"))),
    "Info.cfg missing": folder(lambda data: (data / NAME / "Info.cfg").unlink()),
    "Info.cfg without ED": folder(lambda data: (data / NAME / "Info.cfg").write_text(f"Name: {NAME}\n")),
    "Info.cfg is binary": folder(lambda data: (data / NAME / "Info.cfg").write_bytes(b"\xff\xfe" + NAME.encode())),
    "another patient's file": folder(lambda data: shutil.copy(image(data), image(data).with_name("X_frame01.nii.gz"))),
    "patient twice": folder(lambda data: shutil.copytree(data / NAME, data / "copies" / NAME)),
    "empty patient": folder(lambda data: [path.unlink() for path in (data / NAME).iterdir()]),
    "no patient": folder(lambda data: shutil.rmtree(data / NAME)),
    "no data folder": settings(data=f"/data/{NAME}"),
    "no data at all": settings(data=None),
    "threads": settings(threads=NAME),
    "device": settings(device=NAME),
    "cache is a device": settings(cache=f"/dev/null/{NAME}"),
    "policy": settings(policy={NAME: 1}),
    "splits missing": settings(splits=f"/nowhere/{NAME}.json"),
    "splits are no JSON": lambda data, own: _splits(data, own, f"{NAME}: x"),
    "splits of others": lambda data, own: _splits(data, own, json.dumps({"sites": {NAME: [NAME]}})),
}


def break_site(data: Path, fault: str, own: dict) -> dict:
    """A healthy folder with one fault; returns the site's own settings."""
    healthy(data)
    own = {**own, "data": str(data)}
    FAULTS[fault](data, own)
    return own
