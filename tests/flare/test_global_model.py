"""The server's model: what is accepted, what comes down, and that a checkpoint contains all of it."""

import json

import numpy as np
import pytest
import torch

from fclseg.engine.aggregator import Aggregator
from fclseg.engine.messages import Message
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_folder import GLOBAL, RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.federation.states import to_arrays
from fclseg.methods.exchange import get_row
from fclseg.methods.registry import build_method
from fclseg.networks.model_file import MODEL, load_model
from fclseg.presets import get_preset

PRESET = get_preset("demo", channels=(2, 4), hidden=4, bank_size=8)


def _model(job):
    method = build_method(job, PRESET, seed=0)
    model = GlobalModel.initial(get_row(job), method)
    like = {name: to_arrays(method.send(name)) for name in (*model.means, *model.others)}
    return model, like


def _result(like, value, components, samples=10, round_number=0, site=""):
    parts = {name: {key: np.full_like(array, value) for key, array in like[name].items()} for name in components}
    if "bank" in parts:
        parts["bank"]["partitions"][:] = 3
    passed_on = {"bank": {site: parts.pop("bank")}} if "bank" in parts else {}
    return Message(parts, passed_on, meta={"round": round_number, "samples": samples})


def _aggregate(job, round_number, results):
    model, like = _model(job)
    model.next_round = round_number
    aggregator = Aggregator(model, PRESET.pretraining.calibration_rounds, like, partitions=4)
    for site, message in results(like).items():
        aggregator.accept(site, message)
    aggregator.finish()
    return model


def test_results_are_averaged_by_samples():
    names = ("online", "predictor")
    model = _aggregate(
        "fedbyol", 0, lambda like: {"a": _result(like, 1.0, names, 10), "b": _result(like, 4.0, names, 20)}
    )
    for state in model.means.values():
        assert all(np.all(array == 3) for array in state.values())
    assert model.next_round == 1 and model.trained == ["a", "b"]


def test_other_sites_components_are_passed_on():
    names = ("online", "target", "bank")
    model = _aggregate("fcl", 0, lambda like: {s: _result(like, v, names, site=s) for v, s in enumerate("abc", 1)})
    assert sorted(model.from_others("a")["bank"]) == ["b", "c"]
    assert np.all(model.from_others("a")["bank"]["c"]["features"] == 3)
    assert "bank" not in model.means and set(model.downloads()) == {"online", "target"}


def test_the_last_component_of_a_site_that_did_not_answer_is_still_passed_on(tmp_path):
    names = ("online", "target", "bank")
    model, like = _model("fcl")
    for number, values in enumerate(({"a": 1, "b": 2, "c": 3}, {"a": 4}, {"c": 5})):
        aggregator = Aggregator(model, 2, like, partitions=4)
        for site, value in values.items():
            aggregator.accept(site, _result(like, value, names, round_number=number, site=site))
        aggregator.finish()
    folder = RunFolder(tmp_path / "run")
    folder.open({}, fresh=False)
    folder.save(model, {"round": 2})
    for kept in (model, folder.load(_model("fcl")[0])):
        banks = {site: state["features"].flat[0] for site, state in kept.from_others("a")["bank"].items()}
        assert banks == {"b": 2, "c": 5} and kept.from_others("b")["bank"]["a"]["features"].flat[0] == 4
        assert kept.trained == ["c"]


def test_before_the_first_round_there_is_nothing_from_others():
    assert _model("fcl")[0].from_others("a") == {}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("fedbyol", {"online", "predictor"}),
        ("fclopt", {"online", "predictor", "target"}),
        ("fclopt_ptnu", {"online", "predictor"}),  # a distance stands for the target
        ("fclopt_dp", {"online", "predictor"}),
    ],
)
def test_what_comes_down(job, expected):
    assert set(_model(job)[0].downloads()) == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.components["online"].update(unknown=np.zeros(1)), "unknown tensor"),
        (lambda m: m.components["online"].popitem(), "lacks tensor"),
        (lambda m: m.components.update(extra={}), "unknown component 'extra'"),
        (lambda m: m.components.pop("predictor"), "lacks component 'predictor'"),
        (lambda m: m.components["predictor"]["0.weight"].fill(np.inf), "not finite"),
        (lambda m: m.components["predictor"].update({"0.bias": np.zeros((1, 1), np.float32)}), "instead of"),
        (lambda m: m.meta.update(samples=0), "not a number of samples"),
        (lambda m: m.meta.update(round=3), "belongs to round 3"),
    ],
)
def test_a_refused_result_names_the_site_and_leaves_no_trace(change, complaint):
    names = ("online", "predictor")

    def spoiled(like):
        message = _result(like, 1.0, names)
        change(message)
        return message

    model, like = _model("fedbyol")
    aggregator = Aggregator(model, 2, like, partitions=4)
    aggregator.accept("good", _result(like, 2.0, names))
    with pytest.raises(FCLSegError, match=f"bad.*{complaint}"):
        aggregator.accept("bad", spoiled(like))
    aggregator.finish()
    assert all(np.all(array == 2) for state in model.means.values() for array in state.values())
    assert model.trained == ["good"]


