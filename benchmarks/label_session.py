"""From an empty folder to a better network in a real browser: a person's minutes, CPU seconds, Dice before and after.

Half of a hospital's patients are opened with ``fclseg label``, without their labels. Chromium takes the proposed slices
in order and corrects each towards the expert's outlines as a person would: it drags an outline where it is farthest
off, draws a structure that is missing, erases one that is not there, says "no ventricle", and accepts. Then it clicks
"Train now". The other half of the patients is scored before and after, as ``fclseg segment`` segments.

A person's minutes are estimated from keys and strokes with the keystroke-level model (Card, Moran and Newell, 1980):
1.35 s to decide, 1.1 s to point, .28 s a key, .1 s to press or release the button, and for a drawn outline .9 s for
each of 12 bends and .16 s a centimetre. Looking at a slice counts LOOK seconds, which is assumed.

    python benchmarks/label_session.py --data MNMS --hospital "mnms 3" --out DIR [--slices 20] [--port 28400]

Needs chromium and chromedriver.
"""

import argparse
import json
import resource
import shutil
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from labelled_slices import score, unlabelled_copy
from scipy.ndimage import binary_erosion, distance_transform_edt

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.evaluation.people import read_people
from fclseg.labelling.changes import overlap_of_structures
from fclseg.labelling.serve import serving
from fclseg.networks.model_file import MODEL
from fclseg.resources import shipped_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "labelling"))
from browser import Browser, browser  # a real Chromium

RV, MYO, LV = 1, 2, 3
GOOD, MOST_STROKES = 0.95, 12
"""An outline is left alone at this Dice with the expert's; a person gives up after so many strokes."""
LOOK, DECIDE, POINT, KEY, BUTTON, BEND, CENTIMETRE, BENDS = 5.0, 1.35, 1.1, 0.28, 0.1, 0.9, 0.16, 12
PIXELS_PER_CENTIMETRE = 38
READY = "return window.fclseg && fclseg.editor.volume && fclseg.editor.volume.outlined"
HERE = "[fclseg.editor.volume.index, fclseg.editor.slice]"
SAVED = "return document.getElementById('saved').textContent === 'saved'"

Point = tuple[float, float]


class Person:
    """Keys and strokes on the page, with the seconds that they would take."""

    def __init__(self, window: Browser):
        self.window, self.seconds, self.did = window, 0.0, Counter[str]()
        window.run("window.strokes = 0; addEventListener('pointerup', () => { window.strokes += 1; });")

    def press(self, key: str, *held: str) -> None:
        self.window.press(key, *held)
        self._count("keys", KEY)

    def stroke(self, kind: str, points: list[Point]) -> None:
        """Through pixels of the image."""
        script = """const {view} = fclseg, box = view.canvas.getBoundingClientRect();
            return arguments[0].map((one) => view.toScreen(one)).map(([x, y]) => [box.x + x, box.y + y]);"""
        at, before = self.window.run(script, points), self.window.run("return strokes")
        self.window.stroke(at)
        self.window.until("return strokes > arguments[0]", before)  # a busy browser hands events on later
        self.window.until(SAVED)
        length = sum(np.hypot(*np.subtract(a, b)) for a, b in pairwise(at)) / PIXELS_PER_CENTIMETRE
        path = BENDS * BEND + CENTIMETRE * length if kind == "drawn" else POINT
        self._count(kind, DECIDE + POINT + 2 * BUTTON + path)

    def undo(self, plane: np.ndarray) -> None:
        self.press("z", "Control")
        same = "return arguments[0].every((label, i) => label === fclseg.editor.labels[i])"
        self.window.until(same, plane.ravel().tolist())
        self.window.until(SAVED)

    def look(self) -> None:
        self._count("slices", LOOK)

    def _count(self, what: str, seconds: float) -> None:
        self.did[what] += 1
        self.seconds += seconds

    def plane(self) -> np.ndarray:
        """The outlines on the page, [row, column]."""
        shape = self.window.run("return [fclseg.editor.volume.height, fclseg.editor.volume.width]")
        return np.array(self.window.run("return Array.from(fclseg.editor.labels)"), np.uint8).reshape(shape)

    def correct(self, expert: np.ndarray) -> None:
        """Until every outline is good, or patience ends. A stroke that does not help is undone and not repeated."""
        structures = [LV, MYO, RV]
        for _ in range(MOST_STROKES):
            plane = self.plane()
            dice = {value: _dice(_region(plane, value), _region(expert, value)) for value in structures}
            if not dice or min(dice.values()) >= GOOD:
                return
            worst = min(structures, key=lambda value: dice[value])
            self._improve(worst, _region(plane, worst), _region(expert, worst))
            if overlap_of_structures(self.plane(), expert) <= overlap_of_structures(plane, expert):
                structures.remove(worst)
                if (self.plane() != plane).any():
                    self.undo(plane)

    def _improve(self, value: int, found: np.ndarray, wanted: np.ndarray) -> None:
        if not wanted.any():
            self.press("e")
            rows = np.unique(np.nonzero(found)[0])[::3].tolist()
            ends = [(row, np.flatnonzero(found[row])) for row in rows]
            self.stroke("erased", [(float(x), float(row)) for row, xs in ends for x in (xs[0], xs[-1])])
        elif not found.any():
            self.press("f")
            self.press(str(value))
            self.stroke("drawn", _around(wanted))
        else:
            self.press("d")
            self.stroke("dragged", _pull(found, wanted))


