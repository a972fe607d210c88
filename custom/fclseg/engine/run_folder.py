"""The run folder on the server: configuration, one line per round, checkpoints and, at the end, the networks."""

import json
import logging
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from fclseg import __version__
from fclseg.anatomy.registry import get_anatomy
from fclseg.documents import read_json, read_json_lines, understood
from fclseg.engine.messages import FORMAT
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_files import CONFIG, FAILURE, RESULT, ROUNDS, SERVER, lock_path
from fclseg.engine.run_settings import PATIENCE, RunSettings, with_full_names
from fclseg.engine.state_files import KEPT_CHECKPOINTS, StateError, read_state, write_state
from fclseg.errors import FCLSegError
from fclseg.files import append_line, private_folder, write_text
from fclseg.locks import held
from fclseg.methods.base import Method
from fclseg.methods.exchange import MODEL as SEGMENTS
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import save_encoder, save_network
from fclseg.networks.model_file import MODEL, TrainedModel, write_model

LOG = logging.getLogger(__name__)
ENCODER = "encoder.safetensors"
NETWORK = "network.safetensors"
SIMULATOR_LOG = "simulator.log"
"""NVFlare's own messages, if ``fclseg pretrain`` started it."""
GLOBAL = ""
"""The name under which ``encoders`` lists the encoder that all sites share."""
RESTORE = "restore it from a backup, or start over (--fresh or FCLSEG_FRESH=1)"
LOCK_SECONDS = 10
"""How long a run waits for another run of the same name to end, for example one that was just killed."""


class RunFolder:
    """``runs/<name>``: opened by a run when it starts and when it is continued."""

    def __init__(self, path: Path):
        self.path = path
        self.config: dict[str, Any] = {}

    def open(self, config: dict[str, Any], fresh: bool, command: str = "") -> None:
        """Create the folder, or check that it belongs to a run with the same configuration."""
        file = self.path / CONFIG
        if fresh:
            self.forget()
        if file.exists():
            self.check(config)
            return
        made = {"id": uuid.uuid4().hex, "format": FORMAT, "version": __version__, "started": time.time()}
        made["command"] = command
        self._write({**config, **made})

    @contextmanager
    def held(self, by: str = SERVER, purpose: str = "") -> Iterator[None]:
        """Lock the folder, so that two runs of the same name do not write to the same files.

        The command that starts a simulator and the server inside it each hold a lock under their own name.
        """
        with held(lock_path(self.path, by), f"the run folder {self.path}", LOCK_SECONDS, purpose):
            yield

    def fail(self, reason: str, passing: bool = False) -> None:
        """Record why the run ended early, for the command that started it and for the server, which tries again if the
        problem may be ``passing``."""
        write_text(self.path / FAILURE, json.dumps({"reason": reason, "passing": passing}, indent=2) + "\n")

    @property
    def failure(self) -> str | None:
        """Why the last attempt ended early, if it did."""
        file = self.path / FAILURE
        if not file.exists():
            return None
        with understood(file, "see the log of the run"):
            return str(read_json(file)["reason"])

    def clear_failure(self) -> None:
        (self.path / FAILURE).unlink(missing_ok=True)

    def start(
        self,
        settings: RunSettings,
        present: list[str],
        shared: Mapping[str, str | None],
        fresh: bool = False,
        command: str = "",
    ) -> list[str]:
        """Open the folder for the first or for further rounds. Returns all sites of the run.

        The sites of a simulation share one machine (``shared``): their number determines how patients are split across
        them, so it must not change.
        """
        config = {"settings": settings.to_dict(), "data": shared.get("data"), "splits": shared.get("splits")}
        self.open(config | ({"sites": present} if shared else {}), fresh, command)
        return self.admit(present)

    def admit(self, present: list[str]) -> list[str]:
        """All sites of the run: those that took part so far, connected or not, and those that join now."""
        known = self.config.get("sites", [])
        if joining := set(present) - set(known):
            self._write({**self.config, "sites": sorted({*known, *joining})})
        return self.config["sites"]

    def _write(self, config: dict[str, Any]) -> None:
        self.config = config
        write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")

    def forget(self) -> None:
        """Remove the run. A folder that was not made by a run is never removed."""
        if not any((self.path / name).exists() for name in (CONFIG, SIMULATOR_LOG)):
            return
        gone = self.path.with_name(f".{self.path.name}.forgotten")
        shutil.rmtree(gone, ignore_errors=True)
        self.path.rename(gone)  # in one step, so that no part of the old run can end up in the new one
        shutil.rmtree(gone)

    def check(self, config: dict[str, Any]) -> None:
        """Refuse a configuration that differs from the folder's in the given entries."""
        file = self.path / CONFIG
        if not file.exists():
            return
        self.config = read_json(file)
        with understood(file, RESTORE):
            found, known = self.config.get("format"), _flat(self.config)
        if found != FORMAT:
            raise FCLSegError(
                f"the run folder {self.path} has format {found}, but this version of fclseg has format {FORMAT}: "
                "continue it with the version that made it, or start over (--fresh or FCLSEG_FRESH=1)"
            )
        wanted = _flat(json.loads(json.dumps(config)))
        if different := sorted(name for name, value in wanted.items() if known.get(name) != value):
            raise FCLSegError(
                f"the run folder {self.path} belongs to a run with a different '{different[0]}': choose another name "
                "(--name or FCLSEG_RUN), or start over (--fresh or FCLSEG_FRESH=1)"
            )

    @property
    def complete(self) -> bool:
        return (self.path / RESULT).exists()

    @property
    def encoders(self) -> dict[str, Path]:
        """The encoders of a complete run: the global one, or one per site if every site keeps its own."""
        with understood(self.path / RESULT, RESTORE):
            return {site: self.path / name for site, name in self._result["encoders"].items()}

    @property
    def model(self) -> Path | None:
        """The segmentation network of a complete run, if it trained one."""
        return self._trained("model")

    @property
    def network(self) -> Path | None:
        """The whole network of a complete run, if it trained one; it need not be a segmentation network."""
        return self._trained("network")

    @property
    def site_networks(self) -> dict[str, Path]:
        """One segmentation network per site, if every site trained its own."""
        with understood(self.path / RESULT, RESTORE):
            return {site: self.path / name for site, name in self._result.get("site_networks", {}).items()}

    def _trained(self, name: str) -> Path | None:
        with understood(self.path / RESULT, RESTORE):
            return self.path / self._result[name] if name in self._result else None

    @property
    def _result(self) -> dict[str, Any]:
        return read_json(self.path / RESULT)

    def load(self, initial: GlobalModel) -> GlobalModel:
        """The newest checkpoint, or the initial model. Lines of later rounds are removed."""
        model = self.newest(initial)
        with understood(self.path / ROUNDS, RESTORE):
            lines = [line for line in self.rounds() if line["round"] < model.next_round]
        write_text(self.path / ROUNDS, "".join(json.dumps(line) + "\n" for line in lines))
        return model

    def newest(self, initial: GlobalModel) -> GlobalModel:
        """The newest checkpoint that is intact, or the initial model. The sites keep one more state than the server has
        checkpoints, so that they can repeat the round."""
        checkpoints = self._checkpoints()
        for path in reversed(checkpoints):
            try:
                return GlobalModel.from_states(initial.row, *read_state(path), initial.downlink)
            except StateError as error:
                if path == checkpoints[0]:
                    raise
                LOG.warning("%s; the run continues from the checkpoint before it", error)
        return initial

    def save(self, model: GlobalModel, record: dict[str, Any]) -> None:
        """Record a finished round. The line comes first: ``load`` trusts the checkpoint and drops lines after it."""
        append_line(self.path / ROUNDS, json.dumps(record))
        write_state(self.path / "checkpoints" / f"round-{model.next_round - 1:04d}.safetensors", *model.to_states())
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            old.unlink()

    def finish(self, encoder: Method | None, settings: RunSettings) -> None:
        """Write the files that the bundles load, then mark the run as complete. The files are the global encoder, if
        there is one, and the whole network of a job that trains one."""
        result: dict[str, Any] = {}
        last = settings.build_preset().pretraining.rounds - 1
        if encoder is not None:
            export_encoder(self.path / ENCODER, encoder, settings, last)
            result["encoders"] = {GLOBAL: ENCODER}
            if encoder.segments:
                export_model(self.path / MODEL, encoder, settings)
                result["model"] = result["network"] = MODEL
            elif encoder.whole_network:
                save_network(self.path / NETWORK, encoder.online, _origin(settings, last))
                result["network"] = NETWORK
        else:
            trained = {site for line in self.rounds() for site, report in line["sites"].items() if "loss" in report}
            result["encoders"] = {site: f"sites/{site}/{ENCODER}" for site in sorted(trained)}
            if settings.row.hands_over == SEGMENTS:
                result["site_networks"] = {site: f"sites/{site}/{MODEL}" for site in sorted(trained)}
        write_text(self.path / RESULT, json.dumps(result, indent=2) + "\n")

    def rounds(self) -> list[dict[str, Any]]:
        """The records of all finished rounds."""
        return read_json_lines(self.path / ROUNDS)

    def publish(self, folder: Path) -> None:
        """Copy the results to where ``nvflare job download`` finds them."""
        private_folder(folder)
        for name in (CONFIG, ROUNDS, RESULT, ENCODER, NETWORK, MODEL):
            if (self.path / name).exists():
                shutil.copy2(self.path / name, folder / name)

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("round-*.safetensors"))


