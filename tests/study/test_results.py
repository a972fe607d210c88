"""From cells to tables: entries, comparisons and exports, with figures that can be computed by hand."""

import csv
import io
import re
from dataclasses import replace

import pytest
from full_study import scored

from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.presets import get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import Dataset
from fclseg.study.export import dice_table, markdown, runs_csv, table_csv
from fclseg.study.plan import Request, plan
from fclseg.study.report.page import headline, prepare, render, write_report
from fclseg.study.results import study_document
from fclseg.study.tables import TABLES, choose_methods, paper_dice, paper_tables, table_rows
from fclseg.study.wire import components_table

SITES = ("site-1", "site-2", "site-3", "site-4")


@pytest.fixture
def request_(tmp_path):
    splits = tmp_path / "splits.json"
    Splits.make([f"p{i:02d}" for i in range(40)], sites=4, folds=5).save(splits)
    data = Dataset(tmp_path / "images", ANATOMIES["acdc"], splits, "fingerprint")
    rows = table_rows(TABLES["local"], ("random", "fclopt"), get_preset("demo"))
    return Request(TABLES["local"], tuple(rows), (1, 2), 5, 1, 2, ("full",), data, data, "random")


def dice_of(cell) -> float:
    """Random: .40 + .02 per fold + .01 per site; FCLOpt: .1 more, and .02 more or less by pre-training seed."""
    value = 0.40 + 0.02 * cell.fold + 0.01 * SITES.index(cell.site)
    return value + (0.1 + (0.02, -0.02)[cell.pretraining.seed] if cell.pretraining else 0.0)


@pytest.fixture
def finished(request_, tmp_path):
    cache, planned = Cache(tmp_path), plan(request_)
    for one in planned:
        dice = dice_of(one.cell)
        structures = {"RV": dice - 0.1, "MYO": dice, "LV": dice + 0.1}
        losses = [1.0, 0.5, 0.25][: 2 + one.cell.fold % 2]  # finetuning.steps gives more patients fewer epochs
        metrics = scored(dice=structures, hd95=dict.fromkeys(structures, 9.0))
        result = {"dice": dice, "metrics": metrics, "losses": losses}
        cache.put(one.cell.key, result | {"seconds": 2.0})
        if one.cell.pretraining:
            cache.put(one.cell.pretraining.key, {"seconds": 60.0, "rounds": []})
    return study_document(request_, planned, cache, [], "fclseg study local")


def test_a_fine_tuning_of_all_sites_is_compared_at_each_site_it_is_scored_at(request_, tmp_path):
    table, splits = TABLES["federated"], Splits.load(request_.data.splits)
    rows = table_rows(table, ("random", "fclopt"), get_preset("demo"))
    request = replace(request_, table=table, rows=tuple(rows), labels=(1,), folds=2, pretrain_seeds=1)
    cache, planned = Cache(tmp_path), plan(request)
    for one in planned:
        gain = 0.1 if one.cell.pretraining else 0.0
        volumes = [
            {"patient": patient, "dice_RV": 0.3 + gain, "dice_LV": 0.5 + gain + 0.01 * SITES.index(site) + 0.02 * frame}
            for site in SITES
            for patient in splits.held_out[site][one.cell.fold]
            for frame in (0, 1)
        ]
        structures = {name: sum(v[f"dice_{name}"] for v in volumes) / len(volumes) for name in ("RV", "LV")}
        result = {"dice": sum(structures.values()) / 2, "metrics": scored(dice=structures), "volumes": volumes}
        cache.put(one.cell.key, result | {"losses": [1.0], "seconds": 2.0})
        if one.cell.pretraining:
            cache.put(one.cell.pretraining.key, {"seconds": 60.0, "rounds": []})
    random, fclopt = study_document(request, planned, cache, [], "fclseg study federated")["entries"]
    assert len(planned) == 2 * 2 and fclopt["summary"]["fine_tunings"] == 2
    assert fclopt["comparison"]["pairs"] == 4 * 2 and fclopt["comparison"]["difference"] == pytest.approx(0.1)
    by_site = {run["site"]: run["dice"] for run in random["runs"]}
    assert by_site == pytest.approx({site: 0.405 + 0.005 * number for number, site in enumerate(SITES)})
    assert random["summary"]["mean"] == pytest.approx(0.4125) and random["summary"]["groups"] == 2


