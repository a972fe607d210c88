"""The paper's tables as data: rows, fine-tuning protocol, and what the standard deviation is taken over."""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ROWS, SHIPPED
from fclseg.presets import Preset
from fclseg.study.cells import FEDERATED_JOB, RANDOM
from fclseg.study.job_options import PLAIN, JobOptions

PROPOSED = ("fcl", "fclopt", "fclopt_ptnu", "fclopt_dp")
BASELINES = ("local_cl", "fedrotation", "fedsimclr", "fedswav", "fedca", "fedmoco", "fedbyol", "fedu", "fedgl")
COMMUNICATION = ("fedmoco", "fedbyol", *PROPOSED)
SEEN = "Pre-training saw the images of all patients, including those that a fold holds out, but no labels."
UNSEEN = "Pre-training did not see the patients that a fold holds out."
"""A note for every table that fine-tunes on the images of the pre-training."""


@dataclass(frozen=True)
class Table:
    """One table of the paper. ``protocol`` is a fine-tuning protocol; None if nothing is trained."""

    name: str
    title: str
    about: str
    methods: tuple[str, ...]
    protocol: str | None = None
    spread: str = "site"  # what the sd is taken over: sites (means over their folds) or folds
    symbol: str = "N"  # the paper's letter for the number of labelled patients
    rates: tuple[float, ...] = ()  # fine-tuning learning rates, if they are the rows
    trains: bool = True  # False: only shows fine-tunings of other tables, runs none itself

    @property
    def pretrains(self) -> bool:
        return self.protocol is not None and self.trains


TABLES = {
    table.name: table
    for table in (
        Table(
            "local",
            "Local fine-tuning",
            "Each site fine-tunes alone with N labelled patients and is evaluated on the fold's held-out patients of "
            "every site. Dice: mean and standard deviation across sites of each site's average over folds. "
            f"{SEEN}",
            (RANDOM, *BASELINES, *PROPOSED),
            "local",
        ),
        Table(
            "federated",
            "Federated fine-tuning",
            "All sites fine-tune one network together (supervised FedAvg), each with N labelled patients; evaluated "
            "on the fold's held-out patients of every site. Dice: mean and standard deviation across folds. "
            f"{SEEN}",
            (RANDOM, *BASELINES, *PROPOSED),
            "federated",
            spread="fold",
        ),
        Table(
            "centralised",
            "Centralised fine-tuning",
            "N labelled patients are drawn from the training folds of all sites together. Dice: mean and standard "
            "deviation across folds. "
            f"{SEEN}",
            (RANDOM, *BASELINES, *PROPOSED),
            "centralised",
            spread="fold",
        ),
        Table(
            "transfer",
            "Transfer to another data set",
            "The encoder is pre-trained on short-axis images (ACDC) and fine-tuned on axial ones (HVSMR) with M "
            "labelled patients. Dice: mean and standard deviation over the folds of the cross-validation.",
            (RANDOM, *BASELINES, *PROPOSED),
            "transfer",
            spread="fold",
            symbol="M",
        ),
        Table(
            "ablation",
            "What each part of FCL adds",
            "Feature exchange (FE), negative sampling (NS) and global structural matching (GSM) switched on one after "
            "the other; local fine-tuning, mean and standard deviation across sites. "
            f"{SEEN}",
            ("fcl_no_fe", "fcl_fe", "fcl_fe_ns", "fcl"),
            "local",
        ),
        Table(
            "communication",
            "Communication",
            "Payload per round and site in pre-training, sent and received, at the preset's network sizes and at the "
            "paper's, next to the Dice of local fine-tuning if that has been run.",
            COMMUNICATION,
            "local",
            trains=False,
        ),
        Table(
            "components",
            "What crosses the wire",
            "The model components that each method exchanges in pre-training, read from the exchange plan that the "
            "jobs themselves follow.",
            COMMUNICATION,
        ),
        Table(
            "learning-rate",
            "Learning rate of the baseline",
            "Random initialisation at several fine-tuning learning rates, centralised fine-tuning: is the baseline "
            "held back by its rate? Mean and standard deviation across folds.",
            (RANDOM,),
            "centralised",
            spread="fold",
            rates=(0.0005, 0.001, 0.002, 0.005, 0.01),
        ),
    )
}