def export_encoder(path: Path, method: Method, settings: RunSettings, round_number: int) -> None:
    """The encoder of the online network, in the format that the bundles load."""
    save_encoder(path, method.online.encoder, _origin(settings, round_number))


def _origin(settings: RunSettings, round_number: int) -> dict[str, object]:
    return {"preset": settings.preset, "run": settings.run, "job": settings.job, "round": round_number}


def export_model(path: Path, method: Method, settings: RunSettings) -> None:
    """The whole online network of a job that trains a segmentation network, in the format of the bundles' inference."""
    images, anatomy = settings.build_preset().images, get_anatomy(settings.anatomy)
    network: FreezableUNet = method.online  # type: ignore[assignment]  # the method trains whole networks
    write_model(path, TrainedModel(network, anatomy, images.size, images.spacing(anatomy), settings.preset))


def describe(record: dict[str, Any], rounds: int) -> str:
    """One line for the log."""
    good = [site for site, report in record["sites"].items() if report["status"] == "ok"]
    shown = record.get("d_predicted", record["d"])
    text = f"round {record['round'] + 1}/{rounds}  loss {record['loss']:.4f}"
    text += f"  d {shown:.3e}" if shown is not None else ""
    text += f"  sites {len(good)}/{len(record['sites'])}  {record['seconds']:.1f} s"
    return "; ".join([text, *(f"{site}: {what}" for site, what in sorted(record.get("noticed", {}).items()))])


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as a flat dictionary, without the settings that may change."""
    defaults = {entry.name: entry.default for entry in fields(RunSettings) if entry.default is not MISSING}
    pairs = {**config, **defaults, **with_full_names(config.get("settings", {}))}
    return {name: value for name, value in pairs.items() if name not in (*PATIENCE, "settings")}