def test_plan_has_every_pair_once_and_shares_pretraining(request_):
    planned = plan(request_)
    assert len({one.cell.key for one in planned}) == len(planned) == 4 * 5 * 2 * (1 + 2)
    assert len({one.cell.pretraining.key for one in planned if one.cell.pretraining}) == 2
    half = planned[: len(planned) // 2]
    assert {one.row.key for one in half} == {"random", "fclopt"}, "a study stopped early has compared all rows"


def test_entries_are_what_the_figures_say(finished):
    random, fclopt = finished["entries"][:2]
    assert random["summary"]["mean"] == pytest.approx(0.40 + 0.04 + 0.015)
    assert random["summary"]["sd"] == pytest.approx(0.0129099, abs=1e-6)  # of .44 .45 .46 .47
    assert (random["summary"]["groups"], random["summary"]["runs"], random["summary"]["fine_tunings"]) == (4, 20, 20)
    assert fclopt["summary"]["fine_tunings"] == 40 and fclopt["summary"]["runs"] == 20
    assert fclopt["comparison"]["pairs"] == 20, "pre-training seeds are averaged, they are no further pairs"
    assert fclopt["comparison"]["difference"] == pytest.approx(0.1)
    assert fclopt["comparison"]["p_holm"] == pytest.approx(2 * fclopt["comparison"]["p"])
    assert random["comparison"] is None
    assert fclopt["metrics"]["dice"]["LV"] == pytest.approx(0.1 + fclopt["summary"]["mean"])
    assert random["paper"] == (0.28, 0.037)
    assert finished["curves"][0]["loss"] == [1.0, 0.5]
    assert [run["seed"] for run in finished["pretraining"]] == [0, 1]


def test_unfinished_cells_are_counted_not_invented(request_, tmp_path):
    document = study_document(request_, plan(request_), Cache(tmp_path / "empty"), [], "")
    assert document["entries"] == [] and document["missing"] == 120
    assert "120 fine-tunings have no result" in render([prepare(document, tmp_path)], [])


def test_exports_agree(finished):
    assert "| Random init | 0.455 ± 0.013 (paper 0.280 ± 0.037) | 0.455 ± 0.013" in dice_table(finished, "full")
    assert "| FCLOpt, N=1 | +0.100 | +0.100 to +0.100 |" in markdown(finished)
    runs = list(csv.DictReader(io.StringIO(runs_csv(finished))))
    assert len(runs) == 2 * 20 + 2 * 40, "one line a fine-tuning"
    first = [run for run in runs if run["row"] == "fclopt" and (run["site"], run["fold"]) == ("site-1", "0")]
    assert [run["pretrain_seed"] for run in first] == ["0", "1"] * 2
    assert [float(run["dice"]) for run in first] == pytest.approx([0.52, 0.48] * 2)
    assert {run["pretrain_seed"] for run in runs if run["row"] == "random"} == {""}
    cells = list(csv.DictReader(io.StringIO(table_csv(finished))))
    assert [cell["row"] for cell in cells] == ["random", "fclopt"] * 2
    assert float(cells[1]["difference"]) == pytest.approx(0.1) and float(cells[0]["hd95_mm_LV"]) == 9.0
    assert cells[1]["fine_tunings"] == "40" and cells[1]["pairs"] == "20"
    assert "| FCLOpt, N=1 | 0.455 | 0.555 | 0.655 | 9.0 | 9.0 | 9.0 |" in markdown(finished)


def test_page_holds_the_figures_and_needs_nothing_else(finished, tmp_path):
    page = render([prepare(finished, tmp_path)], [])
    text = re.sub("<[^>]+>", "", page)
    assert "0.455 ± 0.013" in text and "paper 0.280 ± 0.037" in text
    assert finished["date"] in text and f"FCLSeg {finished['version']}" in text and finished["command"] in text
    assert "Better than Random init: 2. Worse: 0. (2 paired comparisons" in page
    assert "http:" not in page and "https:" not in page and "<script" not in page and "url(" not in page
    with pytest.raises(FCLSegError, match="neither a study"):
        write_report(tmp_path / "nothing")


def test_headline_says_when_there_are_too_few_pairs(request_, tmp_path, finished):
    few = replace(request_, folds=1)
    document = study_document(few, plan(few), Cache(tmp_path), [], "")
    assert "No difference to Random init is established" in headline(document, "full")
    assert "4 pairs are too few for that" in headline(document, "full")


@pytest.mark.parametrize(("pairs", "tests", "possible"), [(5, 1, False), (6, 1, True), (6, 2, False), (7, 2, True)])
def test_headline_counts_the_correction(finished, pairs, tests, possible):
    """Six pairs that all agree give p = .03, which two tests already double to .06."""
    entries = [entry for entry in finished["entries"] if entry["comparison"]][:tests]
    for entry in entries:
        entry["comparison"] |= {"pairs": pairs, "p_holm": 1.0}
    assert ("too few for that" not in headline(finished | {"entries": entries}, "full")) == possible


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 6}, "the split has 5 folds"),
        ({"labels": (1, 9)}, "N=9 labelled patients are too many, because a fold leaves only 8 with labels"),
        ({"table": TABLES["centralised"], "labels": (32, 33)}, "N=33 labelled patients .* a fold leaves only 32"),
        ({"baseline": "fcl"}, "the baseline 'fcl' is not a row"),
    ],
)
def test_impossible_requests_are_one_sentence(request_, change, message):
    with pytest.raises(FCLSegError, match=message):
        replace(request_, **change)


