"""Updates on disk give the same mean as updates in memory."""

import numpy as np

from fclseg.federation.averaging import WeightedMean
from fclseg.federation.robust import find_outliers
from fclseg.federation.spool import Spool


def update(seed):
    random = np.random.default_rng(seed)
    return {
        "weight": random.standard_normal((50, 40)).astype(np.float32),
        "bias": random.standard_normal(7).astype(np.float32),
        "count": np.array(seed),
        "nothing": np.zeros(0, np.float32),
    }


def test_beyond_the_limit_updates_are_on_disk_and_the_same(tmp_path):
    spool = Spool(tmp_path, most=10_000)
    sent = {f"site-{number}": update(number) for number in range(5)}
    kept = {site: spool.keep(arrays) for site, arrays in sent.items()}
    on_disk = [site for site, arrays in kept.items() if isinstance(arrays["weight"], np.memmap)]
    assert on_disk == ["site-1", "site-2", "site-3", "site-4"] and spool.held <= 10_000
    assert not list(tmp_path.iterdir()), "the files have no names"
    for site, arrays in kept.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, sent[site][name])
            assert array.dtype == sent[site][name].dtype and array.shape == sent[site][name].shape
    means = []
    for states in (kept, sent):
        mean = WeightedMean("online")
        for number, (site, arrays) in enumerate(states.items()):
            mean.add(arrays, 1 + number, site)
        means.append(mean.result())
    assert all(np.array_equal(means[0][name], means[1][name]) for name in means[0])
    assert find_outliers(kept, sent["site-0"], 10) == find_outliers(sent, sent["site-0"], 10)


def test_without_a_folder_everything_stays_in_memory():
    arrays = update(0)
    assert Spool(None, most=1).keep(arrays)["weight"] is arrays["weight"]
