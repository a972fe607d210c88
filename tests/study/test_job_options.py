"""Settings and filters of a study's jobs are part of a pre-training's identity if they are given, and nowhere else."""

import json
from dataclasses import replace

import pytest
from study_cells import finetuning, pretraining

from fclseg.errors import FCLSegError
from fclseg.flare.jobs import files
from fclseg.methods.exchange import ROWS
from fclseg.presets import get_preset
from fclseg.study.job_options import FilterSpec, JobOptions
from fclseg.study.tables import TABLES, table_rows

NOISE = FilterSpec("fclseg.flare.filters.ClipAndNoise", (("clip", 1), ("sigma", 0.1)))
LOUDER = FilterSpec(NOISE.path, (("clip", 1), ("sigma", 0.2)))


def test_each_option_makes_another_pretraining_and_no_option_the_same():
    plain = pretraining()
    kinds = [({}, [NOISE]), ({}, [LOUDER]), ({"fraction": 0.5}, []), ({"fraction": 0.5}, [NOISE])]
    others = [replace(plain, options=JobOptions.make(settings, filters)) for settings, filters in kinds]
    assert len({cell.key for cell in (plain, *others)}) == 5
    assert len({finetuning(pretraining=cell).key for cell in (plain, *others)}) == 5
    assert replace(plain, options=JobOptions.make({}, [])).key == plain.key
    assert replace(plain, options=JobOptions.make({"pretrain_timeout": 60}, [])).key == plain.key, "waiting is free"


def test_rows_say_what_was_added_and_random_stays_what_it_is():
    options = JobOptions.make({"fraction": 0.5}, [NOISE])
    methods, preset = ("random", "fclopt"), get_preset("demo")
    rows = table_rows(TABLES["local"], methods, preset, options, plain=False)
    assert [row.title for row in rows] == ["Random init", "FCLOpt, fraction=0.5, ClipAndNoise(clip=1, sigma=0.1)"]
    assert [row.title for row in table_rows(TABLES["local"], methods, preset, options, plain=True)] == [
        "Random init",
        "FCLOpt",
        "FCLOpt, fraction=0.5, ClipAndNoise(clip=1, sigma=0.1)",
    ]
    with pytest.raises(FCLSegError, match="the table components has no pre-training"):
        table_rows(TABLES["components"], ("fclopt",), preset, options)


@pytest.mark.parametrize("job", ["fclopt", "fclopt_dp"])
def test_a_jobs_own_filters_come_before_those_of_the_study(job):
    plain, added = (
        json.loads(files(ROWS[job], {}, filters=filters)["app/config/config_fed_client.json"])
        for filters in ((), [NOISE.config()])
    )
    own = [one for chain in plain["task_result_filters"] for one in chain["filters"]]
    (chain,) = added["task_result_filters"]
    assert chain["filters"][:-1] == own and chain["tasks"] == ["pretrain"]
    assert chain["filters"][-1]["path"] == NOISE.path
    assert {"clip": 1, "sigma": 0.1}.items() <= chain["filters"][-1]["args"].items()
