"""Folders of a simulation, whose sites share one machine, and the phantoms that are used if there are no images."""

from pathlib import Path

from fclseg.data.sites import Splits
from fclseg.engine.place import Place
from fclseg.phantom.dataset import phantom_sites, write_phantom
from fclseg.randomness import derive_seed

PHANTOM_PATIENTS = 3
"""Per site."""


def shared_places(place: Place, sites: list[str]) -> tuple[dict[str, str | None], str]:
    """Folders for all simulated sites, and a log sentence that says which images are used."""
    split = str(place.splits) if place.splits else None
    folders: dict[str, str | None] = {"runs": str(place.runs), "cache": str(place.cache), "splits": split}
    if place.data is not None:
        return folders | {"data": str(place.data)}, f"images: {place.data}, split across {len(sites)} sites"
    count = PHANTOM_PATIENTS * len(sites)
    folder = place.cache / f"phantom-{count}-patients-{len(sites)}-scanners"
    if not folder.exists():
        write_phantom(folder, patients=count, sites=len(sites))
    splits = folder.with_suffix(".splits.json")
    owner = {patient: site for site, patients in phantom_sites(count, len(sites)).items() for patient in patients}
    Splits.make(sorted(owner), owner, folds=2).save(splits)
    sentence = f"no data folder is configured (FCLSEG_DATA): using {count} phantom patients in {folder}"
    return folders | {"data": str(folder), "splits": str(splits)}, sentence


def phantom_of(place: Place) -> Path:
    """The folder of generated patients of a site in a proof of concept. They depend on the site's name only, so that
    they stay the same when other sites join."""
    folder = place.cache / f"phantom-{PHANTOM_PATIENTS}-patients-of-{place.name}"
    if not folder.exists():
        write_phantom(folder, patients=PHANTOM_PATIENTS, seed=derive_seed(0, place.name))
    return folder
