"""Sites that are hospitals, several data sets as one, and a hospital that is held out of everything."""

import csv

import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.cli import main
from fclseg.data.hospitals import join_folders, sites_by
from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.phantom.dataset import write_phantom
from fclseg.study.datasets import prepare_dataset


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """North does not say which centre it is; south has two. Their patients have the same names."""
    folder = tmp_path_factory.mktemp("hospitals")
    write_phantom(folder / "north", patients=2, frames=2)
    write_phantom(folder / "south", patients=4, frames=2, seed=1)
    for number in range(1, 5):
        with open(folder / "south" / f"patient{number:03d}" / "Info.cfg", "a") as file:
            file.write(f"\nCentre: {1 if number < 3 else 2}\n")
    join_folders([folder / "north", folder / "south"], folder / "both")
    return folder


EXPECTED = {
    "north": ["north-patient001", "north-patient002"],
    "south-1": ["south-patient001", "south-patient002"],
    "south-2": ["south-patient003", "south-patient004"],
}


def test_data_sets_become_one_whose_sites_are_hospitals(two):
    root, volumes = two / "both", read_folder(two / "both")
    assert len({volume.patient for volume in volumes}) == 6
    where = sites_by(root, volumes, "centre")
    assert {site: sorted(p for p in where if where[p] == site) for site in where.values()} == EXPECTED
    single = read_folder(two / "south")
    assert set(sites_by(two / "south", single, "Centre").values()) == {"Centre-1", "Centre-2"}
    original = (two / "south" / "patient003" / "patient003_4d.nii.gz").read_bytes()
    assert (root / "site-south" / "south-patient003" / "south-patient003_4d.nii.gz").read_bytes() == original


def test_a_table_decides_where_there_is_one(two, tmp_path):
    table = tmp_path / "sites.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("patient", "site"), ("patient001", "a"), ("patient002", "b")])
    assert sites_by(two / "north", read_folder(two / "north"), str(table)) == {"patient001": "a", "patient002": "b"}


def test_an_entry_that_nobody_has_is_one_sentence(two):
    with pytest.raises(DataError, match=r"no Info.cfg has an entry 'centre', and there is no table of that name: give"):
        sites_by(two / "north", read_folder(two / "north"), "centre")


def test_the_command_splits_by_hospital(two, tmp_path, capsys):
    splits = tmp_path / "splits.json"
    command = ["data", "split", str(two / "both"), "--sites-by", "centre", "--folds", "2", "--out", str(splits)]
    assert main(command) == 0 and "6 patients at 3 sites, 2 folds each" in capsys.readouterr().out
    assert Splits.load(splits).sites == EXPECTED
    assert main(["data", "join", str(two / "both"), str(two / "north")]) == 1
    assert "is not empty; choose a new folder" in capsys.readouterr().err


def test_a_hospital_that_is_held_out_trains_nothing_and_is_always_scored(two, tmp_path):
    data = prepare_dataset(two / "both", tmp_path, sites="centre", hold_out="south-2")
    splits = Splits.load(data.splits)
    outside = EXPECTED["south-2"]
    assert list(splits.sites) == ["north", "south-1"] and splits.outside == {"south-2": outside}
    for fold in range(splits.folds):
        for site in splits.sites:
            assert not set(splits.training(site, fold)) & set(outside)
        assert set(outside) < set(splits.validation(fold))
        assert set(splits.validation(fold)) - set(outside) == set(splits.inside(fold))
    assert not set(splits.pooled().patients) & set(outside) and splits.pooled().outside == splits.outside
    whole = prepare_dataset(two / "both", tmp_path, sites="centre")
    assert whole.fingerprint != data.fingerprint and list(Splits.load(whole.splits).sites) == list(EXPECTED)


def test_the_only_site_cannot_be_held_out():
    split = Splits.make(["a", "b"], 1, folds=2)
    with pytest.raises(DataError, match="site-1 is the only site, so it cannot be held out"):
        split.without("site-1")
    with pytest.raises(DataError, match="no site 'elsewhere' in the split"):
        Splits.make(["a", "b", "c", "d"], 2, folds=2).without("elsewhere")
