"""Fine-tuning through the bundle's train config, in this process."""

import json

import pytest
import torch
from ignite.engine import Events

from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import DataError, FCLSegError
from fclseg.finetune.handlers import CHECKPOINT
from fclseg.finetune.plain_errors import user_error
from fclseg.finetune.train import FinetuneSpec, training_config
from fclseg.networks.loading import read_tensors, save_encoder
from fclseg.networks.model_file import MODEL, load_model
from fclseg.networks.unet import Encoder
from fclseg.presets import get_preset
from fclseg.study.fixed_training import train_fixed

EPOCHS = 4


def spec_of(phantom, **changes):
    changes = {"preset": "demo", "overrides": {"epochs": EPOCHS}, **changes}
    return FinetuneSpec(phantom, ("patient001", "patient002"), ("patient003", "patient004"), **changes)


@pytest.fixture(scope="module")
def encoder_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    torch.manual_seed(11)
    encoder = Encoder(get_preset("demo").networks.channels)
    encoder(torch.rand(4, 1, 48, 48))  # gives its BatchNorm statistics, as pre-training would
    save_encoder(path, encoder, {"preset": "demo"})
    return path


def test_result_and_files(phantom, tmp_path):
    result = train_fixed(spec_of(phantom, hd95=True), tmp_path / "out")
    evaluation = result.evaluation
    assert list(evaluation.dice) == ["RV", "MYO", "LV"] == list(evaluation.mean("hd95"))
    assert evaluation.mean_dice == pytest.approx(sum(evaluation.dice.values()) / 3)
    assert all(0 <= value <= 1 for value in evaluation.dice.values())
    assert {row["patient"] for row in evaluation.rows} == {"patient003", "patient004"}
    assert [row["phase"] for row in evaluation.rows] == ["ED", "ES"] * 2
    assert len(result.losses) == EPOCHS and result.losses[-1] < result.losses[0] and result.seconds > 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {MODEL, "model.pt", "training.json", "evaluation.csv", "evaluation.json"}


def test_a_model_never_lies_beside_another_trainings_record(phantom, tmp_path):
    train_fixed(spec_of(phantom, overrides={"epochs": 1}), tmp_path)
    parser = training_config(spec_of(phantom, seed=5, overrides={"epochs": 1}), tmp_path, progress=False)
    for step in range(3):  # as if it was killed just before the model was written
        parser.get_parsed_content(f"run#{step}")
    assert json.loads((tmp_path / "training.json").read_text())["seed"] == 5
    assert {path.name for path in tmp_path.iterdir()} == {"training.json"}, "neither its model nor its scores stay"


def test_a_read_only_output_folder_is_refused_before_the_training(phantom, open_folder, ordinary_user):
    open_folder.chmod(0o555)
    parser = training_config(spec_of(phantom), open_folder, progress=False)
    parser.get_parsed_content("network")
    parser.get_parsed_content("train#dataset")  # pytest's own folders are closed to others
    with ordinary_user(), pytest.raises(RuntimeError) as caught:
        parser.get_parsed_content("train#trainer")
    assert "cannot be written to" in str(user_error(caught.value))


@pytest.mark.parametrize("folder", ["file/below", "file"])
def test_a_useless_output_folder_is_refused_before_the_training(phantom, tmp_path, folder):
    (tmp_path / "file").touch()
    parser = training_config(spec_of(phantom), tmp_path / folder, progress=False)
    with pytest.raises(RuntimeError) as caught:
        parser.get_parsed_content("train#trainer")
    assert "cannot be written to" in str(user_error(caught.value))


def test_no_epoch_is_no_training(phantom):
    with pytest.raises(FCLSegError, match="number of epochs cannot be 0"):
        train_fixed(spec_of(phantom, overrides={"epochs": 0}))


def test_same_seed_same_result_and_nothing_written(phantom, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, other = (train_fixed(spec_of(phantom, seed=seed)) for seed in (1, 1, 2))
    assert first.losses == second.losses and first.evaluation == second.evaluation
    assert first.losses != other.losses
    assert list(tmp_path.iterdir()) == []


def test_encoder_weights_arrive_and_stay_when_frozen(phantom, tmp_path, encoder_file):
    spec = spec_of(phantom, pretrained_encoder=encoder_file, freeze_encoder=True)
    result = train_fixed(spec, tmp_path)
    trained, _ = read_tensors(tmp_path / MODEL)
    for name, tensor in read_tensors(encoder_file)[0].items():
        assert torch.equal(trained[name], tensor), f"{name} of the frozen encoder changed"
    assert result.losses[-1] < result.losses[0], "the decoder learns on frozen features"


def test_full_fine_tuning_starts_at_the_encoder_and_moves_it(phantom, encoder_file):
    parser = training_config(spec_of(phantom, pretrained_encoder=encoder_file), None, False)
    network = parser.get_parsed_content("network")
    pretrained = read_tensors(encoder_file)[0]
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in pretrained.items())
    parser.get_parsed_content("train#trainer").run()
    moved = [name for name, tensor in pretrained.items() if not torch.equal(network.state_dict()[name], tensor)]
    assert len(moved) == len(pretrained)


