"""A whole study: data, plan, missing cells, tables and report."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.presets import get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import RANDOM, Dataset
from fclseg.study.datasets import phantom_dataset, pooled_dataset, prepare_dataset
from fclseg.study.document import Study
from fclseg.study.export import MODES, comparison_table, dice_table, markdown, write_exports
from fclseg.study.job_options import FilterSpec, JobOptions
from fclseg.study.plain_words import plain_words
from fclseg.study.plan import Planned, Request, plan
from fclseg.study.report.page import write_report
from fclseg.study.results import empty_document, study_document
from fclseg.study.scheduler import Failure, Scheduler
from fclseg.study.tables import TABLES, Table, TableRow, choose_methods, table_rows
from fclseg.study.wire import communication_figures, components_table


@dataclass(frozen=True)
class StudyOptions:
    """What the user asked for; see ``fclseg study --help``."""

    table: str
    out: Path
    preset: str = "small"
    changes: dict[str, Any] = field(default_factory=dict)
    methods: str | None = None
    job_settings: dict[str, Any] = field(default_factory=dict)  # settings of the pre-training jobs
    filters: tuple[FilterSpec, ...] = ()  # filters on what the sites send during pre-training
    also_plain: bool = False  # also run each method without them
    also_pooled: bool = False  # also pre-train each method with all data in one place
    labels: tuple[int, ...] = (1, 2, 4, 8)
    folds: int | None = None  # None: all folds of the split
    seeds: int = 1
    first_seed: int = 0  # of phantoms, pre-trainings and fine-tunings
    pretrain_seeds: int = 1
    unseen: bool = False  # one pre-training per fold
    modes: tuple[str, ...] = ("full",)
    baseline: str | None = None
    data: Path | None = None
    sites: int = 4
    sites_by: str | None = None  # an entry of Info.cfg such as centre, or a table of patients and sites
    hold_out: str | None = None  # a site that takes part in nothing and is scored
    splits: Path | None = None
    transfer_data: Path | None = None
    patients: int = 10
    workers: int = 2
    command: str = ""


@dataclass(frozen=True)
class Studied:
    """A table: everything in ``study.json``, the folder with its files, its report, and the cells that failed."""

    study: Study
    folder: Path
    report: Path
    failures: tuple[Failure, ...]


def run_study(options: StudyOptions) -> Studied:
    """Run what is missing, and write tables and report."""
    if options.table not in TABLES:
        raise FCLSegError(f"there is no table '{options.table}': choose one of {', '.join(TABLES)}")
    table = TABLES[options.table]
    preset = get_preset(options.preset, **options.changes)
    added = JobOptions.make(options.job_settings, options.filters)
    methods = choose_methods(table, options.methods)
    rows = table_rows(table, methods, preset, added, options.also_plain, options.also_pooled)
    out = options.out.absolute()
    failures: Sequence[Failure] = ()
    if table.protocol is None:
        document = empty_document(table, rows, preset, options.command)
        document["components"] = components_table([row.job for row in rows])
    else:
        document, failures = fill_table(options, table, rows, out)
    folder = out / table.name
    write_exports(document, folder)
    return Studied(document, folder, write_report(folder, command=options.command), tuple(failures))


def fill_table(
    options: StudyOptions, table: Table, rows: Sequence[TableRow], out: Path
) -> tuple[Study, Sequence[Failure]]:
    """Run the missing cells, and collect everything that the table shows."""
    cache = Cache(out)
    cache.check()
    request = make_request(options, table, rows, out)
    planned = plan(request)
    failures = run_missing(planned, cache, options.workers) if table.trains else []
    document = study_document(request, planned, cache, failures, options.command)
    if not table.trains:
        methods = [row.job for row in rows]
        sites = len(Splits.load(request.data.splits).sites)
        document["communication"] = communication_figures(methods, rows[0].preset, sites, cache)
        document["missing"] = 0  # this table only shows cells that other tables have run
    return document, failures


def run_missing(planned: Sequence[Planned], cache: Cache, workers: int) -> list[Failure]:
    cells = [one.cell for one in planned]
    missing = sum(cache.get(cell.key) is None for cell in cells)
    print(f"{len(cells)} fine-tunings, {len(cells) - missing} already there", flush=True)
    if not missing:
        return []
    with cache.filling():
        return Scheduler(cache, workers).run(cells)


def make_request(options: StudyOptions, table: Table, rows: Sequence[TableRow], out: Path) -> Request:
    data, target = datasets(options, table, out)
    baseline = options.baseline
    if baseline is None:
        keys = [row.key for row in rows]
        baseline = RANDOM if RANDOM in keys else keys[0]
    return Request(
        table=table,
        rows=tuple(rows),
        labels=options.labels,
        folds=options.folds or Splits.load(target.splits).folds,
        seeds=options.seeds,
        first_seed=options.first_seed,
        pretrain_seeds=options.pretrain_seeds,
        unseen=options.unseen,
        modes=options.modes,
        data=data,
        target=target,
        baseline=baseline,
        pooled=pooled_dataset(data, out) if any(row.pooled for row in rows) else None,
    )


def datasets(options: StudyOptions, table: Table, out: Path) -> tuple[Dataset, Dataset]:
    """The images for pre-training and for fine-tuning: the same, except in the transfer table."""
    if options.data is None and options.splits is not None:
        raise FCLSegError("--splits needs the data folder it was made for: give --data as well")
    if options.data is not None:
        sites = options.sites_by or options.sites
        data = prepare_dataset(options.data, out, sites=sites, splits=options.splits, hold_out=options.hold_out)
    elif options.sites_by or options.hold_out:
        raise FCLSegError("--sites-by and --hold-out are about hospitals in your data: give --data as well")
    else:
        data = phantom_dataset("acdc", out, sites=options.sites, patients=options.patients, seed=options.first_seed)
    if table.name != "transfer":
        return data, data
    if options.transfer_data is not None:
        return data, prepare_dataset(options.transfer_data, out, sites=1)
    if options.data is not None:
        raise FCLSegError("the transfer table fine-tunes on a second data set: give its folder as --transfer-data")
    return data, phantom_dataset("hvsmr", out, sites=1, patients=options.patients, seed=options.first_seed + 1)


def show(studied: Studied) -> None:
    """Print the figures and where the files are. Failures go to stderr."""
    document, failures = studied.study, studied.failures
    if not document["entries"]:
        print(markdown(document))
    for mode in document["modes"]:
        if any(entry["mode"] == mode for entry in document["entries"]):
            print(f"\nDice, {MODES[mode]}\n\n{dice_table(document, mode)}\n\n{comparison_table(document, mode)}\n")
    for failure in failures[:10]:
        print(f"failed: {failure.cell.describe()}: {failure.reason}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} cells failed; run the same command to try them again", file=sys.stderr)
    print(f"report: {studied.report}")
    print(f"tables: {studied.folder}/table.md, table.csv, runs.csv, study.json")
    for sentence in plain_words(document):
        print(sentence)
