"""Turns the user's input into the volumes to segment."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from fclseg.anatomy.families import plain
from fclseg.anatomy.folders import scan_folder
from fclseg.anatomy.nifti import Header, is_nifti, read_header, stem
from fclseg.anatomy.records import Volume
from fclseg.errors import DataError


@dataclass(frozen=True)
class Cases:
    """The volumes to segment, and one sentence for each file that cannot be segmented."""

    volumes: tuple[Volume, ...]
    refused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.volumes)

    def __iter__(self) -> Iterator[Volume]:
        return iter(self.volumes)

    def by_patient(self) -> Iterator[tuple[str, list[Volume]]]:
        for patient, group in groupby(self.volumes, key=lambda volume: volume.patient):
            yield patient, list(group)


def find_cases(
    input: str | None = None,
    ed: str | None = None,
    es: str | None = None,
    output_dir: str | None = None,
    all_phases: bool = False,
) -> Cases:
    """A NIfTI file (3D, or 4D for a cine), a folder of any known anatomy, or the two phases of one patient.

    Results must not be written to an input folder, because the next run would take them for images.
    """
    if ed is not None or es is not None:
        if ed is None or es is None or input is not None:
            raise DataError("a pair of phases needs both --ed FILE and --es FILE, and no --input")
        if Path(ed).resolve() == Path(es).resolve():
            raise DataError(f"{ed}: is given as both ED and ES; give one file per phase")
        patient = stem(Path(ed))
        return Cases(
            tuple(one for path, phase in ((ed, "ED"), (es, "ES")) for one in _file(Path(path), patient, phase))
        )
    if input is None:
        raise DataError("there is nothing to segment: give --input FILE_OR_FOLDER, or --ed FILE and --es FILE")
    path = Path(input)
    if path.is_dir() and output_dir is not None and Path(output_dir).resolve().is_relative_to(path.resolve()):
        raise DataError(f"output_dir {output_dir} is inside the input folder: choose a folder outside of it")
    if path.is_dir():
        return _folder(path, all_phases)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; check the path")
    return Cases(tuple(_file(path, stem(path), None)))


def _file(path: Path, patient: str, phase: str | None) -> list[Volume]:
    if path.exists() and not is_nifti(path):
        raise DataError(f"{path}: does not have the name of a NIfTI file; convert the images to .nii or .nii.gz first")
    header = read_header(path)
    storage = header.storage(plain.ANATOMY.slice_axis)
    spacing = storage.spacing(header.spacing)
    volume = Volume(patient, None, phase, path, None, spacing, plain.ANATOMY, storage=storage)
    if len(header.shape) == 3:
        return [volume]
    if len(header.shape) != 4 or phase is not None:
        raise DataError(f"{path}: is {len(header.shape)}D, but a 3D volume is expected; split it into its time points")
    return _frames(volume, header)


def _frames(volume: Volume, header: Header) -> list[Volume]:
    return [replace(volume, frame=index + 1, time_index=index) for index in range(header.shape[3])]


def _folder(path: Path, all_phases: bool) -> Cases:
    """Every 3D file, and of a cycle the frames named as ED or ES; all frames if none is named or all are wanted."""
    scan = scan_folder(path)
    refused = tuple(problem for problem in scan.problems if problem not in scan.training_only)
    chosen: list[Volume] = []
    for _, group in groupby(scan.volumes, key=lambda volume: volume.patient):
        volumes = list(group)
        cycle = [volume for volume in volumes if volume.time_index is not None]
        frames = [volume for volume in volumes if volume.time_index is None]
        named = frames + [volume for volume in cycle if volume.phase is not None]
        if all_phases and cycle:
            chosen += [replace(volume, phase=None) for volume in _whole_cycle(cycle)]
        else:
            chosen += named or cycle
    if not chosen:
        raise DataError(refused[0] if refused else f"{path}: contains no image that can be segmented; check the folder")
    return Cases(tuple(chosen), refused)


def _whole_cycle(cycle: list[Volume]) -> list[Volume]:
    """All frames of a 4D file, including those that also have their own files."""
    return _frames(replace(cycle[0], label=None), read_header(cycle[0].image))


def output_names(cases: Sequence[Volume]) -> list[str]:
    """The stems of the files to write. If two inputs have the same name, the folder's name is put in front.

    For the two phases of a pair even that can be the same (``ED/anna/1.nii`` and ``ES/anna/1.nii``). Then the phase is
    added.
    """
    names = [
        stem(case.image) if case.time_index is None or case.phase is None else f"{stem(case.image)}_{case.phase}"
        for case in cases
    ]
    owners = {(name, case.image) for name, case in zip(names, cases, strict=True)}
    for prefixes in ([case.image.parent.name for case in cases], [case.phase for case in cases]):
        count = Counter(name for name, _ in owners)
        names = [name if count[name] == 1 else f"{prefix}_{name}" for name, prefix in zip(names, prefixes, strict=True)]
        owners = {(name, case.image) for name, case in zip(names, cases, strict=True)}
    return names
