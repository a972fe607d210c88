"""The slice of the visual comparison: chosen by the ground truth."""

from types import SimpleNamespace

import numpy as np

from fclseg.anatomy.registry import ANATOMIES
from fclseg.study.shown_slice import shown_slice


def store_of(**areas):
    """One volume per patient; ``areas`` gives for each slice the pixels of RV, MYO and LV."""
    labels, volumes = [], []
    for patient, slices in areas.items():
        start = len(labels)
        for sizes in slices:
            flat = np.repeat([1, 2, 3], sizes)
            labels.append(np.pad(flat, (0, 256 - len(flat))).reshape(16, 16).astype(np.uint8))
        values = {"patient": patient, "start": start, "stop": len(labels), "labelled": True}
        volumes.append(SimpleNamespace(**values))
    return SimpleNamespace(volumes=volumes, labels=np.stack(labels))


def chosen(store, patients):
    volume, number = shown_slice(store, patients, ANATOMIES["acdc"])
    return volume.patient, number - volume.start


def test_the_least_visible_structure_is_largest():
    slices = [(60, 10, 5), (40, 30, 30), (10, 40, 40), (0, 20, 20)]
    assert chosen(store_of(a=slices), {"a"}) == ("a", 1)


def test_the_first_held_out_patient_with_all_structures():
    incomplete, complete = [(0, 20, 20), (30, 0, 9)], [(5, 5, 5), (9, 9, 9)]
    store = store_of(a=complete, b=incomplete, c=complete)
    assert chosen(store, {"b", "c"}) == ("c", 1)
    assert chosen(store, {"b"}) == ("b", 0), "most labelled pixels"


def test_the_ends_of_a_volume_are_not_shown():
    """At the base all structures are largest, and hardest to tell."""
    assert chosen(store_of(a=[(60, 60, 60), (50, 50, 50), (40, 40, 40), (30, 30, 30)]), {"a"}) == ("a", 1)
