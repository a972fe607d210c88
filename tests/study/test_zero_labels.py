"""Rows that start from a whole network: which cells are planned, with which settings, and under which keys."""

from dataclasses import replace
from pathlib import Path

import pytest
from study_cells import DATA, finetuning

from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ENCODER, MODEL, NETWORK, ROWS
from fclseg.methods.registry import method_class
from fclseg.presets import get_preset
from fclseg.study.cells import Pretraining
from fclseg.study.plan import Request, plan
from fclseg.study.tables import TABLES, table_rows

SITES, FOLDS = 2, 3


@pytest.fixture
def request_for(tmp_path):
    """Makes a request over two sites of four patients and three folds."""
    path = tmp_path / "splits.json"
    Splits.make([f"patient{n:03d}" for n in range(8)], SITES, FOLDS, seed=0).save(path)
    data = replace(DATA, splits=Path(path))

    def make(*methods, labels=(0, 1), table="local", preset=None, pooled=None, **more):
        rows = table_rows(TABLES[table], methods, preset or get_preset("small"), pooled=pooled is not None)
        more |= {"pooled": pooled}
        values = {"folds": FOLDS, "seeds": 1, "pretrain_seeds": 1, "modes": ("full",), "data": data, "target": data}
        return Request(table=TABLES[table], rows=tuple(rows), labels=labels, baseline=methods[0], **values | more)

    return make


@pytest.mark.parametrize("job", ROWS)
def test_the_exchange_plan_says_what_a_method_trains(job):
    method = method_class(ROWS[job])
    assert ROWS[job].hands_over == (MODEL if method.segments else NETWORK if method.whole_network else ENCODER)
    assert not ROWS[job].start or method.segments


def test_without_labels_only_networks_that_segment_are_scored_once_per_fold(request_for):
    cells = [one.cell for one in plan(request_for("random", "fcl", "motion", "phantom", modes=("full", "frozen")))]
    zero = [cell for cell in cells if cell.labels == 0]
    assert [(cell.job, cell.site, cell.fold, cell.mode) for cell in zero] == [
        ("phantom", None, fold, "full") for fold in range(FOLDS)
    ]
    assert len(cells) - len(zero) == 4 * 2 * SITES * FOLDS


def test_the_shipped_weights_are_a_row_without_pretraining(request_for):
    cells = [one.cell for one in plan(request_for("shipped"))]
    assert len(cells) == FOLDS + SITES * FOLDS and not any(cell.pretraining for cell in cells)
    assert all(cell.whole_network and cell.preset.finetuning.lr == 5e-4 for cell in cells)
    assert cells[0].key != replace(cells[0], job="random").key


def test_zero_labels_need_a_network_that_segments(request_for):
    with pytest.raises(FCLSegError, match="add shipped or mean_teacher to --methods"):
        request_for("random", "fcl")


def test_rows_that_segment_already_share_settings_of_their_own(request_for):
    cells = {one.cell.job: one.cell for one in plan(request_for("random", "fcl", "motion", "phantom", "mean_teacher"))}
    settings = {job: (cell.preset.finetuning.lr, cell.preset.finetuning.steps) for job, cell in cells.items()}
    assert settings["random"] == settings["fcl"] == settings["motion"] == (4e-3, 300)
    assert settings["phantom"] == settings["mean_teacher"] == (5e-4, 120)
    rounds = {job: cell.pretraining.preset.pretraining.rounds for job, cell in cells.items() if cell.pretraining}
    assert rounds == {"fcl": 40, "motion": 40, "phantom": 2, "mean_teacher": 2}


@pytest.mark.parametrize("table", ["local", "centralised", "federated"])
def test_a_start_that_segments_has_a_share_in_every_protocol(request_for, table):
    cells = [one.cell for one in plan(request_for("random", "shipped", table=table))]
    shares = {(cell.job, cell.labels): cell.preset.finetuning.start_share for cell in cells}
    assert shares == {("shipped", 0): 0.0, ("shipped", 1): 0.5, ("random", 1): 0.0}


def test_settings_of_such_rows_leave_the_keys_of_others_alone(request_for):
    changes = {"finetuning.model_lr": 1e-3, "finetuning.model_steps": 60, "pretraining.adaptation_rounds": 3}
    before, after = (
        {one.cell.job: one.cell for one in plan(request_for("random", "fcl", "phantom", labels=(1,), preset=preset))}
        for preset in (get_preset("small"), get_preset("small", **changes))
    )
    assert {job for job in before if before[job].key != after[job].key} == {"phantom"}
    assert before["phantom"].pretraining.key != after["phantom"].pretraining.key


def test_a_fold_that_pretraining_did_not_see_makes_a_pretraining_of_its_own(request_for):
    cells = [one.cell for one in plan(request_for("phantom", labels=(0,), unseen=True))]
    assert [cell.pretraining.fold for cell in cells] == list(range(FOLDS))
    assert len({cell.pretraining.key for cell in cells}) == FOLDS
    (seen,) = {one.cell.pretraining.key for one in plan(request_for("phantom", labels=(0,)))}
    assert seen not in {cell.pretraining.key for cell in cells}


def test_frozen_encoder_evaluation_takes_the_encoder_alone():
    motion = Pretraining("motion", 0, get_preset("demo"), DATA)
    whole = finetuning(job="motion", pretraining=motion)
    assert whole.whole_network and not replace(whole, mode="frozen").whole_network
    assert not finetuning(job="fcl", pretraining=replace(motion, job="fcl")).whole_network


def test_all_data_in_one_place_is_one_more_row_for_methods_that_share_a_network(request_for, tmp_path):
    pooled = replace(DATA, fingerprint="pooled", note="all data in one place")
    methods = ("random", "shipped", "mean_teacher_local", "mean_teacher", "fcl")
    request = request_for(*methods, labels=(1,), pooled=pooled)
    assert [row.key for row in request.rows] == [*methods[:4], "mean_teacher@pooled", "fcl", "fcl@pooled"]
    assert request.rows[4].title == "Mean teacher, all data in one place"
    cells = {one.row.key: one.cell.pretraining for one in plan(request)}
    for method in ("mean_teacher", "fcl"):
        apart, together = cells[method], cells[f"{method}@pooled"]
        assert apart.data.fingerprint == "fingerprint" and together.data is pooled
        shares = [one.preset.pretraining.epoch_share for one in (apart, together)]
        assert shares == [1.0, 1 / SITES], "as many steps as one site takes"
        assert apart.preset.changed({"pretraining.epoch_share": 0.5}) == together.preset, "and nothing else"
        assert apart.key != together.key and "all data in one place" in together.describe()