def test_warm_up_holds_the_encoder_only_at_first(phantom, encoder_file):
    spec = spec_of(phantom, pretrained_encoder=encoder_file, overrides={"epochs": 3, "frozen_epochs": 2})
    parser = training_config(spec, None, False)
    trainer, network = (parser.get_parsed_content(name) for name in ("train#trainer", "network"))
    seen = []
    weight = network.encoder.stem.conv_0.conv.weight
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: seen.append(weight.detach().clone()))
    trainer.run()
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


@pytest.mark.parametrize("unlabelled", [0.0, 1.0])
def test_interrupted_and_resumed_equals_never_interrupted(phantom, tmp_path, unlabelled):
    every_epoch = {"epochs": EPOCHS, "train#handlers#3#every_seconds": 0.0, "unlabelled_weight": unlabelled}
    every_epoch["unlabelled_patients"] = ("patient001",)
    spec = spec_of(phantom, overrides=every_epoch)
    whole = train_fixed(spec, tmp_path / "whole")

    trainer = training_config(spec, tmp_path / "cut", False).get_parsed_content("train#trainer")

    def pull_the_plug():
        raise KeyboardInterrupt

    trainer.add_event_handler(Events.EPOCH_STARTED(once=3), pull_the_plug)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert (tmp_path / "cut" / CHECKPOINT).exists() and not (tmp_path / "cut" / MODEL).exists()

    with pytest.raises(FCLSegError, match=r"different 'seed'.*choose another output_dir"):
        train_fixed(spec_of(phantom, seed=9, overrides=every_epoch), tmp_path / "cut")
    resumed = train_fixed(spec, tmp_path / "cut")
    assert resumed.losses == whole.losses and resumed.evaluation == whole.evaluation
    ours, theirs = (read_tensors(tmp_path / name / MODEL)[0] for name in ("cut", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not (tmp_path / "cut" / CHECKPOINT).exists()


def test_a_checkpoint_of_a_gpu_is_resumed_on_a_processor(phantom, tmp_path, monkeypatch):
    spec = spec_of(phantom, overrides={"epochs": 2, "train#handlers#3#every_seconds": 0.0})
    trainer = training_config(spec, tmp_path, False).get_parsed_content("train#trainer")
    trainer.add_event_handler(Events.EPOCH_COMPLETED(once=1), trainer.terminate)
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")  # as if it was saved there
        trainer.run()
    assert len(train_fixed(spec, tmp_path).losses) == 2 and not (tmp_path / CHECKPOINT).exists()


def test_nobody_held_out_leaves_no_scores_of_an_earlier_training(phantom, tmp_path, capsys):
    train_fixed(spec_of(phantom, overrides={"epochs": 1}), tmp_path)
    assert {"evaluation.csv", "evaluation.json"} < {path.name for path in tmp_path.iterdir()}
    everybody = tuple(f"patient{number:03d}" for number in range(1, 5))
    result = train_fixed(FinetuneSpec(phantom, everybody, (), preset="demo", overrides={"epochs": 1}), tmp_path)
    assert result.evaluation.rows == [] and result.evaluation.dice == {}
    assert {path.name for path in tmp_path.iterdir()} == {MODEL, "model.pt", "training.json"}
    assert capsys.readouterr().out.endswith("no patient was held out, so nothing is scored\n")


def test_model_file_describes_itself_and_names_no_patient(phantom, tmp_path, encoder_file):
    train_fixed(spec_of(phantom, overrides={"epochs": 1}), tmp_path)
    model = load_model(str(tmp_path / MODEL), "acdc")
    assert model.anatomy.names == ("RV", "MYO", "LV") and model.preset == "demo" and model.image_size == 48
    assert model.spacing == get_preset("demo").images.spacing(ANATOMIES["acdc"])
    assert b"patient" not in (tmp_path / MODEL).read_bytes()
    with pytest.raises(FCLSegError, match=r"not axial cardiovascular MRI .*: use the bundle acdc_unet"):
        load_model(str(tmp_path / MODEL), "hvsmr")
    with pytest.raises(FCLSegError, match=r"pre-trained encoder and was never fine-tuned.*monai\.bundle run"):
        load_model(str(encoder_file), "acdc")
    with pytest.raises(FCLSegError, match=r"no such model file.* own folder as --bundle_root"):
        load_model(tmp_path / "models" / MODEL)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_patients": ("patient099",)}, "patient099"),
        ({"train_patients": ("patient003",)}, "training and the validation set"),
        ({"dataset_dir": "/nowhere"}, "/nowhere"),
        (
            {"anatomy": ANATOMIES["hvsmr"]},
            "1 RV, 2 MYO, 3 LV, but this bundle segments 1 MYO, 2 BP: use the bundle acdc_unet",
        ),
        ({"preset": "huge"}, "no preset 'huge'"),
        ({"pretrained_encoder": "/nowhere/encoder.safetensors"}, "no weights file"),
    ],
)
def test_bad_input_is_the_sentence_itself_not_monais_wrapping(phantom, changes, sentence):
    fields = {"dataset_dir": phantom, "train_patients": ("patient001",), "validation_patients": ("patient003",)}
    with pytest.raises((DataError, FCLSegError), match=sentence):
        train_fixed(FinetuneSpec(**{**fields, "preset": "demo", **changes}))