def test_a_table_that_trains_nothing_asks_for_no_patients(request_):
    assert replace(request_, table=TABLES["communication"], labels=(1, 99)).labels == (1, 99)


def test_methods_are_chosen_by_name_in_the_tables_order():
    assert choose_methods(TABLES["local"], "fclopt, random,fclopt") == ("random", "fclopt")
    assert choose_methods(TABLES["ablation"], "fedu,fcl,fcl_no_fe") == ("fcl_no_fe", "fcl", "fedu")
    assert choose_methods(TABLES["local"], None) == TABLES["local"].methods
    with pytest.raises(FCLSegError, match="no method 'fclop': choose from random, shipped, fedbyol"):
        choose_methods(TABLES["local"], "fclop")


def test_every_row_of_the_paper_has_its_figures():
    for table in TABLES.values():
        figures = paper_tables()[table.name]
        if table.protocol:
            assert set(figures["dice"]) == {row.key for row in table_rows(table, table.methods, get_preset("paper"))}
            assert all(len(values) == len(figures["labels"]) for values in figures["dice"].values())
    assert paper_dice("federated", "fclopt_dp", 1) == (0.778, 0.016)
    assert paper_dice("local", "random", 3) is None and paper_dice("components", "fcl", 1) is None


def test_components_follow_the_exchange_plan():
    table = components_table(("fcl", "fclopt_dp", "random", "fedswav"))
    assert table["columns"] == ["online", "predictor", "target", "features", "distance", "prototypes"]
    assert table["rows"]["fclopt_dp"] == ["yes", "yes", "almost none", "", "both ways", ""]
    assert "random" not in table["rows"]


def test_every_hospital_is_shown_and_one_that_is_held_out_is_no_part_of_the_mean(tmp_path):
    """Two sites score .4 and .6, the third, which is held out, .1: the table says .5 and shows all three."""
    whole = Splits({name: [f"{name}-1", f"{name}-2"] for name in "abc"}, {n: [[f"{n}-1"], [f"{n}-2"]] for n in "abc"})
    whole.without("c").save(tmp_path / "splits.json")
    data = Dataset(tmp_path / "images", ANATOMIES["acdc"], tmp_path / "splits.json", "fingerprint")
    for name in ("local", "federated"):
        table = TABLES[name]
        rows = tuple(table_rows(table, ("random",), get_preset("demo")))
        request = Request(table, rows, (1,), 2, 1, 1, ("full",), data, data, "random")
        cache, planned = Cache(tmp_path / name), plan(request)
        for one in planned:
            volumes = [
                {"patient": f"{site}-{number}", "dice_LV": value}
                for site, value in (("a", 0.4), ("b", 0.6), ("c", 0.1))
                for number in ((1, 2) if site == "c" else (one.cell.fold + 1,))
            ]
            result = {"dice": 0.3, "metrics": scored(dice={"LV": 0.3}), "volumes": volumes, "losses": []}
            cache.put(one.cell.key, result | {"seconds": 1.0})
        document = study_document(request, planned, cache, [], "")
        (entry,) = document["entries"]
        assert entry["hospitals"] == pytest.approx({"a": 0.4, "b": 0.6, "c": 0.1})
        assert entry["summary"]["mean"] == pytest.approx(0.5)
        text = markdown(document)
        assert "| Dice of the patients of | a | b | c, held out | worst |" in text
        assert "| Random init, N=1 | 0.400 | 0.600 | 0.100 | 0.100 |" in text
        page = render([prepare(document, tmp_path)], [])
        assert '<td data-label="c, held out">0.100</td>' in page
