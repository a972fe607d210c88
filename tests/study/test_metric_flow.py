"""A metric that is added to one list appears in every file of a fine-tuning and of a study."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from discs import write_discs

from fclseg.finetune import metrics
from fclseg.finetune.train import FinetuneSpec
from fclseg.presets import get_preset
from fclseg.study.cache import Cache
from fclseg.study.datasets import prepare_dataset
from fclseg.study.execute import run_cell
from fclseg.study.export import write_exports
from fclseg.study.fixed_training import train_fixed
from fclseg.study.plan import Request, plan
from fclseg.study.report.page import write_report
from fclseg.study.results import study_document
from fclseg.study.tables import TABLES, table_rows


def volume_error(prediction, truth, classes, spacing):
    """Predicted minus true volume in ml."""
    voxel = float(np.prod(spacing)) / 1000
    return np.array([((prediction == value).sum() - (truth == value).sum()) * voxel for value in range(1, classes)])


TOY = metrics.Metric("toy", "Volume error", volume_error, unit="ml", decimals=2, note="Predicted minus true.")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("discs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        yield prepare_dataset(write_discs(folder / "data", patients=4), folder, sites=1)


@pytest.fixture
def with_toy(monkeypatch, data):
    monkeypatch.setattr(metrics, "METRICS", (*metrics.METRICS, TOY))
    return data


def test_it_is_in_the_tables_of_a_fine_tuning(with_toy, tmp_path):
    spec = FinetuneSpec(with_toy.root, ("patient001",), ("patient002",), preset="demo", overrides={"epochs": 1})
    train_fixed(spec, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "evaluation.csv").read_text().splitlines()))
    means = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    for name in ("RV", "MYO", "LV"):
        assert means["toy_ml"][name] == pytest.approx(np.mean([float(row[f"toy_{name}"]) for row in rows]))


def test_it_is_in_every_output_of_a_study(with_toy, tmp_path):
    rows = tuple(table_rows(TABLES["centralised"], ("random",), get_preset("demo", finetuning_epochs=1)))
    request = Request(TABLES["centralised"], rows, (1,), 1, 1, 1, ("full",), with_toy, with_toy, "random")
    cache, (one,) = Cache(tmp_path), plan(request)
    result = run_cell(one.cell, cache)
    cache.put(one.cell.key, result | {"seconds": 1.0})
    document = study_document(request, [one], cache, [], "fclseg study")
    write_exports(document, tmp_path / "centralised")
    (mean,) = [metric["structures"] for metric in result["metrics"] if metric["name"] == "toy"]
    assert document["entries"][0]["metrics"]["toy"] == pytest.approx(mean)
    assert "Volume error LV, ml" in (tmp_path / "centralised" / "table.md").read_text()
    (line,) = csv.DictReader((tmp_path / "centralised" / "table.csv").read_text().splitlines())
    assert float(line["toy_ml_LV"]) == pytest.approx(mean["LV"], rel=1e-4)
    page = write_report(tmp_path / "centralised").read_text()
    assert "<h4>Volume error, ml</h4>" in page and f">{mean['LV']:.2f}</td>" in page and TOY.note in page


def test_a_slow_metric_is_left_out_where_hd95_is_off(with_toy, monkeypatch):
    monkeypatch.setattr(metrics, "METRICS", (metrics.METRICS[0], replace(TOY, slow=True)))
    spec = FinetuneSpec(with_toy.root, ("patient001",), ("patient002",), preset="demo", overrides={"epochs": 1})
    assert [one["name"] for one in train_fixed(spec).evaluation.means()] == ["dice"]