def test_the_target_is_expected_in_calibration_rounds_only():
    model, like = _model("fclopt_dp")
    with_target, without = ("online", "predictor", "target"), ("online", "predictor")
    for round_number, good, bad in ((0, with_target, without), (1, without, with_target)):
        model.next_round = round_number
        aggregator = Aggregator(model, 2, like, partitions=4)
        aggregator.accept("a", _result(like, 1.0, good, round_number=round_number))
        with pytest.raises(FCLSegError, match="'target'"):
            aggregator.accept("b", _result(like, 1.0, bad, round_number=round_number))


def test_a_checkpoint_is_the_whole_model(tmp_path):
    names = ("online", "target", "bank")
    model = _aggregate(
        "fcl", 4, lambda like: {s: _result(like, v, names, round_number=4, site=s) for v, s in enumerate("ab", 1)}
    )
    model.predictor.calibrate(0.25)
    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": {"seed": 1}, "sites": ["a", "b"]}, fresh=False)
    folder.save(model, {"round": 4})
    again = folder.load(_model("fcl")[0])
    assert again.next_round == 5 and again.trained == ["a", "b"] and again.fresh == model.fresh
    assert again.predictor == model.predictor
    for name, state in model.means.items():
        assert all(np.array_equal(state[key], again.means[name][key]) for key in state)
    assert np.array_equal(again.others["bank"]["b"]["features"], model.others["bank"]["b"]["features"])


def test_lines_beyond_the_checkpoint_are_dropped(tmp_path):
    model, _ = _model("fedbyol")
    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": {}}, fresh=False)
    for number in range(3):
        model.next_round = number + 1
        folder.save(model, {"round": number})
    with open(folder.path / "rounds.jsonl", "a") as file:
        file.write('{"round": 3}\n{"round": 4, "los')
    assert folder.load(_model("fedbyol")[0]).next_round == 3
    assert [line["round"] for line in folder.rounds()] == [0, 1, 2]
    assert len(list((folder.path / "checkpoints").iterdir())) == 2


def test_another_configuration_is_refused_in_one_sentence(tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = {"settings": {"seed": 1, "pretrain_timeout": 5}, "sites": ["a"], "data": None}
    folder.open(config, fresh=False)
    run_id = folder.config["id"]
    patient = {**config, "settings": {"seed": 1, "pretrain_timeout": 99}}
    folder.open(patient, fresh=False)  # patience may change
    assert folder.config["id"] == run_id
    for changed, name in (
        ({"sites": ["a", "b"]}, "sites"),
        ({"settings": {"seed": 2}}, "seed"),
        ({"data": "x"}, "data"),
    ):
        with pytest.raises(FCLSegError, match=f"different '{name}'.*--fresh"):
            folder.open({**config, **changed}, fresh=False)
    folder.open({**config, "settings": {"seed": 2}}, fresh=True)
    assert folder.config["id"] != run_id


def test_a_labelled_run_ends_with_a_network_that_segments(tmp_path):
    settings = RunSettings.read({"job": "finetune_federated", "changes": {"channels": [4, 8]}}, {})
    method = build_method(settings.row, settings.build_preset(), seed=3)
    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": settings.to_dict()}, fresh=False)
    folder.finish(method, settings)
    folder.publish(tmp_path / "download")
    assert folder.model == folder.path / MODEL and folder.encoders[GLOBAL].exists()
    model = load_model(str(tmp_path / "download" / MODEL), "acdc")
    assert (model.anatomy.names, model.image_size, model.spacing) == (("RV", "MYO", "LV"), 48, 3.75)
    ours, theirs = method.online.state_dict(), model.network.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_pre_training_ends_without_one(tmp_path):
    settings = RunSettings.read({"job": "fedbyol", "changes": {"channels": [4, 8]}}, {})
    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": settings.to_dict()}, fresh=False)
    folder.finish(build_method(settings.row, settings.build_preset(), seed=3), settings)
    assert folder.model is None and not (folder.path / MODEL).exists()
    assert json.loads((folder.path / "result.json").read_text()) == {"encoders": {GLOBAL: "encoder.safetensors"}}
