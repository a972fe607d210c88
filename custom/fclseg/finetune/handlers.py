"""Handlers around the training steps: progress and losses, the frozen encoder, and checkpoints to resume from."""

import time
from pathlib import Path

import torch
from ignite.engine import Engine, Events
from tqdm import tqdm

from fclseg.errors import FCLSegError
from fclseg.files import make_folder, whole_file
from fclseg.finetune.dataset import LabelledBatches
from fclseg.networks.freezable import FreezableUNet, measure_statistics

CHECKPOINT = "checkpoint.pt"
"""The checkpoint of an unfinished training. It is removed when the model is written."""


class LossHistory:
    """Records the mean loss of every epoch and shows one progress bar over the epochs."""

    def __init__(self, progress: bool = True):
        self.losses: list[float] = []
        self.progress = progress
        self._sum: torch.Tensor | float = 0.0
        self._bar: tqdm | None = None

    def attach(self, engine: Engine) -> None:
        if not isinstance(engine.state.max_epochs, int) or engine.state.max_epochs < 1:
            raise FCLSegError(f"the number of epochs cannot be {engine.state.max_epochs}: give at least 1")
        engine.add_event_handler(Events.EPOCH_STARTED, self._show)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._add)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._close_epoch)
        engine.add_event_handler(Events.COMPLETED, self._close)

    def _show(self, engine: Engine) -> None:
        """Open the bar in the first epoch and not before: its number shows whether the training was resumed."""
        if self._bar is None:
            done, total = engine.state.epoch - 1, engine.state.max_epochs
            self._bar = tqdm(desc="training", unit="epoch", initial=done, total=total, disable=not self.progress)

    def end_after(self, engine: Engine, epochs: int) -> None:
        """Set the final number of epochs, once it is known."""
        engine.state.max_epochs = epochs
        if self._bar is not None:
            self._bar.total = epochs

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _add(self, engine: Engine) -> None:
        self._sum = self._sum + engine.state.output["loss"].detach()

    def _close_epoch(self, engine: Engine) -> None:
        loss = float(self._sum) / engine.state.epoch_length
        self._sum = 0.0
        if loss != loss:
            raise FCLSegError(
                f"the loss is not a number in epoch {engine.state.epoch}: lower learning_rate and train again"
            )
        self.losses.append(loss)
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            self._bar.update()


class FrozenEncoder:
    """Freeze the encoder for the first ``frozen_epochs``, or for the whole training (frozen-encoder evaluation)."""

    def __init__(self, network: FreezableUNet, batches: LabelledBatches, frozen_epochs: int, always: bool):
        self.network, self.batches = network, batches
        self.frozen_epochs, self.always = frozen_epochs, always

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.EPOCH_STARTED, self)

    def __call__(self, engine: Engine) -> None:
        frozen = self.always or engine.state.epoch <= self.frozen_epochs
        if frozen and not self.network.frozen:
            measure_statistics(self.network, self.batches.plain_images())
        self.network.freeze(frozen)


class ResumePoint:
    """Write the state of a training at intervals, and continue from it when the same training is started again.

    It must be the last handler, so that the state includes what the others did at the end of the epoch.
    """

    def __init__(
        self,
        output_dir: str | None,
        parts: dict[str, torch.nn.Module | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler],
        batches: LabelledBatches,
        history: LossHistory,
        settings: dict[str, object],
        every_seconds: float = 20.0,
    ):
        self.path = None if output_dir is None else Path(output_dir) / CHECKPOINT
        self.parts, self.batches, self.history = parts, batches, history
        self.settings = {name: str(value) for name, value in settings.items()}
        self.every_seconds, self._written = every_seconds, time.monotonic()

    def attach(self, engine: Engine) -> None:
        if self.path is None:
            return
        make_folder(self.path.parent)  # fail now rather than after the training
        engine.add_event_handler(Events.STARTED, self.restore)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save)

    def save(self, engine: Engine) -> None:
        if self.path is None or time.monotonic() - self._written < self.every_seconds:
            return
        states = {name: item.state_dict() for name, item in self.parts.items()}
        content = {"epoch": engine.state.epoch, "losses": self.history.losses, "settings": self.settings}
        with whole_file(self.path) as draft:
            torch.save({**content, "states": states}, draft)
        self._written = time.monotonic()

    def restore(self, engine: Engine) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            content = torch.load(self.path, weights_only=True, map_location="cpu")  # it may have been written on a GPU
        except Exception as error:  # torch has no single error type for damaged files
            raise FCLSegError(f"{self.path} is damaged: delete it to start the training from scratch") from error
        changed = [name for name, value in self.settings.items() if content["settings"].get(name) != value]
        if changed:
            raise FCLSegError(
                f"{self.path} belongs to an unfinished training with a different '{changed[0]}': "
                f"choose another output_dir, or delete that file to start from scratch"
            )
        for name, item in self.parts.items():
            item.load_state_dict(content["states"][name])
        engine.state.epoch = self.batches.epoch = content["epoch"]
        engine.state.iteration = content["epoch"] * engine.state.epoch_length
        self.history.losses = content["losses"]
