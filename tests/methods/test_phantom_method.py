"""Training on phantoms: the true labels teach, and the site's images only give the BatchNorm statistics."""

from copy import deepcopy

import torch
from monai.losses import DiceCELoss

from fclseg.data.augment import augment_labelled
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset
from fclseg.randomness import generator

PRESET = get_preset("demo", **{"pretraining.phantom_patients": 2, "pretraining.batch_size": 4})


def real_batch(make_sampler, method):
    return next(iter(make_sampler(method).epoch(generator(0))))


def test_loss_is_the_bundles_on_augmented_phantoms(make_sampler):
    method = build_method("phantom", PRESET, 0)
    oracle = deepcopy(method.online)
    loss = method.loss(real_batch(make_sampler, method), generator(3))
    source = generator(3)
    rows = torch.randint(len(method.phantoms), (4,), generator=source).numpy()
    store = method.phantoms.store
    images = torch.from_numpy(store.images[rows].astype("float32"))[:, None]
    labels = torch.from_numpy(store.labels[rows].astype("int64"))[:, None]
    images, labels = augment_labelled(images, labels, source)
    expected = DiceCELoss(to_onehot_y=True, softmax=True)(oracle.train()(images), labels)
    torch.testing.assert_close(loss, expected)


def test_the_real_images_change_statistics_but_no_gradient(make_sampler):
    one, other = build_method("phantom", PRESET, 0), build_method("phantom", PRESET, 0)
    batch = real_batch(make_sampler, one)
    brighter = deepcopy(batch)
    brighter.images = (brighter.images * 3).clamp(0, 1)
    for method, images in ((one, batch), (other, brighter)):
        method.loss(images, generator(1)).backward()
    for a, b in zip(one.online.parameters(), other.online.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    norm = "encoder.stem.conv_0.adn.N.running_mean"
    assert not torch.equal(one.online.state_dict()[norm], other.online.state_dict()[norm])


def test_running_statistics_are_those_of_the_real_images_alone(make_sampler):
    method = build_method("phantom", PRESET, 0)
    batch = real_batch(make_sampler, method)
    oracle = deepcopy(method.online).train()
    method.loss(batch, generator(1))
    with torch.no_grad():
        oracle(batch.images)
    for name, value in oracle.named_buffers():
        if "num_batches" not in name:
            torch.testing.assert_close(method.online.get_buffer(name), value)
