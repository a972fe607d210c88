"""One labelling session: the data, the outlines, the labels, and what is to be labelled next. The page asks it."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import scan_folder
from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import UNLABELLED, labelled_slices
from fclseg.errors import DataError, FCLSegError
from fclseg.labelling.background import Background
from fclseg.labelling.candidates import candidates_of
from fclseg.labelling.changes import change_of
from fclseg.labelling.folder import LabelFolder
from fclseg.labelling.numbers import numbers_of
from fclseg.labelling.outlines import Outliner
from fclseg.labelling.phases import find_phases
from fclseg.labelling.proposal import Candidate, propose
from fclseg.labelling.records import DONE, DRAFT, EXCLUDED, OPEN, STATES, Records, SliceRecord

MODELS = "models"
FROM_DATA = "data set"
"""Who labelled the label maps that the data set came with."""


@dataclass(frozen=True)
class Slice:
    """One slice as a window of the browser changed it."""

    volume: int
    number: int
    revision: int  # the one that the window had read
    state: str
    seconds: float
    plane: np.ndarray | None = None  # [X, Y]; None keeps the outlines as they are


class Session:
    """All methods may be called from several threads."""

    def __init__(
        self,
        data: Path,
        out: Path,
        model: Path,
        who: str,
        count: int = 20,
        trained: Path | None = None,
        single_slices: bool = False,
    ):
        """``trained`` is the network of an earlier training on these labels. Its outlines are shown instead.

        ``single_slices``: in label maps that another program wrote, slices without any structure are not labelled.
        """
        self.single_slices = single_slices
        self.data, self.out, self.who, self.count = data.resolve(), out.resolve(), who, count
        if self.out == self.data or self.out.is_relative_to(self.data) or self.data.is_relative_to(self.out):
            raise DataError(f"{out}: labels and data must be in separate folders; choose another --out")
        self.lock = threading.RLock()
        scan = scan_folder(self.data)
        self.problems = {"": [problem for problem in scan.problems if problem not in scan.training_only]}
        self.folder, self.records = LabelFolder(self.out, self.data), Records(self.out)
        self.start, self.outliner = model, Outliner(trained or model)
        self.before: Outliner | None = None  # the network before the last training
        self.anatomy = self.outliner.model.anatomy
        self.volumes = scan.volumes
        self._check_anatomy(scan.anatomy)
        self.patients: dict[str, list[int]] = {}
        for index, volume in enumerate(self.volumes):
            self.patients.setdefault(volume.patient, []).append(index)
        self.candidates: dict[int, list[Candidate]] = {}
        self.changes: dict[str, dict[str, Any]] = {}
        self._found_phases: dict[str, dict[int, str]] = {}
        self.version = 0
        self._next: tuple[int, list[Candidate]] = (-1, [])
        self._take_over_labels()
        self.background = Background(self._outline, list(self.patients))

    def _check_anatomy(self, found: Anatomy) -> None:
        if not self.volumes:
            raise DataError(next(iter(self.problems[""]), f"{self.data}: contains no image to label; check the folder"))
        if found.structures and found.structures != self.anatomy.structures:
            raise DataError(
                f"{self.data} contains {found.title}, but the network segments {self.anatomy.title}: give --model a "
                "network for these images"
            )

    def _take_over_labels(self) -> None:
        """Labels of the data set become labels of this folder, and so do label maps that another program put there."""
        for index, volume in enumerate(self.volumes):
            labels = self.folder.labels(volume)
            if labels is None and volume.label is not None:
                labels = np.array(volume.read_label(), dtype=np.uint8)
                self._name_phases(volume.patient)
                self.folder.write_all(volume, labels)
                for number in np.flatnonzero(labelled_slices(labels)).tolist():
                    self.records.change(self.key(index, number), DONE, FROM_DATA, 0.0)
                continue
            known = self.records.keys_of(volume.patient, volume.frame)
            if labels is not None and not known:
                self._take_over(volume, labels)
            found = [] if labels is None else np.flatnonzero(labelled_slices(labels)).tolist()
            for key in {*known, *(self.key(index, number) for number in found)}:
                self.records.found(key, key[2] in found)

    def _take_over(self, volume: Volume, labels: np.ndarray) -> None:
        """Other programs write 0 in slices that nobody has looked at. ``single_slices`` says that this happened."""
        if self.single_slices:
            labels[:, :, ~(labels > 0).any(axis=(0, 1))] = UNLABELLED
        self._name_phases(volume.patient)
        self.folder.write_all(volume, labels)

    def key(self, index: int, number: int) -> tuple[str, int | None, int]:
        volume = self.volumes[index]
        return volume.patient, volume.frame, number

    def phases(self, patient: str) -> dict[int, str]:
        """Frame -> ED or ES: as a person said, as the data set says, or as the volumes of the outlines say."""
        with self.lock:
            volumes = [self.volumes[index] for index in self.patients[patient]]
            named = {volume.frame: volume.phase for volume in volumes if volume.frame is not None and volume.phase}
            named = named or self._found_phases.get(patient, {})
            if not named and (named := find_phases(volumes, self.outliner, self.anatomy)):
                self._found_phases[patient] = named
            for frame, phase in self.records.phases.get(patient, {}).items():
                named = {number: name for number, name in named.items() if name != phase} | {frame: phase}
            return named

    def wanted(self, patient: str) -> list[int]:
        """The volumes to outline: ED and ES, or all frames until it is known which these are."""
        phases = self.phases(patient)
        return [i for i in self.patients[patient] if not phases or self.volumes[i].frame in phases]

    def _outline(self, patient: str) -> None:
        """Outline one patient, in the background."""
        try:
            with self.lock:
                outliner, wanted = self.outliner, [self.volumes[index] for index in self.wanted(patient)]
            made = dict(outliner.make(wanted))
        except (FCLSegError, ValueError, OSError) as error:  # the other patients go on
            with self.lock:
                self.problems[patient] = [str(error)]
                self.version += 1
            return
        with self.lock:
            if outliner is not self.outliner:  # a training ended meanwhile: these are outlines of the earlier network
                return
            phases = self.phases(patient)
            for index in self.patients[patient]:
                volume = self.volumes[index]
                if volume in made and (not phases or volume.frame in phases):
                    phase = phases.get(volume.frame) if volume.frame is not None else volume.phase
                    self.candidates[index] = candidates_of({replace(volume, phase=phase): made[volume]})
            if self.before is not None:
                self._compare(patient)
            self.version += 1

    def _compare(self, patient: str) -> None:
        """What the last training changed in a patient who has no label."""
        if self.before is None or any(key[0] == patient for key in self.records.keys(DONE)):
            return
        volumes = [self.volumes[index] for index in self.wanted(patient)]
        if (change := change_of(volumes, self.before, self.outliner, self.phases(patient))) is not None:
            self.changes[patient] = change

    def labels(self, index: int, *, excluded: bool = True) -> np.ndarray | None:
        """The outlines [X, Y, S] as they are now: drafts over labels over the network's; None if there are none yet."""
        volume = self.volumes[index]
        outline = self.outliner.known(volume)
        with self.lock:
            written = self.folder.labels(volume)
            states = {key[2]: self.records.of(key).state for key in self.records.keys_of(volume.patient, volume.frame)}
            begun = [number for number, state in states.items() if state in (DRAFT, EXCLUDED)]
            if outline is None and written is None and not begun:
                return None
            labels = np.zeros(self.folder.shape(volume), np.uint8) if outline is None else outline.labels.copy()
            if written is not None:
                labels[written != UNLABELLED] = written[written != UNLABELLED]
            for number in begun:
                draft = self.folder.draft(volume, number)
                labels[:, :, number] = labels[:, :, number] if draft is None else draft
                if states[number] == EXCLUDED and not excluded:
                    labels[:, :, number] = 0
            return labels

    def save(self, change: Slice, who: str = "") -> SliceRecord:
        """Write a change of one slice. It is on disk when this returns.

        Raises ``ChangedMeanwhileError`` if another window has changed the slice since this one read it.
        """
        if change.state not in STATES or not 0 <= change.volume < len(self.volumes):
            raise DataError("the page sent a change that does not fit the data: reload the page")
        key, volume = self.key(change.volume, change.number), self.volumes[change.volume]
        with self.lock:
            self.records.check(key, change.revision)
            plane = change.plane if change.plane is not None else self._plane(change)
            if change.state == DONE:
                self._name_phases(volume.patient)
            # The order matters after a crash: a label map without its record counts as labelled, see Records.found.
            self.folder.write_draft(volume, change.number, plane if change.state in (DRAFT, EXCLUDED) else None)
            was_done = self.records.of(key).state == DONE
            if change.state == DONE or was_done:
                self.folder.write(volume, change.number, plane if change.state == DONE else None)
            record = self.records.change(key, change.state, who or self.who, change.seconds)
            self.version += 1
            return record

    def _plane(self, change: Slice) -> np.ndarray | None:
        if change.state == OPEN:
            return None
        labels = self.labels(change.volume)
        if labels is None:
            raise DataError("the network has not outlined this slice yet: wait a moment, or draw")
        return labels[:, :, change.number]

    def set_phase(self, index: int, phase: str, who: str = "") -> None:
        volume = self.volumes[index]
        if volume.frame is None or phase not in ("ED", "ES"):
            raise DataError(f"{volume.patient}: has no frames to choose from, so its phase cannot be changed")
        with self.lock:
            self.records.set_phase(volume.patient, volume.frame, phase, who or self.who)
            if any(key[0] == volume.patient for key in self.records.keys(DONE)):
                self._name_phases(volume.patient)
            self.candidates = {i: c for i, c in self.candidates.items() if self.volumes[i].patient != volume.patient}
            self.version += 1
        self.background.first(volume.patient)

    def _name_phases(self, patient: str) -> None:
        volumes = [self.volumes[index] for index in self.patients[patient]]
        self.folder.name_phases(volumes, self.phases(patient))

    def numbers(self, patient: str) -> list[dict[str, Any]]:
        """The patient's measurements, from ED and ES if they are known and without excluded slices."""
        with self.lock:
            found = {self.volumes[i]: self.labels(i, excluded=False) for i in self.wanted(patient)}
            labels = {volume: one for volume, one in found.items() if one is not None}
            return numbers_of(labels, self.phases(patient), self.anatomy)

    def next(self) -> list[Candidate]:
        """What to label next."""
        with self.lock:
            if self._next[0] != self.version:
                candidates = [candidate for found in self.candidates.values() for candidate in found]
                # Until all patients are outlined, no more than one slice of each: better ones may follow.
                waiting = len(self.background.done) < self.background.total
                count = min(self.count, len({one.patient for one in candidates})) if waiting else self.count
                self._next = self.version, propose(candidates, self.records.keys(DONE, EXCLUDED), count)
            return self._next[1]

    def use(self, model: Path) -> None:
        """Go on with the network of a finished training."""
        outliner = Outliner(model)
        with self.lock:
            self.before, self.outliner = self.outliner, outliner
            self.candidates, self.changes = {}, {}
            self.version += 1
        labelled = {key[0] for key in self.records.keys(DONE)}
        self.background.again(sorted(self.patients, key=lambda patient: patient in labelled))
