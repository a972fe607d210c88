"""Does global structural matching unify the feature space of the sites? One line per row of FCL's ablation.

    python benchmarks/gsm_alignment.py [--data FOLDER] [--jobs fcl_fe_ns fcl] [--rounds 10] [--epochs 1] [--seed 0]

After a round of local training, before averaging, every site's bank contains features of its own images from its own
network. ``across`` is the mean distance between two sites' mean features of the same partition, ``between`` that of two
partitions of one site. A unified space has a small ratio. It is printed after the last round and also for every
round, because the networks drift apart less as the learning rate falls. ``averaged`` is the ratio if all sites use the
averaged network, so that only the patients differ. Without ``--data``, a phantom with one scanner per site is used.
The sites run one after the other in this process.
"""

import argparse
import tempfile
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import torch

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.anatomy.folders import read_folder
from fclseg.data.sampler import SliceSampler
from fclseg.data.sites import Splits
from fclseg.data.slices import SliceStore, open_store
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.states import to_arrays, to_tensors
from fclseg.methods.exchange import MEAN, Row, get_row
from fclseg.methods.fcl import FCL
from fclseg.methods.registry import build_method
from fclseg.methods.training import cosine_lr, make_optimizer, train_round
from fclseg.phantom.dataset import phantom_sites, write_phantom
from fclseg.presets import Preset, get_preset
from fclseg.randomness import generator


class Alignment(NamedTuple):
    """Mean distance of same-partition centroids across sites, and of different partitions' centroids within a site."""

    across: float
    between: float

    @property
    def ratio(self) -> float:
        return self.across / self.between


def federated(
    row: Row, preset: Preset, store: SliceStore, sites: dict[str, list[str]], seed: int
) -> tuple[list[float], list[float], list[Alignment], Alignment]:
    """Run the row's exchange plan. Returns losses, feature spread and alignment by round, and after averaging."""
    methods = {site: build_method(row, preset, seed) for site in sites}
    samplers = {
        site: SliceSampler(
            store, store.select(patients), preset.pretraining.batch_size, partners=methods[site].wants_partners
        )
        for site, patients in sites.items()
    }
    optimizers = {site: make_optimizer(method) for site, method in methods.items()}
    losses, spreads, aligned = [], [], []
    for number in range(preset.pretraining.rounds):
        if number:
            exchange(row, methods, samplers)
        lr = cosine_lr(next(iter(methods.values())).learning_rate, number, preset.pretraining.rounds)
        results = [
            train_round(
                methods[site],
                samplers[site],
                optimizers[site],
                lr=lr,
                epochs=preset.pretraining.local_epochs,
                seed=seed,
                site=site,
                round_number=number,
            )
            for site in sites
        ]
        losses.append(sum(result.loss for result in results) / len(results))
        spreads.append(sum(result.feature_std for result in results) / len(results))
        aligned.append(alignment(methods.values()))
    exchange(row, methods, samplers)
    for site, method in methods.items():
        method.bank.fill(samplers[site], method.keys, generator(seed, "averaged", site))
    return losses, spreads, aligned, alignment(methods.values())


def exchange(row: Row, methods: dict[str, FCL], samplers: dict[str, SliceSampler]) -> None:
    """What the server and the sites do between rounds."""
    for flow in row.flows:
        sent = {site: method.send(flow.component) for site, method in methods.items()}
        if flow.combine == MEAN:
            mean = WeightedMean(flow.component)
            for site, state in sent.items():
                mean.add(to_arrays(state), len(samplers[site]), site)
            for method in methods.values():
                method.receive({flow.component: to_tensors(mean.result())})
            continue
        for site, method in methods.items():
            method.receive_others(flow.component, {other: state for other, state in sent.items() if other != site})


def alignment(methods: Iterable[FCL]) -> Alignment:
    """How far apart the sites' banks are."""
    centroids = []
    for method in methods:
        features, partitions = method.bank.entries()
        centroids.append(torch.stack([features[partitions == s].mean(dim=0) for s in range(ANATOMY.partitions)]))
    across = [(a - b).norm(dim=1).mean() for a, b in combinations(centroids, 2)]
    between = [(one[s] - one[t]).norm() for one in centroids for s, t in combinations(range(ANATOMY.partitions), 2)]
    return Alignment(float(torch.stack(across).mean()), float(torch.stack(between).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="data folder (default: a phantom with 3 patients per site)")
    parser.add_argument("--jobs", nargs="+", default=["fcl_fe_ns", "fcl"])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    preset = get_preset(options.preset, rounds=options.rounds, local_epochs=options.epochs)
    with tempfile.TemporaryDirectory() as folder:
        sites = None
        if options.data is None:
            options.data, patients = Path(folder) / "phantom", 3 * options.sites
            write_phantom(options.data, patients=patients, sites=options.sites)
            sites = phantom_sites(patients, options.sites)
        volumes = read_folder(options.data)
        spacing = preset.images.spacing(volumes[0].anatomy)
        store = open_store(volumes, image_size=preset.images.size, spacing=spacing, cache=folder)
        sites = sites or Splits.make(store.patients, options.sites, seed=options.seed).sites
        for job in options.jobs:
            losses, spreads, aligned, averaged = federated(get_row(job), preset, store, sites, options.seed)
            last = aligned[-1]
            print(
                f"{job}: across {last.across:.3f} between {last.between:.3f} ratio {last.ratio:.3f}, "
                f"averaged {averaged.ratio:.3f}",
                "  loss by round: " + " ".join(f"{loss:.2f}" for loss in losses),
                "  feature std by round: " + " ".join(f"{spread:.3f}" for spread in spreads),
                "  ratio by round: " + " ".join(f"{one.ratio:.3f}" for one in aligned),
                sep="\n",
                flush=True,
            )


if __name__ == "__main__":
    main()
