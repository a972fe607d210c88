import json

import numpy as np
import pytest

from fclseg.cli import main
from fclseg.federation.payload import communication_table, mean_traffic
from fclseg.methods.exchange import OTHERS, ROWS, Flow, Row
from fclseg.presets import get_preset

PAPER = {
    "FCL": 1.0,
    "FedMoCo": 0.544,
    "FedBYOL": 0.373,
    "FCLOpt": 0.645,
    "FCLOpt-PTNU": 0.509,
    "FCLOpt-PTNU-DP": 0.386,
}


def test_the_papers_communication_table(capsys):
    assert main(["bytes", "--preset", "paper", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert round(table["FCL"]["payload_mb"], 1) == 124.2
    for title, ratio in PAPER.items():
        assert table[title]["ratio"] == pytest.approx(ratio, abs=0.002), title
    assert set(table) == {row.title for row in ROWS.values()}
    assert table["FCL"]["up_mb"]["bank"] == pytest.approx(6.295, abs=0.001)  # listed, though the paper leaves it out
    assert table["FCL"]["down_mb"]["bank"] == pytest.approx(9 * table["FCL"]["up_mb"]["bank"])
    assert "target" not in table["FCLOpt-PTNU"]["down_mb"] and "target" not in table["FedBYOL"]["up_mb"]
    assert table["FCLOpt-PTNU-DP"]["up_mb"]["target"] == pytest.approx(table["FCLOpt"]["up_mb"]["target"] / 10)


def test_what_is_not_counted_is_the_difference():
    for row in communication_table(get_preset("demo"), sites=3, rounds=4).values():
        whole = sum(row["up_mb"].values()) + sum(row["down_mb"].values())
        assert whole == pytest.approx(row["payload_mb"] + row["uncounted_mb"])
        assert row["uncounted_mb"] > -1e-12


def test_traffic_by_hand():
    components = {
        "online": {"w": np.zeros(100, np.float32), "n": np.zeros((), np.int64)},
        "target": {"w": np.zeros(50, np.float32)},
        "bank": {"features": np.zeros((8, 4), np.float32), "partitions": np.zeros(8, np.uint8)},
    }
    flows = (
        Flow("online"),
        Flow("target", up="calibration", down="never"),
        Flow("bank", combine=OTHERS, paper_counts_up=False),
        Flow("distance"),
    )
    traffic = mean_traffic(Row("x", "X", "", flows), components, sites=4, rounds=range(10), calibration_rounds=5)
    assert traffic.up == {"online": 408, "target": 200 * 2 / 10, "bank": 136, "distance": 8}
    assert traffic.down == {"online": 408, "bank": 3 * 136, "distance": 8}
    assert traffic.counted == 2 * 400 + 40 + 3 * 128 + 2 * 8


def test_the_table_can_be_read(capsys):
    assert main(["bytes", "--preset", "demo", "--sites", "2", "--rounds", "10"]) == 0
    text = capsys.readouterr().out
    assert "demo, 2 sites, 10 rounds" in text and all(row.title in text for row in ROWS.values())
    assert main(["bytes", "--sites", "0"]) == 1
    assert "--sites and --rounds must be at least 1" in capsys.readouterr().err


def test_prototypes_take_the_place_of_banks_alone():
    """Four partitions with two means each: eight unit features of 64 numbers and eight partitions."""
    preset = get_preset("demo")
    whole, few = (communication_table(preset, sites=3, prototypes=count) for count in (None, 2))
    assert few["FCL"]["up_mb"]["bank"] == (8 * 64 * 4 + 8) / 1e6 and few["FCL"]["down_mb"]["bank"] == 2 * 2056 / 1e6
    assert few["FCL"]["up_mb"]["online"] == whole["FCL"]["up_mb"]["online"] and few["FedBYOL"] == whole["FedBYOL"]
    assert few["FCL"]["ratio"] == pytest.approx(few["FCL"]["payload_mb"] / whole["FCL"]["payload_mb"])
