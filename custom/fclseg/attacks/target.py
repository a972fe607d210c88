"""The run that is attacked: its global networks as all parties have them after the last round."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fclseg.anatomy.folders import read_folder
from fclseg.data.sites import Splits
from fclseg.data.slices import SliceStore, open_store
from fclseg.documents import read_json
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_files import CONFIG
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.federation.states import to_tensors
from fclseg.methods.base import Method
from fclseg.methods.registry import build_method


@dataclass(frozen=True)
class Target:
    """A run and the patients around it."""

    settings: RunSettings
    method: Method
    store: SliceStore
    known: list[str]  # the attacker's patients
    victims: list[str]
    members: list[str]  # victims that the run trained on

    @property
    def others(self) -> list[str]:
        """Victims that it did not train on."""
        found = [patient for patient in self.victims if patient not in set(self.members)]
        if not found or not self.members:
            raise FCLSegError(
                "membership needs victims in the run and out of it: leave some out of the split or a fold"
            )
        return found

    @property
    def feature_network(self) -> nn.Module:
        names = list(self.method.feature_networks.values())
        if not self.settings.sends_features:
            raise FCLSegError(f"job '{self.settings.job}' sends no features, so there is nothing to attack")
        return self.method.get_submodule(names[0])


def open_target(run: Path, data: Path, splits: Path, known_sites: list[str]) -> Target:
    """The attacker owns the patients of ``known_sites``; all others in the data folder are victims."""
    settings, method = open_run(run)
    preset, split, volumes = settings.build_preset(), Splits.load(splits), read_folder(data)
    if unknown := sorted(set(known_sites) - set(split.sites)):
        raise FCLSegError(f"the split has no site '{unknown[0]}': it has {', '.join(split.sites)}")
    known = [patient for site in known_sites for patient in split.sites[site]]
    spacing = preset.images.spacing(volumes[0].anatomy)
    store = open_store(volumes, image_size=preset.images.size, spacing=spacing, progress=False)
    victims = [patient for patient in store.patients if patient not in set(known)]
    fold = settings.fold
    trained = {p for s in split.sites for p in (split.sites[s] if fold is None else split.training(s, fold))}
    return Target(settings, method, store, known, victims, [one for one in victims if one in trained])


def open_run(folder: Path) -> tuple[RunSettings, Method]:
    """Settings and global networks of a run on the server."""
    if not (folder / CONFIG).exists():
        raise FCLSegError(
            f"{folder} is no run folder (it has no {CONFIG}): give the folder of a run of fclseg pretrain"
        )
    settings = RunSettings.read(read_json(folder / CONFIG)["settings"], {})
    method = build_method(settings.row, settings.build_preset(), settings.seed)
    model = RunFolder(folder).newest(GlobalModel.initial(settings.row, method))
    method.receive({name: to_tensors(arrays) for name, arrays in model.means.items()})
    return settings, method
