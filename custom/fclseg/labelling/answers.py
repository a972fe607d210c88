"""What the page is told and what it may ask for: every address below ``/api/`` is one function of this file."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fclseg.anatomy.base import Wall
from fclseg.errors import DataError
from fclseg.labelling.pictures import Grey, message, plane_of
from fclseg.labelling.records import DONE, EXCLUDED
from fclseg.labelling.session import Session, Slice
from fclseg.labelling.training import Training

Query = Mapping[str, str]


class Answers:
    """One session for all windows of the browser."""

    def __init__(self, session: Session, training: Training):
        self.session, self.training, self.grey = session, training, Grey()
        self.routes: dict[tuple[str, str], Callable[..., Any]] = {
            ("GET", r"/api/state"): self.state,
            ("GET", r"/api/volume/(\d+)"): self.volume,
            ("GET", r"/api/cycle/(\d+)/(\d+)"): self.cycle,
            ("GET", r"/api/numbers/(\d+)"): self.numbers,
            ("POST", r"/api/slice/(\d+)/(\d+)"): self.save,
            ("POST", r"/api/phase/(\d+)"): self.phase,
            ("POST", r"/api/train"): self.train,
        }

    def find(self, method: str, path: str) -> tuple[Callable[..., Any], list[int]] | None:
        for (verb, pattern), function in self.routes.items():
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                return function, [int(number) for number in match.groups()]
        return None

    def state(self, query: Query, body: bytes) -> dict[str, Any]:
        """Everything but pictures. Short, because every window asks for it every few seconds."""
        session = self.session
        with session.lock:
            moving = {
                "version": session.version,
                "outlined": [len(session.background.done), session.background.total],
                "training": self.training.status,
            }
            if query.get("version") == str(session.version):
                return moving
            anatomy, place = session.anatomy, {}
            for index, volume in enumerate(session.volumes):
                place[volume.patient, volume.frame] = index
            following = [
                {"volume": place[one.patient, one.frame], "slice": one.slice, "part": one.part, "phase": one.phase}
                for one in session.next()
            ]
            return moving | {
                "who": session.who,
                "data": session.data.name,
                "labels": str(session.out),
                "model": _model_name(session),
                "structures": anatomy.legend(),
                "walls": [
                    [anatomy.structure(one.wall).value, anatomy.structure(one.cavity).value] for one in _walls(session)
                ],
                "patients": [self._patient(name) for name in session.patients],
                "next": following,
                "goal": session.count,
                "labelled": self._labelled(place),
                "changes": [{"patient": name, **one} for name, one in session.changes.items()],
                "problems": [sentence for found in session.problems.values() for sentence in found],
            }

    def _labelled(self, place: Mapping[tuple[str, int | None], int]) -> list[dict[str, Any]]:
        found = []
        for (patient, frame, number), record in self.session.records.slices.items():
            if record.state in (DONE, EXCLUDED) and (patient, frame) in place:
                at = {"volume": place[patient, frame], "slice": number}
                found.append(at | {"state": record.state, "seconds": record.seconds, "who": record.who})
        return found

    def _patient(self, name: str) -> dict[str, Any]:
        session = self.session
        phases = session.phases(name)
        frames = [
            {"volume": index, "frame": frame, "phase": phases.get(frame, "") if frame is not None else ""}
            for index in session.patients[name]
            for frame in [session.volumes[index].frame]
        ]
        if all(one["phase"] for one in frames):  # ED before ES; the frames of a cine stay in the order of time
            frames.sort(key=lambda one: str(one["phase"]))
        return {"name": name, "frames": frames, "ready": name in session.background.done}

    def volume(self, query: Query, body: bytes, index: int) -> bytes:
        """Grey values, the outlines as they are now and, after a training, the network's earlier ones."""
        session, volume = self.session, self._known(index)
        if volume.patient not in session.background.done or session.labels(index) is None:
            self._outline_now(index)
        grey, labels = self.grey.volume(volume), session.labels(index)
        before = session.before.known(volume) if session.before is not None else None
        records = [session.records.of(session.key(index, number)) for number in range(grey.shape[2])]
        header = {
            "width": grey.shape[0],
            "height": grey.shape[1],
            "slices": grey.shape[2],
            "spacing": volume.spacing,
            "outlined": labels is not None,
            "before": before is not None,
            "records": [vars(record) for record in records],
            "numbers": session.numbers(volume.patient),
        }
        own = session.outliner.known(volume)
        nothing = np.zeros_like(grey)
        stacks = [grey, nothing if labels is None else labels, nothing if own is None else own.labels]
        return message(header, *stacks, *([] if before is None else [before.labels]))

    def _outline_now(self, index: int) -> None:
        """A frame beside ED and ES is outlined when somebody looks at it."""
        session, volume = self.session, self.session.volumes[index]
        if index in session.wanted(volume.patient):
            session.background.first(volume.patient)
        else:
            list(session.outliner.make([volume]))

    def cycle(self, query: Query, body: bytes, index: int, number: int) -> bytes:
        """The same slice in all frames of the patient."""
        session, volume = self.session, self._known(index)
        frames = [session.volumes[one] for one in session.patients[volume.patient]]
        frames.sort(key=lambda one: one.frame or 0)
        stack = self.grey.cycle(frames, number)
        return message({"width": stack.shape[0], "height": stack.shape[1], "frames": stack.shape[2]}, stack)

    def numbers(self, query: Query, body: bytes, index: int) -> dict[str, Any]:
        return {"numbers": self.session.numbers(self._known(index).patient)}

    def save(self, query: Query, body: bytes, index: int, number: int) -> dict[str, Any]:
        volume = self._known(index)
        shape = self.grey.volume(volume).shape
        plane = None
        if body:
            if len(body) != shape[0] * shape[1] or max(body) >= self.session.anatomy.classes:
                raise DataError("the page sent outlines that do not fit the image: reload the page")
            plane = plane_of(body, (shape[0], shape[1]))
        if number >= shape[2]:
            raise DataError("the page sent a slice that does not exist: reload the page")
        revision, seconds = int(query.get("revision", "0")), float(query.get("seconds", "0"))
        change = Slice(index, number, revision, query.get("state", ""), min(seconds, 3600.0), plane)
        record = self.session.save(change)
        return {"record": vars(record), "numbers": self.session.numbers(volume.patient)}

    def phase(self, query: Query, body: bytes, index: int) -> dict[str, Any]:
        volume = self._known(index)
        self.session.set_phase(index, query.get("phase", ""))
        return {"numbers": self.session.numbers(volume.patient)}

    def train(self, query: Query, body: bytes) -> dict[str, Any]:
        if not self.session.records.keys(DONE):
            raise DataError("no slice is labelled yet: label some and train then")
        self.training.begin(self.session.out, self.session.start)
        return self.training.status

    def _known(self, index: int) -> Any:
        if index >= len(self.session.volumes):
            raise DataError("the page asked for an image that does not exist: reload the page")
        return self.session.volumes[index]


def _walls(session: Session) -> list[Wall]:
    return [one for one in session.anatomy.measurements if isinstance(one, Wall)]


def _model_name(session: Session) -> str:
    path = session.outliner.path
    return f"training {path.parent.name}" if path.is_relative_to(session.out) else path.parent.parent.name
