"""Turns the user's request into the cells of a table."""

from dataclasses import dataclass, replace

from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ENCODER, MODEL, SHIPPED, get_row
from fclseg.presets import Preset
from fclseg.study.cells import FULL, RANDOM, Dataset, Finetuning, Pretraining
from fclseg.study.tables import Table, TableRow


@dataclass(frozen=True)
class Request:
    """Everything a study needs. ``target`` is the data set for fine-tuning: ``data``, or the transfer data set."""

    table: Table
    rows: tuple[TableRow, ...]
    labels: tuple[int, ...]
    folds: int
    seeds: int
    pretrain_seeds: int
    modes: tuple[str, ...]
    data: Dataset
    target: Dataset
    baseline: str | None
    first_seed: int = 0
    unseen: bool = False  # one pre-training per fold, without its held-out patients
    pooled: Dataset | None = None  # ``data`` with all patients at one site, for rows that are pre-trained there

    def __post_init__(self) -> None:
        splits = Splits.load(self.target.splits)
        if not 0 < self.folds <= splits.folds:
            raise FCLSegError(f"the split has {splits.folds} folds, so --folds must be between 1 and {splits.folds}")
        if self.baseline is not None and self.baseline not in [row.key for row in self.rows]:
            keys = ", ".join(row.key for row in self.rows)
            raise FCLSegError(f"the baseline '{self.baseline}' is not a row of this table: choose one of {keys}")
        if not self.table.trains:
            return
        together = self.table.protocol in ("centralised", "transfer")
        counts = [[len(splits.candidates(site, fold)) for site in splits.sites] for fold in range(self.folds)]
        most = min(sum(fold) if together else min(fold) for fold in counts)
        if self.unseen and self.data != self.target:
            raise FCLSegError(
                "--unseen makes no sense if pre-training and fine-tuning use different images: leave it out"
            )
        if self.protocol == "federated" and any(row.preset.finetuning.unlabelled_weight for row in self.rows):
            raise FCLSegError(
                "federated fine-tuning uses labelled patients only: leave out finetuning.unlabelled_weight"
            )
        if 0 in self.labels and not any(_segments(self, row) for row in self.rows):
            raise FCLSegError(
                f"{self.table.symbol}=0 is possible only for networks that segment without labels: add shipped or "
                "mean_teacher to --methods"
            )
        if too_many := [labels for labels in self.labels if labels > most]:
            raise FCLSegError(
                f"{self.table.symbol}={too_many[0]} labelled patients are too many, because a fold leaves only {most} "
                f"with labels to train on: choose smaller --labels"
            )

    @property
    def protocol(self) -> str:
        """How the table fine-tunes. A table without fine-tuning makes no request."""
        assert self.table.protocol is not None
        return self.table.protocol


@dataclass(frozen=True)
class Planned:
    """A cell and the position of its result in the table."""

    row: TableRow
    cell: Finetuning


def plan(request: Request) -> list[Planned]:
    """All fine-tunings of a table. Folds and seeds are the outer loops, so that a study stopped early has all rows.

    Without labels nothing is fine-tuned, so there is one cell per fold, and it belongs to no site.
    """
    sites = list(Splits.load(request.target.splits).sites) if request.protocol == "local" else [None]
    places: list[tuple[str | None, int]] = [(None, 0)] if 0 in request.labels else []
    places += [(site, labels) for site in sites for labels in request.labels if labels]
    return [
        Planned(row, cell)
        for seed in range(request.first_seed, request.first_seed + request.seeds)
        for fold in range(request.folds)
        for site, labels in places
        for mode in request.modes
        for row in request.rows
        for cell in _cells(request, row, labels, site, fold, seed, mode)
    ]


def _segments(request: Request, row: TableRow) -> bool:
    """Whether its pre-training gives a network that already segments the structures of the target.

    A method that trains only the encoder leaves the start's decoder in place. One that trains the whole network for
    something else, such as motion, does not.
    """
    same = request.data.anatomy.structures == request.target.anatomy.structures
    if row.job in (RANDOM, SHIPPED):
        return same and row.job == SHIPPED
    trained = get_row(row.job).hands_over
    return same and (trained == MODEL or (trained == ENCODER and row.options.start is not None))


def _finetuned_with(request: Request, row: TableRow, labels: int) -> Preset:
    """The row's settings for full fine-tuning. Without labels nothing is trained that could be averaged."""
    if not _segments(request, row):
        return row.preset
    preset = row.preset.from_model()
    return preset if labels else preset.changed({"finetuning.start_share": 0.0})


def _cells(
    request: Request, row: TableRow, labels: int, site: str | None, fold: int, seed: int, mode: str
) -> list[Finetuning]:
    """One cell per pre-training seed. Random initialisation and the shipped weights have none."""
    if labels == 0 and (not _segments(request, row) or mode != FULL or seed > request.first_seed):
        return []
    if row.job == SHIPPED and mode != FULL:  # its encoder was not pre-trained
        return []
    cell = Finetuning(
        protocol=request.protocol,
        job=row.job,
        labels=labels,
        site=site,
        fold=fold,
        seed=seed,
        mode=mode,
        preset=_finetuned_with(request, row, labels) if mode == FULL else row.preset,
        data=request.target,
        pretraining=None,
    )
    if row.job in (RANDOM, SHIPPED):
        return [cell]
    preset = row.preset.changed(row.preset.adaptation()) if get_row(row.job).start else row.preset
    data = request.data
    if row.pooled and request.pooled is not None:
        # As many steps as one site takes in the federation, so that both networks are trained equally long.
        share = 1 / len(Splits.load(request.data.splits).sites)
        data, preset = request.pooled, preset.changed({"pretraining.epoch_share": share})
    seeds = range(request.first_seed, request.first_seed + request.pretrain_seeds)
    first = Pretraining(row.job, 0, preset, data, row.options, fold if request.unseen else None)
    return [replace(cell, pretraining=replace(first, seed=number)) for number in seeds]
