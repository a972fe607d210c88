"""Semi-supervised fine-tuning: which patients take part, the loss of a step by hand, and resuming."""

from copy import deepcopy

import pytest
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.finetune.dataset import Patients, open_labelled
from fclseg.finetune.protocols import draw
from fclseg.finetune.train import FinetuneSpec
from fclseg.finetune.unlabelled import WithUnlabelled, unlabelled_slices
from fclseg.methods.mean_teacher import agreement
from fclseg.networks.freezable import FreezableUNet
from fclseg.presets import get_preset
from fclseg.randomness import generator
from fclseg.resources import shipped_model
from fclseg.study.fixed_training import train_fixed

PRESET = get_preset("demo")


@pytest.fixture(scope="module")
def store(phantom):
    anatomy = read_folder(phantom)[0].anatomy
    return open_labelled(str(phantom), anatomy, PRESET.images.size, PRESET.images.spacing(anatomy), progress=False)


def test_patients_who_are_neither_labelled_nor_held_out_take_part(phantom, store):
    patients = Patients(("patient001",), ("patient004",))
    found = unlabelled_slices(store, phantom, patients, None, 4)
    assert found.store.patients == ["patient002", "patient003"]
    assert unlabelled_slices(store, phantom, patients, ["patient003"], 4).store.patients == ["patient003"]


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [(["patient004"], "'patient004' is held out"), ([], "no patient without labels to learn from")],
)
def test_held_out_patients_and_nobody_are_refused(phantom, store, chosen, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        unlabelled_slices(store, phantom, Patients(("patient001",), ("patient004",)), chosen, 4)


def test_a_step_by_hand(phantom, store):
    """supervised + weight x agreement with the teacher, who has moved by 1 - m towards the network since the start."""
    slices = unlabelled_slices(store, phantom, Patients(("patient001",), ()), None, 4)
    network = FreezableUNet((4, 8), 4, seed=1)
    loss = WithUnlabelled(lambda prediction, labels: prediction.sum(), network, slices, 0.5, seed=3, momentum=0.9)
    before = deepcopy(network)
    supervised = torch.tensor([2.0, 3.0])
    loss(supervised, supervised)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
    teacher = deepcopy(loss.teacher)
    with torch.no_grad():
        for xi, old, new in zip(teacher.parameters(), before.parameters(), network.parameters(), strict=True):
            xi.copy_(0.9 * old + 0.1 * new)
    source = generator(3, "unlabelled slices", 1)
    expected = 5.0 + 0.5 * agreement(deepcopy(network), teacher, slices.draw(source).images, source)
    torch.testing.assert_close(loss(supervised, supervised), expected)
    assert int(loss.state_dict()["steps"]) == 2


def run(phantom, weight, unlabelled=None):
    changes = {"epochs": 2, "unlabelled_weight": weight}
    spec = FinetuneSpec(
        phantom,
        ("patient001",),
        ("patient004",),
        unlabelled,
        preset="demo",
        pretrained_network=shipped_model("acdc_unet", "demo"),
        overrides=changes,
    )
    return train_fixed(spec).evaluator.network.state_dict()


def test_the_bundle_trains_with_it_only_if_asked_to(phantom):
    off, on, other = run(phantom, 0.0), run(phantom, 1.0), run(phantom, 1.0, ("patient002",))
    name = "decoder.head.weight"
    assert not torch.equal(off[name], on[name]) and not torch.equal(on[name], other[name])


def test_a_protocol_lists_the_other_patients_of_the_same_place():
    splits = Splits.make([f"p{n}" for n in range(8)], 2, folds=2, seed=0)
    local = draw("local", splits, "site-1", 0, 1, 0)
    assert {*local.patients, *local.unlabelled} == set(splits.training("site-1", 0))
    together = draw("centralised", splits, None, 0, 1, 0)
    everybody = {patient for site in splits.sites for patient in splits.training(site, 0)}
    assert {*together.patients, *together.unlabelled} == everybody
    for one in (local, together):
        assert not {*one.unlabelled} & {*one.patients, *one.validation}