@dataclass(frozen=True)
class TableRow:
    """One line of a table: a pre-training job and the preset for fine-tuning."""

    key: str
    title: str
    job: str  # the pre-training job; ``random`` for none
    preset: Preset
    options: JobOptions = PLAIN
    pooled: bool = False  # pre-trained with all data in one place


NOT_PRETRAINED = {RANDOM: "Random init", SHIPPED: "Shipped weights"}
"""Rows without their own pre-training, by the names that --methods takes."""


def title_of(method: str) -> str:
    """The paper's name for a row."""
    return NOT_PRETRAINED[method] if method in NOT_PRETRAINED else ROWS[method].title


def choose_methods(table: Table, wanted: str | None) -> tuple[str, ...]:
    """The methods of ``--methods a,b,c`` in the table's order, or the table's own."""
    if not wanted:
        return table.methods
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    known = [*NOT_PRETRAINED, *(name for name in ROWS if name != FEDERATED_JOB)]
    if unknown := [name for name in names if name not in known]:
        raise FCLSegError(f"there is no method '{unknown[0]}': choose from {', '.join(known)}")
    return tuple(sorted(dict.fromkeys(names), key=(*table.methods, *known).index))


def table_rows(
    table: Table,
    methods: tuple[str, ...],
    preset: Preset,
    options: JobOptions = PLAIN,
    plain: bool = True,
    pooled: bool = False,
) -> list[TableRow]:
    """The lines of a table: one per method, or one per learning rate. With ``options`` each pre-trained method has a
    line with them and, if ``plain`` is true, a line without them before it. With ``pooled`` each line whose sites share
    a network is followed by one with all data in one place."""
    if (options or pooled) and not table.pretrains:
        raise FCLSegError(
            f"the table {table.name} has no pre-training: leave out --job-set, --filter and --also-pooled"
        )
    rows = []
    for method in methods:
        for row in _method_rows(table, method, preset):
            added = PLAIN if method in NOT_PRETRAINED else options.without_own(ROWS[method])
            if not added or plain:
                rows.append(row)
            if added:
                rows.append(replace(row, key=f"{row.key}@{added}", title=f"{row.title}, {added}", options=added))
    return [one for row in rows for one in (row, *_pooled_row(row, pooled))]


def _pooled_row(row: TableRow, wanted: bool) -> list[TableRow]:
    if not wanted or row.job in NOT_PRETRAINED or not ROWS[row.job].shares_online:
        return []
    return [replace(row, key=f"{row.key}@pooled", title=f"{row.title}, all data in one place", pooled=True)]


def _method_rows(table: Table, method: str, preset: Preset) -> list[TableRow]:
    title = title_of(method)
    if not table.rates:
        return [TableRow(method, title, method, preset)]
    return [
        TableRow(f"{method}@{rate:g}", f"{title}, {rate:g}", method, preset.changed({"finetuning.lr": rate}))
        for rate in table.rates
    ]


@cache
def paper_tables() -> dict[str, Any]:
    """The figures printed in the paper, by table and row."""
    return json.loads(resources.files("fclseg.study").joinpath("paper_tables.json").read_text())


def paper_dice(table: str, row: str, labels: int) -> tuple[float, float] | None:
    """The paper's mean and sd for one cell of a table, or None if it has none."""
    figures = paper_tables().get(table, {})
    values = figures.get("dice", {}).get(row)
    if values is None or labels not in figures["labels"]:
        return None
    return tuple(values[figures["labels"].index(labels)])
