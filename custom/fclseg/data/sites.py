"""Which patient is at which site and in which fold: one small JSON file that all other code reads."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from fclseg.data.assignment import check_unique
from fclseg.documents import UNUSABLE, read_json
from fclseg.errors import DataError
from fclseg.files import write_text
from fclseg.randomness import derive_seed

FORMAT = 1

POOLED = "all-sites"
"""The one site of a split that has all data in one place."""


@dataclass(frozen=True)
class Splits:
    """Patients of each site, and for each site the patients that each fold holds out for validation.

    Folds contain labelled patients. Patients in no fold have no labels and are used for pre-training only.
    """

    sites: dict[str, list[str]]
    held_out: dict[str, list[list[str]]]
    seed: int = 0
    outside: dict[str, list[str]] = field(default_factory=dict)  # sites that take part in nothing; scored in every fold

    @property
    def folds(self) -> int:
        """The number of folds, which is the same at every site."""
        return len(next(iter(self.held_out.values())))

    @property
    def patients(self) -> list[str]:
        return [patient for patients in self.sites.values() for patient in patients]

    @classmethod
    def make(
        cls,
        patients: Iterable[str],
        sites: int | Mapping[str, str],
        folds: int = 5,
        seed: int = 0,
        unlabelled: Collection[str] = (),
    ) -> "Splits":
        """Split patients across ``sites`` sites (site-1, site-2, ...) at random, or by a mapping patient -> site.

        The same seed gives the same split in every process. Sites, and folds of a site, differ in size by at most one
        labelled patient and at most one patient of ``unlabelled``; the latter are in no fold. Without folds (0) nobody
        is held out, so a site may have a single patient.
        """
        patients = list(patients)
        check_unique(patients, "the data")
        labelled = [patient for patient in patients if patient not in unlabelled]
        if isinstance(sites, Mapping):
            assigned = _assign(patients, sites)
        elif sites < 1:
            raise DataError(f"patients cannot be split across {sites} sites; ask for at least one")
        else:
            dealt = [_deal(_shuffled(group, seed, "sites"), sites) for group in (labelled, unlabelled)]
            assigned = {
                f"site-{number}": sorted([*some, *others])
                for number, (some, others) in enumerate(zip(*dealt, strict=True), start=1)
            }
        if folds < 2 and folds != 0:
            raise DataError(f"{folds} folds leave nothing to train on or to validate with; ask for at least two")
        with_labels = {
            site: [patient for patient in group if patient not in unlabelled] for site, group in assigned.items()
        }
        _check_occupied(assigned)
        _check_folds(with_labels, folds, "labelled patient" if unlabelled else "patient")
        held_out = {
            site: [sorted(fold) for fold in _deal(_shuffled(group, seed, site, "folds"), folds)] if folds else []
            for site, group in with_labels.items()
        }
        return cls(assigned, held_out, seed)

    def pooled(self) -> "Splits":
        """All patients at one site. A fold holds out the same patients as before."""
        held_out = [self.inside(fold) for fold in range(self.folds)]
        return Splits({POOLED: self.patients}, {POOLED: held_out}, self.seed, self.outside)

    def without(self, site: str) -> "Splits":
        """The split with one site held out of everything: its labelled patients are scored in every fold."""
        labelled = [patient for fold in self._site(site) for patient in fold]
        if len(self.sites) == 1:
            raise DataError(f"{site} is the only site, so it cannot be held out; split the patients across more sites")
        return replace(
            self,
            sites={name: patients for name, patients in self.sites.items() if name != site},
            held_out={name: folds for name, folds in self.held_out.items() if name != site},
            outside={**self.outside, site: sorted(labelled)},
        )

    @classmethod
    def load(cls, path: Path | str) -> "Splits":
        """Read and check a file that ``save`` wrote (or somebody edited)."""
        document = read_json(Path(path))
        try:
            if document["format"] != FORMAT:
                raise DataError(
                    f"{path}: has format {document['format']}, not {FORMAT}; make a new one: fclseg data split"
                )
            entries = {str(site): entry for site, entry in document["sites"].items()}
            sites = {site: [str(patient) for patient in entry["patients"]] for site, entry in entries.items()}
            held_out = {
                site: [[str(patient) for patient in fold] for fold in entry["folds"]] for site, entry in entries.items()
            }
            outside = {str(site): list(map(str, group)) for site, group in document.get("outside", {}).items()}
            splits = cls(sites, held_out, int(document["seed"]), outside)
        except UNUSABLE:
            raise DataError(f"{path}: is not a splits file; make one with: fclseg data split DIR --out FILE") from None
        splits._check(str(path))
        return splits

    def save(self, path: Path | str) -> None:
        """Write the file atomically."""
        entries = {site: {"patients": self.sites[site], "folds": self.held_out[site]} for site in self.sites}
        document = {"format": FORMAT, "seed": self.seed, "sites": entries}
        document |= {"outside": self.outside} if self.outside else {}
        text = json.dumps(document, indent=1) + "\n"
        write_text(path, text)

    def validation(self, fold: int, site: str | None = None) -> list[str]:
        """Patients held out in a fold, of one site or of all sites and of those outside."""
        self._check_fold(fold)
        if site is not None:
            return self._site(site)[fold]
        return [*self.inside(fold), *(patient for group in self.outside.values() for patient in group)]

    def inside(self, fold: int) -> list[str]:
        """Patients held out in a fold, of the sites that take part."""
        self._check_fold(fold)
        return [patient for name in self.sites for patient in self._site(name)[fold]]

    def training(self, site: str, fold: int) -> list[str]:
        """Patients of a site that a fold does not hold out, with labels or without."""
        held_out = set(self.validation(fold, site))
        return [patient for patient in self.sites[site] if patient not in held_out]

    def candidates(self, site: str, fold: int) -> list[str]:
        """The labelled patients among them: those that the other folds hold out."""
        labelled = {patient for others in self._site(site) for patient in others}
        return [patient for patient in self.training(site, fold) if patient in labelled]

    def labelled(self, site: str, fold: int, labels: int, seed: int = 0) -> list[str]:
        """N = ``labels`` labelled patients of a fold. For one seed, a larger N adds patients and removes none."""
        candidates = self.candidates(site, fold)
        if not 0 < labels <= len(candidates):
            raise DataError(
                f"{site} has only {len(candidates)} training patients in fold {fold}, so N cannot be {labels}"
            )
        return _shuffled(candidates, seed, site, fold, "annotated")[:labels]

    def check_patients(self, known: Iterable[str], source: str) -> None:
        """Refuse a split that names patients the data does not have."""
        named = {*self.patients, *(patient for group in self.outside.values() for patient in group)}
        if unknown := sorted(named - set(known)):
            raise DataError(f"{source}: patient {unknown[0]} is not in the data; use the split made for this folder")

    def _site(self, site: str) -> list[list[str]]:
        if site not in self.held_out:
            raise DataError(f"there is no site '{site}' in the split; it has {', '.join(self.sites)}")
        return self.held_out[site]

    def _check_fold(self, fold: int) -> None:
        if not 0 <= fold < self.folds:
            has = f"folds 0 to {self.folds - 1}" if self.folds else "none"
            raise DataError(f"there is no fold {fold}; the split has {has}")

    def _check(self, source: str) -> None:
        if not self.sites:
            raise DataError(f"{source}: contains no site; make a new one: fclseg data split")
        check_unique([*self.patients, *(patient for group in self.outside.values() for patient in group)], source)
        _check_occupied(self.sites, f"{source}: ")
        for site, folds in self.held_out.items():
            if len(folds) != self.folds:
                raise DataError(f"{source}: {site} has {len(folds)} folds, others {self.folds}; use the same number")
            if not all(folds):
                raise DataError(f"{source}: a fold of {site} holds out no patient; give each fold at least one")
            held_out = [patient for fold in folds for patient in fold]
            if len(set(held_out)) < len(held_out) or not set(held_out) <= set(self.sites[site]):
                raise DataError(f"{source}: the folds of {site} must hold out its own patients, each once; correct it")


def _deal(items: list[str], hands: int) -> list[list[str]]:
    """Consecutive groups whose sizes differ by at most one, larger ones first."""
    size, rest = divmod(len(items), hands)
    bounds = [number * size + min(number, rest) for number in range(hands + 1)]
    return [items[start:stop] for start, stop in pairwise(bounds)]


def _shuffled(items: Iterable[str], seed: int, *keys: object) -> list[str]:
    """Shuffled by hash: the same order on every machine and with every version of every library."""
    return sorted(items, key=lambda item: derive_seed(seed, *keys, item))


def _assign(patients: list[str], site_of: Mapping[str, str]) -> dict[str, list[str]]:
    if unknown := sorted(set(site_of) - set(patients)):
        raise DataError(f"the assignment names patient {unknown[0]}, who is not in the data; remove the entry")
    if missing := sorted(set(patients) - set(site_of)):
        raise DataError(f"the assignment has no site for patient {missing[0]}; add an entry")
    return {
        site: sorted(p for p in patients if site_of[p] == site) for site in sorted(set(site_of.values()), key=_natural)
    }


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts site-2 before site-10."""
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part) for part in re.split(r"(\d+)", name)]


def _check_occupied(sites: Mapping[str, list[str]], prefix: str = "") -> None:
    if empty := [site for site, patients in sites.items() if not patients]:
        raise DataError(f"{prefix}{empty[0]} has no patients; ask for fewer sites or remove it")


def _check_folds(sites: Mapping[str, list[str]], folds: int, who: str) -> None:
    for site, patients in sites.items():
        if (few := len(patients)) < folds:
            number = f"{few} {who}{'' if few == 1 else 's'}"
            raise DataError(f"{site} has {number}, fewer than the {folds} folds; ask for fewer folds or sites")
