"""All eight tables end to end: patients, pre-training and fine-tuning, at the smallest sizes.

The tests share one study folder, so what one table has trained the next one finds. The nightly ones use the phantom
patients that a study makes if it is given none, the others a few discs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import nibabel as nib
import numpy as np
import psutil
import pytest
from discs import write_discs

from fclseg.anatomy.registry import ANATOMIES
from fclseg.cli import main
from fclseg.cli.study import TABLES as COMMAND_LINE_TABLES
from fclseg.data.sites import Splits
from fclseg.methods.registry import build_method
from fclseg.networks.loading import PREFIX, read_tensors
from fclseg.presets import get_preset
from fclseg.study.datasets import phantom_dataset
from fclseg.study.tables import TABLES

SMALLEST = ["--preset", "demo", "--sites", "2", "--patients", "5", "--rounds", "1", "--folds", "1"]
SMALLEST += ["--set", "finetuning.epochs=2", "--set", "finetuning.lr=0.005", "--jobs", "1"]
LEARNT = ["--methods", "random,fcl"]
LOCAL = [*LEARNT, "--labels", "1,2", "--mode", "full,frozen"]
pytestmark = pytest.mark.simulator


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """The study folder of this module, with its own slice cache."""
    folder = tmp_path_factory.mktemp("studies")
    before = os.environ.get("FCLSEG_CACHE")
    os.environ["FCLSEG_CACHE"] = str(folder / "cache")
    yield folder
    if before is None:
        del os.environ["FCLSEG_CACHE"]
    else:
        os.environ["FCLSEG_CACHE"] = before


@pytest.fixture(scope="module")
def discs(studies):
    """Three patients for each of two sites."""
    return ["--data", str(write_discs(studies / "discs", patients=6))]


def study(folder, table, *more):
    """Run a table; returns what it wrote."""
    assert main(["study", table, *SMALLEST, "--out", str(folder), *more]) == 0
    page = (folder / table / "report.html").read_text()
    assert TABLES[table].title in page and 'src="http' not in page and "href=" not in page
    return json.loads((folder / table / "study.json").read_text())


def runs_of(document, **place):
    return [
        run for entry in document["entries"] if all(entry[name] == value for name, value in place.items())
        for run in entry["runs"]
    ]  # fmt: skip


def test_local(studies, discs, capsys):
    document = study(studies, "local", *discs, *LOCAL)
    assert len(document["entries"]) == 2 * 2 * 2 and not document["missing"]
    for entry in document["entries"]:
        assert {run["site"] for run in entry["runs"]} == {"site-1", "site-2"}
        assert 0 <= entry["summary"]["mean"] <= 1 and entry["summary"]["groups"] == 2
        assert {name: set(found) for name, found in entry["metrics"].items()} == {
            "dice": {"RV", "MYO", "LV"},
            "hd95": {"RV", "MYO", "LV"},
        }
        assert (entry["comparison"] is None) == (entry["row"] == "random")
    assert [run["job"] for run in document["pretraining"]] == ["fcl"]
    assert len(document["pretraining"][0]["rounds"]) == 1
    assert len(document["pictures"]) == 8
    text = capsys.readouterr().out
    assert "| Random init |" in text and "| FCL |" in text and f"report: {studies}/local/report.html" in text
    table = (studies / "local" / "table.csv").read_text().splitlines()
    assert len(table) == 1 + 8 and table[0].startswith("row,mode,labels,dice,sd")
    assert len((studies / "local" / "runs.csv").read_text().splitlines()) == 1 + 16


def test_a_second_call_answers_from_the_cache_without_torch(studies, discs):
    """Everything the tables need is there; nothing heavy may be imported to find that out."""
    arguments = ["study", "local", *SMALLEST, "--out", str(studies), *discs, *LOCAL]
    before = (studies / "local" / "runs.csv").read_text()
    script = (
        "import sys; from fclseg.cli import main; code = main(sys.argv[1:]); "
        "print([name for name in ('torch', 'monai', 'nvflare') if name in sys.modules]); sys.exit(code)"
    )
    answer = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert "16 fine-tunings, 16 already there" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "[]"
    assert (studies / "local" / "runs.csv").read_text() == before


def test_report_of_a_run_and_of_all_studies(studies, tmp_path):
    run = next((studies / "runs").glob("fcl-*"))
    assert main(["report", str(run), "--out", str(tmp_path / "run.html")]) == 0
    page = (tmp_path / "run.html").read_text()
    assert all(title in page for title in ("Pre-training loss by site", "Payload per site and round"))
    assert "On the wire" not in page, "sites in one process send nothing over a wire"
    assert "↓ bank" in page or "↑ bank" in page
    assert main(["report", str(studies), "--out", str(tmp_path / "all.html")]) == 0
    assert "Same slice, every method" in (tmp_path / "all.html").read_text()


def test_centralised(studies, discs):
    document = study(studies, "centralised", *discs, *LEARNT, "--labels", "1")
    assert {run["site"] for run in runs_of(document)} == {"site-1", "site-2"}, "scored at every site"
    assert len(document["pretraining"]) == 1 and len(list((studies / "runs").glob("fcl-*"))) == 1, "shared with local"


@pytest.mark.nightly
def test_federated(studies):
    document = study(studies, "federated", *LEARNT, "--labels", "1")
    assert [entry["row"] for entry in document["entries"]] == ["random", "fcl"] and not document["failures"]
    assert document["entries"][1]["comparison"]["pairs"] == 2, "one network of each row, scored at two sites"
    assert all(len(curve["loss"]) == 2 for curve in document["curves"])
    assert not list((studies / "runs").glob("finetune_federated-*")), "large states are removed after the evaluation"


@pytest.mark.nightly
def test_transfer(studies):
    document = study(studies, "transfer", *LEARNT, "--labels", "1")
    assert document["settings"]["data"]["anatomy"] == ANATOMIES["acdc"].title
    assert document["settings"]["target"]["anatomy"] == ANATOMIES["hvsmr"].title
    assert {name for entry in document["entries"] for name in entry["metrics"]["dice"]} == {"MYO", "BP"}


@pytest.mark.nightly
def test_ablation(studies):
    document = study(studies, "ablation", "--methods", "fcl_no_fe,fcl", "--labels", "1")
    assert [row["title"] for row in document["rows"]] == ["Without FE", "FCL"]
    assert document["baseline"] == "fcl_no_fe"
    assert document["entries"][1]["paper"] == [0.506, 0.056]


@pytest.mark.nightly
def test_learning_rate(studies):
    document = study(studies, "learning-rate", "--labels", "1")
    assert document["rows"][0]["key"] == "random@0.0005" == document["baseline"]
    assert len({tuple(curve["loss"]) for curve in document["curves"]}) == 5, "every rate trains differently"


def test_communication_shows_the_local_dice_that_is_there(studies, discs):
    document = study(studies, "communication", *discs, "--labels", "1")
    rows = document["communication"]["rows"]
    for row in rows.values():
        assert row["paper_preset_ratio"] == pytest.approx(row["paper_ratio"], abs=0.003)
    assert rows["fcl"]["paper_preset_megabytes"] == pytest.approx(124.2, abs=0.1)
    local = json.loads((studies / "local" / "study.json").read_text())
    assert runs_of(document) == runs_of(local, row="fcl", labels=1, mode="full") != []


def test_components_needs_no_data(tmp_path):
    document = study(tmp_path, "components")
    for method, words in document["components"]["paper"].items():
        assert document["components"]["rows"][method][:4] == words[:4]
    assert [path.name for path in tmp_path.iterdir()] == ["components"]


def test_the_command_line_knows_every_table():
    assert set(COMMAND_LINE_TABLES) == set(TABLES)


FCLSEG = [sys.executable, "-c", "import sys; from fclseg.cli import main; sys.exit(main())"]


def start_and_kill(command, begun):
    """Start a study and kill it as soon as ``begun()`` is true. Returns when everything that it had started is gone."""
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not begun():
        assert killed.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    family = psutil.Process(killed.pid).children(recursive=True)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    _, alive = psutil.wait_procs(family, timeout=600)
    assert not alive, "workers notice that their study is gone, and end with all they started"


@pytest.mark.nightly
def test_an_interrupted_pretraining_goes_on_whatever_is_fine_tuned_from_it(studies, tmp_path):
    data = phantom_dataset("acdc", studies, sites=2, patients=5)
    scope = ["--data", str(data.root), "--methods", "fclopt", "--labels", "1", "--rounds", "9"]
    runs = tmp_path / "runs"
    command = [*FCLSEG, "study", "local", *SMALLEST, *scope, "--out", str(tmp_path)]
    start_and_kill(command, lambda: any(path.read_text() for path in runs.glob("*/rounds.jsonl")))
    (run,) = runs.glob("fclopt-*")
    before = json.loads((run / "config.json").read_text())["id"]
    assert not (run / "result.json").exists()
    document = study(tmp_path, "local", *scope, "--set", "finetuning.lr=0.001")
    assert json.loads((run / "config.json").read_text())["id"] == before, "it was continued, not started over"
    (pretraining,) = document["pretraining"]
    assert [one["round"] for one in pretraining["rounds"]] == list(range(9))
    assert pretraining["seconds"] == pytest.approx(sum(one["seconds"] for one in pretraining["rounds"]))


@pytest.mark.nightly
def test_nothing_is_stored_of_a_pretraining_that_a_site_was_missing_in(studies, tmp_path, capsys):
    data = phantom_dataset("acdc", studies, sites=2, patients=5)
    damaged = tmp_path / "data"
    shutil.copytree(data.root, damaged)
    patient = Splits.load(data.splits).sites["site-2"][0]
    for image in (damaged / patient).glob("*_4d.nii.gz"):
        image.write_bytes(image.read_bytes()[:-2000])
    scope = ["--data", str(damaged), "--splits", str(data.splits), "--methods", "fcl", "--labels", "1"]
    assert main(["study", "local", *SMALLEST, *scope, "--out", str(tmp_path)]) == 1
    assert "round 0 has 1 valid answers but needs 2 (site-2: " in capsys.readouterr().err
    assert not list(tmp_path.glob("cells/*/*.json"))


def test_killed_and_resumed_gives_the_same_table(studies, discs, tmp_path):
    """The same as in the table of ``test_local``, which was never interrupted."""
    scope = [*discs, "--methods", "random", "--labels", "1,2", "--mode", "full,frozen"]
    cells = tmp_path / "cells"
    command = [*FCLSEG, "study", "local", *SMALLEST, *scope, "--out", str(tmp_path)]
    start_and_kill(command, lambda: list(cells.glob("*/*.json")))
    first = {path: path.stat().st_mtime_ns for path in cells.glob("*/*.json")}
    assert 1 <= len(first) < 8 and not (tmp_path / "local").exists()
    study(tmp_path, "local", *scope)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in first.items()), "nothing was run twice"
    resumed, straight = ((folder / "local" / "runs.csv").read_text().splitlines() for folder in (tmp_path, studies))
    assert len(resumed) == 1 + 8 and resumed[1:] == [line for line in straight if line.startswith("local,random,")]


@pytest.mark.nightly
def test_the_filter_and_the_settings_of_the_jobs_reach_pretraining(studies):
    """With updates clipped to almost nothing, the networks keep their initial weights; without, they change."""
    filters = ["--filter", "fclseg.flare.filters.ClipAndNoise:clip=1e-6,sigma=0", "--job-set", "fraction=0.5"]
    document = study(studies, "local", "--methods", "random,fclopt", "--labels", "1", *filters, "--also-plain")
    added = "fraction=0.5, ClipAndNoise(clip=1e-06, sigma=0)"
    assert [row["title"] for row in document["rows"]] == ["Random init", "FCLOpt", f"FCLOpt, {added}"]
    assert added in (studies / "local" / "report.html").read_text()
    assert f"| FCLOpt, {added} |" in (studies / "local" / "table.md").read_text()
    plain, clipped = (studies / "runs" / run["name"] for run in document["pretraining"])
    start = build_method("fclopt", get_preset("demo", rounds=1), 0).online.encoder.state_dict()

    def distance(run):
        trained, _ = read_tensors(run / "encoder.safetensors")
        return max(
            float((trained[PREFIX + name] - start[name]).abs().max()) for name in start if name.endswith("weight")
        )

    assert distance(clipped) < 1e-5 < 1e-3 < distance(plain)
    settings = [json.loads((run / "config.json").read_text())["settings"] for run in (plain, clipped)]
    assert [one["fraction"] for one in settings] == [1.0, 0.5]
    (line,) = [json.loads(line) for line in (clipped / "rounds.jsonl").read_text().splitlines()]
    assert len([site for site, report in line["sites"].items() if "loss" in report]) == 1, "half of two sites"


def folder_with_labels(folder):
    """A plain folder of six patients whose ``labels.json`` names two structures."""
    random = np.random.default_rng(0)
    folder.mkdir()
    (folder / "labels.json").write_text('{"structures": {"1": "liver", "2": "tumour"}, "spacing_mm": 2.0}')
    for number in range(6):
        labels = np.zeros((40, 40, 6), np.uint8)
        labels[8:30, 8:30], labels[14:20, 14 + number : 20 + number] = 1, 2
        image = (labels * 100 + random.normal(0, 10, labels.shape)).astype(np.float32)
        affine = np.diag([4.0, 4.0, 8.0, 1.0])
        nib.save(nib.Nifti1Image(image, affine), folder / f"case{number}.nii.gz")
        nib.save(nib.Nifti1Image(labels, affine), folder / f"case{number}_label.nii.gz")
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["hvsmr", "labels.json"])
def test_federated_fine_tuning_of_other_anatomies(studies, tmp_path, kind):
    if kind == "hvsmr":
        assert main(["data", "phantom", "--anatomy", "hvsmr", "--out", str(tmp_path / "data"), "--patients", "6"]) == 0
    else:
        folder_with_labels(tmp_path / "data")
    scope = ["--data", str(tmp_path / "data"), "--methods", "random", "--labels", "1"]
    document = study(tmp_path / "studies", "federated", *scope)
    expected = {"hvsmr": ["MYO", "BP"], "labels.json": ["liver", "tumour"]}[kind]
    (entry,) = document["entries"]
    assert list(entry["metrics"]["dice"]) == list(entry["metrics"]["hd95"]) == expected
    assert [one["name"] for one in document["settings"]["data"]["structures"]] == expected
    assert document["pictures"] and not document["failures"] and 0 <= entry["summary"]["mean"] <= 1
