"""One site in one run: its memory, its method and its images.

Methods and data are imported only when needed. In a simulation with few threads every task is a new process, and a task
that only measures a distance should not have to wait for these imports.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fclseg.anatomy.registry import get_anatomy
from fclseg.documents import read_json, understood
from fclseg.engine.messages import Message, check_format
from fclseg.engine.place import Place
from fclseg.engine.run_settings import MOST_NAME, RunSettings
from fclseg.errors import DataError, PublicError
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.files import write_text
from fclseg.methods.exchange import ALWAYS
from fclseg.presets import full_name, get_preset
from fclseg.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fclseg.anatomy.base import Anatomy
    from fclseg.anatomy.records import Volume
    from fclseg.data.place import Locate
    from fclseg.data.sampler import SliceSampler
    from fclseg.engine.memory import SiteMemory
    from fclseg.methods.base import Method
    from fclseg.networks.interface import EncoderFactory
    from fclseg.secure_sums.identity import Identity


LOG = logging.getLogger(__name__)
RUN_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
"""What identifies a run. The server makes it, so a site checks its form before it writes it down."""
PATIENTS = "patients.json"
"""In the site's memory: whom it trained on in its first round."""


class Site:
    """What a task needs at a site. Everything about the run arrives with the task."""

    def __init__(
        self,
        place: Place,
        settings: RunSettings,
        run_id: str,
        sites: list[str],
        encoder: EncoderFactory | None = None,
    ):
        """``encoder`` makes another encoder than the paper's, in a run within this process."""
        self.place, self.settings, self.run_id, self.sites = place, settings, run_id, sites
        self._encoder = encoder
        self.preset, self.anatomy = settings.build_preset(), get_anatomy(settings.anatomy)
        self.codec = settings.run_codec

    @classmethod
    def of(cls, place: Place, message: Message) -> Site:
        """The site in the run that a message belongs to."""
        run = message.meta["run"]
        check_format(run.get("format"), "the server")
        if place.simulated:
            place = replace(place, shared=run["shared"])
        settings = RunSettings.read(run["settings"], {})  # with all checks, because the message comes from outside
        run_id, sites = run["id"], run["sites"]
        if not (isinstance(run_id, str) and RUN_ID.fullmatch(run_id)) or not isinstance(sites, list):
            raise PublicError("the task names no run: run the same version everywhere")
        if not all(isinstance(name, str) and 0 < len(name) <= MOST_NAME and printable(name) == name for name in sites):
            raise PublicError("the task lists a site without a plain name: choose plain names when you provision")
        return cls(place, settings, run_id, sites)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same run at the same place, so that objects built for one can serve the other."""
        return isinstance(other, Site) and self._key == other._key

    @property
    def _key(self) -> tuple[Place, RunSettings, str, list[str]]:
        return self.place, self.settings, self.run_id, self.sites

    @cached_property
    def memory(self) -> SiteMemory:
        """What the site keeps on its disk between two tasks."""
        from fclseg.engine.memory import SiteMemory

        return SiteMemory(self.place.runs / self.settings.run / "sites" / self.place.name, self.run_id)

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def identity(self) -> Identity:
        """What the site signs with: the certificate of its startup kit."""
        from fclseg.secure_sums.identity import CertifiedSite, SimulatedSite

        kit = self.place.workspace / "startup"
        return (
            SimulatedSite(self.name) if self.place.simulated else CertifiedSite(kit / "client.crt", kit / "client.key")
        )

    @property
    def rounds(self) -> int:
        return self.preset.pretraining.rounds

    @property
    def calibration_rounds(self) -> int:
        return self.preset.pretraining.calibration_rounds

    @property
    def foreign_changes(self) -> dict[str, Any]:
        """The preset settings that the run changes, except for the package's own changes for this job."""
        from fclseg.engine.job_defaults import budget

        given = budget(self.settings.row, get_preset(self.settings.preset), self.settings.network)
        own = {full_name(name): value for name, value in given.items()}
        return {name: value for name, value in self.settings.changes.items() if own.get(name) != value}

    @property
    def patient_count(self) -> int:
        return len({volume.patient for volume in self.volumes})

    def keep_received(self, message: Message) -> None:
        """Keep the networks of a task if the codec needs them for the upload and for the next round."""
        down = {flow.component for flow in self.settings.row.flows if flow.down == ALWAYS}
        received = {name: to_tensors(part) for name, part in message.components.items() if name in down}
        if self.codec and received:
            self.memory.keep_global(message.round_number, received)

    def build_method(self) -> Method:
        """The method with the initial weights, which every site derives from the run's seed.

        If nothing comes down, a run that starts from the shipped weights takes them from the site's own installation.
        """
        from fclseg.methods.registry import build_method

        method = build_method(self.settings.row, self.preset, self.settings.seed, self.anatomy, self._encoder)
        if not self.settings.row.flows and (network := self.settings.network_file):
            method.start_from(network)
        return method

    def target(self, round_number: int, online: Arrays) -> Arrays:
        """The site's own target at the start of the round; the initial target if the site has not trained yet.

        If the run starts from a file, only the server has that file. The initial target is then the network that came
        down.
        """
        if state := self.memory.load_before(round_number):
            return to_arrays(state.component("target"))
        starts_from_file = self.settings.encoder is not None or self.settings.network is not None
        return online if starts_from_file else to_arrays(self.build_method().send("target"))

    @cached_property
    def method(self) -> Method:
        """Built once per process, on the site's device. Each task loads its weights from the site's memory."""
        return self.build_method().to(self.place.device)

    def read(self, folder: Path) -> Sequence[Volume]:
        """All volumes of the site's folder."""
        from fclseg.anatomy.folders import read_folder

        return read_folder(folder)

    @cached_property
    def volumes(self) -> Sequence[Volume]:
        """The volumes of the patients that the site may train on."""
        volumes = self.read(self._images)
        anatomy = volumes[0].anatomy
        different = anatomy.structures and anatomy.structures != self.anatomy.structures
        if self.method.wants_labels and different:
            raise DataError(
                f"{self.place.name} has the labels {anatomy.describe_values()}, but this run segments "
                f"{self.anatomy.describe_values()}: this site cannot take part"
            )
        patients = self._patients(volumes)
        chosen = volumes if patients is None else [volume for volume in volumes if volume.patient in patients]
        return chosen if self.place.simulated or not self.memory.on_disk else self._from_the_start(chosen)

    def _from_the_start(self, volumes: Sequence[Volume]) -> Sequence[Volume]:
        """Only the patients of the site's first round in this run: later ones wait for the next run, so that the run
        stays one experiment. A patient who is gone ends the site's part in it."""
        keys = {volume.patient: hashlib.sha256(volume.patient.encode()).hexdigest()[:16] for volume in volumes}
        path = self.memory.folder / PATIENTS
        if path.exists() and (known := read_json(path)).get("run") == self.run_id:
            with understood(path, "restore it from a backup"):
                first = set(known["patients"])
        else:
            first = set(keys.values())
            write_text(path, json.dumps({"run": self.run_id, "patients": sorted(first)}) + "\n")
        if first - set(keys.values()):
            raise PublicError("a patient of this run is no longer at this site: restore the images, or start a new run")
        if later := set(keys.values()) - first:
            LOG.info("%d patients were added during the run and are left out of it", len(later))
        return [volume for volume in volumes if keys[volume.patient] in first]

    @property
    def _images(self) -> Path:
        if self.place.data is not None:
            return self.place.data
        if not self.place.on_phantoms:
            raise DataError(f'{self.place.name} has no data folder: set "data" in local/fclseg.json or FCLSEG_DATA')
        from fclseg.engine.simulation import phantom_of

        return phantom_of(self.place)

    @cached_property
    def sampler(self) -> SliceSampler:
        """Batches of the site's own slices: all frames of its patients, or labelled frames for a supervised method."""
        from fclseg.data.sampler import SliceSampler
        from fclseg.data.slices import open_store

        volumes, labels = self.volumes, self.method.wants_labels
        anatomy = self.anatomy if labels or not volumes else volumes[0].anatomy
        images = self.preset.images
        store = open_store(
            volumes,
            image_size=images.size,
            spacing=images.spacing(anatomy),
            around=self._around(anatomy),
            cache=self.place.cache,
            progress=False,
        )
        indices = store.select(labelled=True if labels else None)
        if labels and (highest := int(store.labels[indices].max(initial=0))) >= self.anatomy.classes:
            raise DataError(
                f"{self.place.name} has the label {highest}, but this run segments {self.anatomy.describe_values()}: "
                "change the labels, or define them in labels.json; until then this site cannot take part"
            )
        return SliceSampler(
            store,
            indices,
            self.preset.pretraining.batch_size,
            partners=self.method.wants_partners,
            labels=labels,
            device=self.place.device,
        )

    def _around(self, anatomy: Anatomy) -> Locate | None:
        """What the slices show: the middle of the image, or what inference will show to the network."""
        if not (self.preset.images.windows and self.method.segments):
            return None
        if self.method.wants_labels:
            from fclseg.data.place import AroundLabels

            return AroundLabels()
        from fclseg.inference.find import shipped_finder

        return shipped_finder(anatomy, self.place.device)

    def _patients(self, volumes: Sequence[Volume]) -> set[str] | None:
        """The patients that the site may train on; None: all in its folder.

        In a simulation all sites share one folder, and a split divides its patients among them. A real site has its own
        folder and needs a split only to leave out a fold or to choose labelled patients.
        """
        from fclseg.data.sites import Splits

        name, settings = self.place.name, self.settings
        if self.place.splits:
            splits = Splits.load(self.place.splits)
        elif self.place.simulated:
            available = sorted({volume.patient for volume in volumes})
            labelled = {volume.patient for volume in volumes if volume.label is not None}
            folds, without = (5, set(available) - labelled) if settings.needs_folds else (0, ())
            splits = Splits.make(available, len(self.sites), folds, settings.seed, unlabelled=without)
        elif not settings.needs_folds:
            return None
        else:
            why = "choose labelled patients" if settings.fold is None else f"leave out fold {settings.fold}"
            raise DataError(f"{name} needs a splits file to {why}: set FCLSEG_SPLITS")
        if name not in splits.sites:
            raise DataError(
                f"the splits have no site '{name}', only {', '.join(splits.sites)}: set FCLSEG_SPLITS to the right file"
            )
        if settings.labels is not None:
            return set(splits.labelled(name, settings.fold or 0, settings.labels, seed=settings.seed))
        return set(splits.sites[name] if settings.fold is None else splits.training(name, settings.fold))
