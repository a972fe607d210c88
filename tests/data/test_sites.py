"""Splits: every patient in one site and held out in one fold, the same for the same seed, and checked when loaded."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fclseg.data.assignment import read_assignment
from fclseg.data.sites import Splits
from fclseg.errors import DataError


def names(count):
    return [f"patient{number:03d}" for number in range(1, count + 1)]


@given(sites=st.integers(1, 12), folds=st.integers(2, 6), extra=st.integers(0, 30), seed=st.integers(0, 1000))
def test_random_splits_cover_everybody_once_and_are_balanced(sites, folds, extra, seed):
    patients = names(sites * folds + extra)
    splits = Splits.make(patients, sites, folds, seed)
    assert list(splits.sites) == [f"site-{number}" for number in range(1, sites + 1)]
    assert sorted(splits.patients) == patients and splits.folds == folds
    sizes = [len(group) for group in splits.sites.values()]
    assert max(sizes) - min(sizes) <= 1
    for site, group in splits.sites.items():
        held_out = [splits.validation(fold, site) for fold in range(folds)]
        assert sorted(patient for part in held_out for patient in part) == sorted(group)
        assert max(map(len, held_out)) - min(map(len, held_out)) <= 1
        for fold in range(folds):
            assert sorted(splits.training(site, fold) + held_out[fold]) == sorted(group)
    assert sorted(splits.validation(0)) == sorted(
        patient for site in splits.sites for patient in splits.validation(0, site)
    )
    assert Splits.make(reversed(patients), sites, folds, seed) == splits


def test_the_papers_split_and_a_draw_that_never_changes():
    """100 patients, 10 sites, 5 folds: 8 to train, 2 to validate. The names are fixed so that no release reshuffles."""
    splits = Splits.make(names(100), 10)
    assert all(len(splits.training(site, 0)) == 8 and len(splits.validation(0, site)) == 2 for site in splits.sites)
    assert len(splits.validation(3)) == 20
    assert splits.sites["site-1"][:3] == ["patient001", "patient007", "patient023"]
    assert splits.labelled("site-1", 0, 2) == ["patient081", "patient062"]
    assert Splits.make(names(100), 10, seed=1) != splits


def test_labelled_draws_are_nested_and_differ_by_seed():
    splits = Splits.make(names(40), 4)
    for seed in range(5):
        draws = [splits.labelled("site-2", 1, n, seed) for n in (1, 2, 4, 8)]
        assert all(set(small) <= set(large) for small, large in pairwise(draws))
        assert sorted(draws[-1]) == splits.training("site-2", 1)
    assert len({tuple(splits.labelled("site-2", 1, 2, seed)) for seed in range(20)}) > 5
    for n in (0, 9):
        with pytest.raises(DataError, match=f"only 8 training patients in fold 1, so N cannot be {n}"):
            splits.labelled("site-2", 1, n)


def test_without_folds_a_site_may_have_a_single_patient(tmp_path):
    splits = Splits.make(names(3), 3, folds=0)
    splits.save(tmp_path / "splits.json")
    assert Splits.load(tmp_path / "splits.json") == splits and splits.folds == 0
    assert splits.sites == Splits.make(names(6)[:3], 3, 0).sites and sorted(splits.patients) == names(3)
    with pytest.raises(DataError, match="there is no fold 0; the split has none"):
        splits.training("site-1", 0)


@given(sites=st.integers(1, 5), folds=st.integers(2, 4), extra=st.integers(0, 9), without=st.integers(0, 20))
def test_patients_without_labels_train_the_encoder_and_nothing_else(sites, folds, extra, without):
    labelled, unlabelled = names(sites * folds + extra), [f"scan{number}" for number in range(without)]
    splits = Splits.make(labelled + unlabelled, sites, folds, unlabelled=unlabelled)
    assert sorted(splits.patients) == sorted(labelled + unlabelled)
    for kind in (
        labelled,
        unlabelled,
    ):  # both kinds are split evenly, and the labelled patients as if there were no others
        sizes = [len(set(group) & set(kind)) for group in splits.sites.values()]
        assert max(sizes) - min(sizes) <= 1
    assert splits.held_out == Splits.make(labelled, sites, folds).held_out
    for site, group in splits.sites.items():
        for fold in range(folds):
            validation, candidates = splits.validation(fold, site), splits.candidates(site, fold)
            assert sorted(validation + candidates) == sorted(set(group) & set(labelled))
            assert sorted(validation + splits.training(site, fold)) == sorted(group)
            assert set(splits.labelled(site, fold, len(candidates))) == set(candidates)


def test_too_few_labelled_patients():
    with pytest.raises(DataError, match="site-2 has 1 labelled patient, fewer than the 2 folds"):
        Splits.make(names(9), 2, 2, unlabelled=names(6))


def test_save_and_load_are_inverse_and_atomic(tmp_path):
    splits = Splits.make(names(23), 3, seed=5)
    path = tmp_path / "new" / "splits.json"
    splits.save(path)
    assert Splits.load(path) == splits
    assert [entry.name for entry in path.parent.iterdir()] == ["splits.json"]
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        splits.save(tmp_path / "file" / "splits.json")


def test_unknown_site_fold_and_patient():
    splits = Splits.make(names(20), 2)
    with pytest.raises(DataError, match="no site 'site-3'"):
        splits.training("site-3", 0)
    with pytest.raises(DataError, match="no fold 5; the split has folds 0 to 4"):
        splits.validation(5)
    splits.check_patients(names(25), "splits.json")
    with pytest.raises(DataError, match=r"splits\.json: patient patient020 is not in the data"):
        splits.check_patients(names(19), "splits.json")


@pytest.mark.parametrize(
    ("patients", "sites", "folds", "sentence"),
    [
        (names(3), 5, 2, "^site-4 has no patients; ask for fewer sites or remove it$"),
        (names(0), 1, 2, "site-1 has no patients"),
        (names(12), 3, 5, "site-1 has 4 patients, fewer than the 5 folds"),
        (names(4), 0, 2, "0 sites"),
        (names(4), 1, 1, "1 folds"),
        (["a", "b", "a"], 1, 2, "patient a appears more than once"),
        (["a", "b"], {"a": "x", "b": "x", "c": "x"}, 2, "names patient c, who is not in the data"),
        (["a", "b", "c"], {"a": "x", "b": "x"}, 2, "has no site for patient c"),
    ],
)
def test_impossible_splits_are_refused(patients, sites, folds, sentence):
    with pytest.raises(DataError, match=sentence):
        Splits.make(patients, sites, folds)


def edit(document, site, **changes):
    document["sites"][site].update(changes)


BROKEN = {
    "no site": (lambda d: d.update(sites={}), "contains no site"),
    "site without patients": (lambda d: edit(d, "site-1", patients=[], folds=[]), "site-1 has no patients"),
    "duplicate patient": (lambda d: edit(d, "site-1", patients=d["sites"]["site-2"]["patients"]), "more than once"),
    "one fold": (lambda d: edit(d, "site-2", patients=["z"], folds=[["z"]]), "site-2 has 1 folds, others 5"),
    "fewer folds": (lambda d: d["sites"]["site-2"]["folds"].pop(), "site-2 has 4 folds, others 5"),
    "patient in two folds": (
        lambda d: d["sites"]["site-2"]["folds"][0].append(d["sites"]["site-2"]["folds"][1][0]),
        "the folds of site-2 must hold out its own patients, each once",
    ),
    "somebody else's patient": (
        lambda d: d["sites"]["site-2"]["folds"][0].append(d["sites"]["site-1"]["patients"][0]),
        "the folds of site-2 must hold out its own patients, each once",
    ),
    "empty fold": (lambda d: d["sites"]["site-2"]["folds"][0].clear(), "a fold of site-2 holds out no patient"),
    "another format": (lambda d: d.update(format=99), "has format 99"),
    "no seed": (lambda d: d.pop("seed"), "is not a splits file"),
    "sites is a list": (lambda d: d.update(sites=[]), "is not a splits file"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_edited_files_are_checked_when_loaded(tmp_path, fault):
    change, sentence = BROKEN[fault]
    path = tmp_path / "splits.json"
    Splits.make(names(20), 2).save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=rf"splits\.json: .*{sentence}"):
        Splits.load(path)


@pytest.mark.parametrize(
    ("content", "sentence"), [("{", "not valid JSON"), ("[]", "not a splits"), ("3", "not a splits")]
)
def test_files_that_are_no_splits(tmp_path, content, sentence):
    path = tmp_path / "splits.json"
    with pytest.raises(DataError, match=r"splits\.json: cannot be read"):
        Splits.load(path)
    path.write_text(content)
    with pytest.raises(DataError, match=sentence):
        Splits.load(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "patient,site\na,south\nb, north\nc,south\nd,north\n"),
        ("a.csv", "\ufeffsite,patient,comment\r\nsouth,a,\r\nnorth,b,x\r\nsouth,c,\r\nnorth,d,\r\n"),
        ("a.json", '{"a": "south", "b": "north", "c": "south", "d": "north"}'),
        ("a.json", '{"south": ["a", "c"], "north": ["b", "d"]}'),
    ],
)
def test_assignments_as_csv_and_json(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode())
    splits = Splits.make(["a", "b", "c", "d"], read_assignment(tmp_path / name), folds=2)
    assert splits.sites == {"north": ["b", "d"], "south": ["a", "c"]}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "", "has no rows"),
        ("a.csv", "name,hospital\na,b\n", "row 2 has no patient or no site"),
        ("a.csv", "patient,site\na,x\nb,\n", "row 3 has no patient or no site"),
        ("a.csv", "patient,site\na,x\na,y\n", "patient a appears more than once"),
        ("a.csv", b"\xff\xfe\x00\x01", "not a text file"),
        ("a.json", "[1]", "must be"),
        ("a.json", '{"x": ["a"], "y": []}', "y has no patients"),
        ("a.json", '{"x": ["a"], "y": ["a"]}', "patient a appears more than once"),
    ],
)
def test_broken_assignments_are_named(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=sentence) as caught:
        read_assignment(tmp_path / name)
    assert name in str(caught.value)


def test_sites_are_in_natural_order():
    mapping = {f"p{number}": f"site-{number // 2}" for number in range(2, 24)}
    assert list(Splits.make(mapping, mapping, 2).sites) == [f"site-{number}" for number in range(1, 12)]


def test_pooled_patients_are_held_out_in_the_same_folds():
    apart = Splits.make([f"p{n}" for n in range(9)], 2, folds=3, seed=4, unlabelled=["p8"])
    together = apart.pooled()
    (site,) = together.sites
    assert sorted(together.sites[site]) == sorted(apart.patients) and together.folds == 3
    for fold in range(3):
        assert together.validation(fold) == apart.validation(fold)
        expected = {patient for name in apart.sites for patient in apart.training(name, fold)}
        assert set(together.training(site, fold)) == expected