def _region(plane: np.ndarray, value: int) -> np.ndarray:
    """As the page has it: the wall's outline surrounds its cavity."""
    return (plane == value) | ((plane == LV) & (value == MYO))


def _dice(one: np.ndarray, other: np.ndarray) -> float:
    total = one.sum() + other.sum()
    return float(2 * (one & other).sum() / total) if total else 1.0


def _edge(region: np.ndarray) -> np.ndarray:
    return region & ~binary_erosion(region)


def _around(region: np.ndarray) -> list[Point]:
    """The outline by angle from the middle: ventricles are near enough to round for a hand."""
    rows, columns = np.nonzero(_edge(region))
    angles = np.arctan2(rows - rows.mean(), columns - columns.mean())
    order = np.argsort(angles)[:: max(1, len(angles) // 40)]
    return [(float(columns[i]), float(rows[i])) for i in (*order, order[0])]


def _pull(found: np.ndarray, wanted: np.ndarray) -> list[Point]:
    """From where the outline is farthest off to the nearest point of the expert's."""
    away, nearest = distance_transform_edt(~_edge(wanted), return_indices=True)
    rows, columns = np.nonzero(_edge(found))
    worst = int(np.argmax(away[rows, columns]))
    row, column = rows[worst], columns[worst]
    to_row, to_column = nearest[:, row, column]
    middle = ((column + to_column) / 2, (row + to_row) / 2)
    return [(float(column), float(row)), middle, (float(to_column), float(to_row))]


def label_slices(person: Person, experts: list[np.ndarray], count: int) -> list[tuple[float, float]]:
    """Correct and accept the proposed slices; returns each one's Dice with the expert's before and after."""
    agreement = []
    for _ in range(count):
        person.window.until(READY)
        at = person.window.run(f"return {HERE}")
        expert, before = experts[at[0]][:, :, at[1]].T, person.plane()
        person.look()
        if expert.any():
            person.correct(expert)
        after = person.plane() if expert.any() else expert
        agreement.append((overlap_of_structures(before, expert), overlap_of_structures(after, expert)))
        person.press("Enter" if expert.any() or not before.any() else "n")
        person.window.until(f"return String({HERE}) !== String(arguments[0])", at)
        minutes, (old, new) = person.seconds / 60, agreement[-1]
        print(f"slice {len(agreement)}: Dice {old:.2f} to {new:.2f}, {minutes:.1f} minutes so far", flush=True)
    return agreement


def session(out: Path, labellable: list[Volume], slices: int, port: int) -> dict[str, Any]:
    data, labels = unlabelled_copy(out / "images", labellable), out / "labels"
    began = _cpu()
    with serving(data, labels, who="robot", slices=slices, port=port, tell=lambda text: None) as server:
        known = {(one.patient, one.frame): np.array(one.read_label(), np.uint8) for one in labellable}
        experts = [known[one.patient, one.frame] for one in server.answers.session.volumes]
        with browser(port + 1) as window:
            window.open(server.link)
            window.until(READY)
            window.until("return fclseg.world().outlined[0] === fclseg.world().outlined[1]")
            first = window.until("return fclseg.world().next[0]")
            window.run("fclseg.go(arguments[0], arguments[1])", first["volume"], first["slice"])
            window.until(f"return String({HERE}) === String([...arguments])", first["volume"], first["slice"])
            person = Person(window)
            outlined = _cpu()
            agreement = label_slices(person, experts, slices)
            labelled = _cpu()
            window.run("document.getElementById('train').click()")
            _wait_for(labels / "models" / "1" / MODEL)
            window.screenshot(out / "trained.png")
            trained = _cpu()
    return {
        "slices": len(agreement),
        "agreement": [np.mean(one).round(3).item() for one in zip(*agreement, strict=True)],
        "did": dict(person.did),
        "person_minutes": round(person.seconds / 60, 1),
        "cpu_seconds": {"outlines": outlined - began, "page": labelled - outlined, "training": trained - labelled},
    }


def _wait_for(path: Path) -> None:
    while not path.is_file():
        time.sleep(1)


def _cpu() -> float:
    """Seconds of this process and of the trainings that ended; the browser is not among them."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(sum(one.ru_utime + one.ru_stime for one in both), 1)


def _mean(scores: dict[str, dict[str, float]]) -> float:
    return round(float(np.mean([one["dice"] for one in scores.values()])), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="labelled folder in the layout of ACDC")
    parser.add_argument("--hospital", help="only its patients, FOLDER CENTRE, as fclseg evaluate calls it")
    parser.add_argument("--out", type=Path, required=True, help="folder for images, labels and results; emptied first")
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--port", type=int, default=28400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(arguments.out, ignore_errors=True)
    volumes = [volume for volume in read_folder(arguments.data) if volume.label]
    people = read_people(volumes, arguments.data)
    names = [name for name, one in sorted(people.items()) if arguments.hospital in (None, one.hospital)]
    pool, rest = ([one for one in volumes if one.patient in names[start::2]] for start in (0, 1))
    found = session(arguments.out, pool, arguments.slices, arguments.port)
    trained = arguments.out / "labels" / "models" / "1" / MODEL
    before, after = (score(model, rest, people) for model in (shipped_model("acdc_unet"), trained))
    found |= {"patients": len(before), "dice_before": _mean(before), "dice_after": _mean(after)}
    found["better"] = sum(after[name]["dice"] > before[name]["dice"] for name in before)
    (arguments.out / "session.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
