"""Which labels a protocol uses, for all sites, folds and label counts of a split."""

import pytest

from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.finetune.protocols import PROTOCOLS, draw

SPLITS = Splits.make([f"patient{i:03d}" for i in range(40)], sites=4, folds=5, seed=3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fold", range(5))
def test_nobody_is_trained_and_validated_on(protocol, fold):
    for n in (1, 2, 4, 8):
        chosen = draw(protocol, SPLITS, "site-2", fold, n, seed=0)
        assert not set(chosen.patients) & set(chosen.validation)
        held_out = {patient for site in SPLITS.sites for patient in SPLITS.validation(fold, site)}
        assert set(chosen.validation) == held_out and len(held_out) == 8


def test_local_takes_one_site_federated_all_centralised_the_pool():
    assert set(draw("local", SPLITS, "site-3", 0, 4, 0).patients) <= set(SPLITS.training("site-3", 0))
    federated = draw("federated", SPLITS, None, 0, 2, 0)
    assert {site: len(patients) for site, patients in federated.training.items()} == dict.fromkeys(SPLITS.sites, 2)
    assert federated.training["site-3"] == draw("local", SPLITS, "site-3", 0, 2, 0).patients
    everyone = draw("centralised", SPLITS, None, 0, 32, 0)
    assert sorted(everyone.patients) == sorted(p for site in SPLITS.sites for p in SPLITS.training(site, 0))
    assert all(set(patients) <= set(SPLITS.sites[site]) for site, patients in everyone.training.items())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_draws_grow_with_n_and_change_with_seed_and_fold(protocol):
    def patients(n, seed=0, fold=0):
        return set(draw(protocol, SPLITS, "site-1", fold, n, seed).patients)

    assert patients(1) < patients(2) < patients(4) < patients(8)
    assert patients(4) == patients(4)
    assert len({frozenset(patients(4, seed=seed)) for seed in range(6)}) > 1
    assert len({frozenset(patients(4, fold=fold)) for fold in range(5)}) > 1


def test_more_patients_than_there_are_is_one_sentence():
    with pytest.raises(DataError, match="cannot be 33"):
        draw("centralised", SPLITS, None, 0, 33, 0)
    with pytest.raises(DataError, match="cannot be 9"):
        draw("local", SPLITS, "site-1", 0, 9, 0)
