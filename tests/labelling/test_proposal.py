"""What is proposed: many patients, all places of the heart, otherwise at random."""

import numpy as np

from fclseg.labelling.proposal import TURNS, Candidate, parts_of, propose


def hearts(patients, slices=9):
    return [
        Candidate(f"p{p}", frame, s, ("base", "middle", "apex")[s // 3], phase)
        for p in range(patients)
        for frame, phase in ((1, "ED"), (2, "ES"))
        for s in range(slices)
    ]


def test_twenty_slices_are_of_twenty_patients_and_all_places():
    chosen = propose(hearts(30), (), 20)
    assert len({one.patient for one in chosen}) == 20
    for start in range(15):
        assert {(one.part, one.phase) for one in chosen[start : start + 6]} == set(TURNS)


def test_labelled_slices_are_not_proposed_and_their_patients_wait():
    candidates = hearts(4)
    labelled = [("p0", 1, 4), ("p1", 2, 1)]
    chosen = propose(candidates, labelled, 4)
    assert not {one.key for one in chosen} & set(labelled)
    assert {one.patient for one in chosen[:2]} == {"p2", "p3"}
    assert (chosen[0].part, chosen[0].phase) == TURNS[2]  # two slices are labelled: the third place is next


def test_all_slices_are_proposed_in_the_end_and_each_once():
    candidates = hearts(3)
    chosen = propose(candidates, (), 1000)
    assert sorted(one.key for one in chosen) == sorted(one.key for one in candidates)


def test_patients_with_the_fewest_slices_come_first():
    candidates = [
        Candidate("b", 1, 4, "middle", "ED"),
        Candidate("b", 2, 0, "base", "ES"),  # of a patient who has one already
        Candidate("c", 2, 0, "base", "ES"),
    ]
    assert [one.patient for one in propose(candidates, (), 3)] == ["b", "c", "b"]


def test_slices_of_a_part_are_drawn_evenly_and_the_same_again():
    """Neither the outermost slice nor any other is preferred: 300 patients, three slices of each part."""
    chosen = propose(hearts(300), (), 300)
    counts = np.bincount([one.slice for one in chosen], minlength=9)
    assert counts.sum() == 300 and counts.min() > 15 and counts.max() < 52, counts
    assert propose(hearts(300)[::-1], (), 300) == chosen


def test_without_phases_and_with_missing_places():
    chosen = propose([Candidate("a", None, s, "middle", None) for s in range(3)], (), 5)
    assert sorted(one.slice for one in chosen) == [0, 1, 2]
    assert propose([], (), 5) == []


def test_parts_reach_one_slice_beyond_the_organ():
    present = np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0], dtype=bool)
    assert parts_of(present) == [None, *["base"] * 3, *["middle"] * 3, *["apex"] * 3, None]
    assert parts_of(np.zeros(3, dtype=bool)) == ["base", "middle", "apex"]
