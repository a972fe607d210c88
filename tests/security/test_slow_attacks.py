"""Attacks of a site whose updates look ordinary: what is noticed, and what is only bounded."""

import nibabel
import numpy as np
import pytest
from inprocess import InProcess

from fclseg.engine.run_folder import describe
from fclseg.federation.robust import find_outliers, large_losses, update_norm
from fclseg.phantom.dataset import write_phantom

SITES = ("site-1", "site-2", "site-3")


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    for number, site in enumerate(SITES):
        write_phantom(tmp_path / site, patients=1, frames=2, seed=number)
    return {site: tmp_path / site for site in SITES}


def swap_labels(folder, one=1, other=3):
    for path in folder.rglob("*_gt.nii.gz"):
        image = nibabel.load(path)
        labels = np.asarray(image.dataobj)
        swapped = np.where(labels == one, other, np.where(labels == other, one, labels)).astype(np.uint8)
        nibabel.save(nibabel.Nifti1Image(swapped, image.affine, image.header), path)


def test_swapped_labels_at_one_of_three_sites_are_noticed(tmp_path, sites, monkeypatch):
    monkeypatch.setattr(InProcess, "policy", {})
    settings = {"preset": "demo", "changes": {}, "network": "shipped", "rounds": 1}
    (honest,) = InProcess(tmp_path / "honest", sites, "finetune_federated", **settings).complete()
    assert honest["noticed"] == {}
    swap_labels(sites["site-3"])
    (record,) = InProcess(tmp_path / "swapped", sites, "finetune_federated", **settings).complete()
    assert set(record["noticed"]) == {"site-3"} and record["sites"]["site-3"]["status"] == "ok"
    assert "site-3: its loss is" in describe(record, 1) and "do its labels mean the same?" in describe(record, 1)


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ({"a": 1.0, "b": 1.2, "c": 2.5}, {"c"}),  # of the others, the larger middle loss counts: 1.2
        ({"a": 1.0, "b": 1.2, "c": 2.3}, set()),
        ({"a": 1.0, "b": 9.0}, set()),  # of two, nobody knows which is right
        ({"a": 0.0, "b": 0.0, "c": 1.0}, set()),
    ],
)
def test_large_losses_by_hand(losses, found):
    assert set(large_losses(losses)) == found


def test_a_site_just_below_the_rule_moves_the_mean_by_less_than_the_rule_allows():
    """Open, but bounded: with n equal sites the mean moves by at most (factor + 1) / n medians in a round."""
    random, factor, count = np.random.default_rng(0), 10.0, 4
    before = {"weight": random.standard_normal(1000).astype(np.float32)}
    steps = {f"site-{n}": random.standard_normal(1000) for n in range(count)}
    length = 0.1 * np.linalg.norm(before["weight"])  # so that a tenth of the norm, which is harmless, is one median
    steps = {site: step * length / np.linalg.norm(step) for site, step in steps.items()}
    honest = {site: {"weight": before["weight"] + step} for site, step in steps.items()}
    for times, refused in ((9.9, set()), (10.1, {"site-3"})):
        sent = {**honest, "site-3": {"weight": before["weight"] - times * steps["site-0"]}}
        assert set(find_outliers(sent, before, factor)) == refused
        moved = {"weight": sum(s["weight"] for s in sent.values()) / count}
        mean = {"weight": sum(s["weight"] for s in honest.values()) / count}
        shift = update_norm(moved, mean) / length
        assert shift > 2 and (refused or shift <= (factor + 1) / count)
