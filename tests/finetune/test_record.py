"""Which patients are scored when a model is evaluated: never one that it was trained on."""

import shutil

import pytest
from monai.bundle import ConfigParser

from fclseg.anatomy.registry import ANATOMIES
from fclseg.finetune.train import FinetuneSpec, bundle_config
from fclseg.networks.model_file import MODEL
from fclseg.study.fixed_training import train_fixed


@pytest.fixture(scope="module")
def trained(phantom, tmp_path_factory):
    """A model trained on the first patient and validated on the second. The others were not used."""
    folder = tmp_path_factory.mktemp("trained")
    train_fixed(FinetuneSpec(phantom, ("patient001",), ("patient002",), preset="demo", overrides={"epochs": 1}), folder)
    return folder


def evaluate(trained, dataset_dir, **overrides):
    """The patients that the bundle's evaluation scores."""
    parser = ConfigParser()
    parser.read_config(
        [bundle_config(ANATOMIES["acdc"], "train.json"), bundle_config(ANATOMIES["acdc"], "evaluate.json")]
    )
    parser.read_meta(bundle_config(ANATOMIES["acdc"], "metadata.json"))
    checkpoint = str(trained / MODEL)
    parser.update({"dataset_dir": str(dataset_dir), "output_dir": None, "checkpoint": checkpoint, "hd95": False})
    parser.update({"progress": False, **overrides})
    return {row["patient"] for row in parser.get_parsed_content("run#0").rows}


def test_in_the_folder_of_the_training_those_it_held_out(trained, phantom, capsys):
    assert evaluate(trained, phantom) == {"patient002"}
    assert capsys.readouterr().out == ""


def test_in_a_copy_of_the_folder_everybody_but_the_training_patients(trained, phantom, tmp_path, capsys):
    copy = shutil.copytree(phantom, tmp_path / "copy")
    assert evaluate(trained, copy) == {"patient002", "patient003", "patient004"}
    line = "1 of 4 patients have the names of training patients and are not scored"
    assert capsys.readouterr().out.startswith(line)
    everybody = {f"patient{number:03d}" for number in range(1, 5)}
    assert evaluate(trained, copy, train_patients=[]) == everybody, "other people may have the same names"


def test_among_strangers_or_without_a_record_everybody(trained, phantom, tmp_path, capsys):
    strangers = tmp_path / "strangers"
    shutil.copytree(phantom / "patient003", strangers / "patient003")
    assert evaluate(trained, strangers) == {"patient003"}
    shutil.copy(trained / MODEL, tmp_path)
    assert len(evaluate(tmp_path, phantom)) == 4
    assert capsys.readouterr().out == ""
