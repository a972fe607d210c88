"""From what the user asks to the cells of a table."""

from dataclasses import dataclass, replace

from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.study.cells import RANDOM, Dataset, Finetuning, Pretraining
from fclseg.study.tables import Table, TableRow


@dataclass(frozen=True)
class Request:
    """Everything a study needs to know. ``target`` is where fine-tuning happens: ``data``, or the transfer data set."""

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
        if too_many := [labels for labels in self.labels if not 0 < labels <= most]:
            raise FCLSegError(
                f"{self.table.symbol}={too_many[0]} labelled patients are not possible, because a fold leaves {most} "
                f"with labels to train on: choose smaller --labels"
            )

    @property
    def protocol(self) -> str:
        """How the table fine-tunes; a table that does not fine-tune makes no request."""
        assert self.table.protocol is not None
        return self.table.protocol


@dataclass(frozen=True)
class Planned:
    """A cell and the place of its result in the table."""

    row: TableRow
    cell: Finetuning


def plan(request: Request) -> list[Planned]:
    """All fine-tunings of a table, folds and seeds outermost: a study that is stopped early has compared all rows."""
    sites = list(Splits.load(request.target.splits).sites) if request.protocol == "local" else [None]
    return [
        Planned(row, cell)
        for seed in range(request.seeds)
        for fold in range(request.folds)
        for site in sites
        for labels in request.labels
        for mode in request.modes
        for row in request.rows
        for cell in _cells(request, row, labels, site, fold, seed, mode)
    ]


def _cells(
    request: Request, row: TableRow, labels: int, site: str | None, fold: int, seed: int, mode: str
) -> list[Finetuning]:
    """One cell for each pre-training seed; random initialisation has none."""
    cell = Finetuning(
        protocol=request.protocol,
        job=row.job,
        labels=labels,
        site=site,
        fold=fold,
        seed=seed,
        mode=mode,
        preset=row.preset,
        data=request.target,
        pretraining=None,
    )
    if row.job == RANDOM:
        return [cell]
    return [
        replace(cell, pretraining=Pretraining(row.job, number, row.preset, request.data, row.options))
        for number in range(request.pretrain_seeds)
    ]
