"""Attacks at demo size: better than a blind guess where something leaks, and at chance where nothing does."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from untrained import PRESET

from fclseg.attacks.inversion import Ridge, blind_guess, reconstruct, train_decoder
from fclseg.attacks.material import Leak, Material, joined
from fclseg.attacks.membership import agreement, infer_membership
from fclseg.attacks.reidentification import cosine_of_what_is_left, reidentify, top_one
from fclseg.attacks.scores import area_under_curve, psnr, ssim, standard_error
from fclseg.attacks.update import Situation, compressed, sent_update, updates, with_features
from fclseg.data.sampler import Batch
from fclseg.methods.base import Method
from fclseg.privacy.protections import PrivacySettings

NOTHING = PrivacySettings()


class Constant(nn.Module):
    """The same feature for every image: nothing leaks."""

    def forward(self, images):
        return torch.ones(len(images), 16) + 0.0 * images.mean(dim=(1, 2, 3))[:, None]


class Pooled(nn.Module):
    """Features that are the image itself, coarse: all of it leaks."""

    def forward(self, images):
        return nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)


@pytest.fixture
def gained(store, halves):
    """How much better than the blind guess an inversion is, in dB and in SSIM."""

    def gain(network, settings=NOTHING):
        material, (known, victims) = Material(network, store, PRESET, settings), halves
        seen, wanted = material.leak(known, banks=4), material.leak(victims)
        found = reconstruct(train_decoder(seen, 4), wanted)
        guess = blind_guess(seen, wanted)
        return float((found.psnr - guess.psnr).mean()), float((found.ssim - guess.ssim).mean())

    return gain


def test_inversion_sees_what_leaks_and_nothing_else(gained):
    assert gained(Pooled())[0] > 1.0
    assert gained(Constant())[0] < 0.2


def test_ridge_regression_solves_its_normal_equations():
    units, pixels = torch.randn(20, 6, dtype=torch.float64), torch.randn(20, 3, dtype=torch.float64)
    slow = torch.linalg.solve(units.T @ units + 2.5 * torch.eye(6, dtype=torch.float64), units.T @ pixels)
    assert torch.allclose(Ridge(units, pixels).weights(2.5), slow)


def test_noise_that_drowns_the_features_leaves_the_guess(gained):
    assert gained(Pooled(), PrivacySettings(feature_noise=20.0))[0] < 0.2


def test_reidentification_finds_patients_by_features_and_not_by_constants(store, method, halves):
    everybody = store.patients
    leaking = reidentify(Material(Pooled(), store, PRESET, NOTHING), halves[1], everybody)
    assert leaking.chance == pytest.approx(1 / len(everybody), abs=0.05) and leaking.rate > 2 * leaking.chance
    blurred = reidentify(Material(Pooled(), store, PRESET, PrivacySettings(prototypes=1)), halves[1], everybody)
    assert blurred.rate == pytest.approx(blurred.chance, abs=0.05), "one vector per partition tells nobody apart"


def test_top_one_by_hand():
    """Vectors: a of patient A, b of B and C together, c of B in another partition."""
    features = torch.tensor([[0.99, 0.14], [0.14, 0.99], [0.14, 0.99], [0.99, 0.14]])
    gallery = Leak(features, torch.tensor([0, 0, 0, 1]), torch.zeros(4, 1, 2, 2), np.arange(4), np.array([0, 1, 1, 2]))
    owners = np.array(["A", "B", "C", "B"])
    queries = torch.tensor([[1.0, 0.1], [0.1, 1.0], [1.0, 0.1], [0.0, 1.0]])
    found = top_one(queries, torch.tensor([0, 0, 0, 1]), np.array(["A", "B", "B", "B"]), gallery, owners)
    assert found.rate == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert found.error == pytest.approx(0.25), "A has 1, B has 0.5"
    assert found.chance == pytest.approx((0.5 + 0.25 + 0.25 + 1) / 4)


def test_entries_that_were_removed_are_not_compared():
    queries, vectors = torch.randn(3, 4), nn.functional.normalize(torch.randn(2, 4), dim=1)
    vectors[1] = nn.functional.normalize(vectors[1] * torch.tensor([1.0, 0.0, 1.0, 0.0]), dim=0)
    found = cosine_of_what_is_left(queries, vectors)
    for number in range(3):
        whole = nn.functional.cosine_similarity(queries[number], vectors[0], dim=0)
        half = nn.functional.cosine_similarity(queries[number, ::2], vectors[1, ::2], dim=0)
        assert torch.allclose(found[number], torch.stack([whole, half]), atol=1e-6)


def test_membership_is_chance_for_a_network_that_saw_nobody(store, method, halves):
    found = infer_membership(Constant(), store, PRESET, *halves)
    assert (found.patients, found.slices) == (0.5, 0.5)
    images = torch.rand(3, 1, 48, 48)
    slow = agreement(method.online, images, PRESET)
    assert slow.shape == (3,) and (np.abs(slow) <= 1 + 1e-6).all()


def test_agreement_is_the_mean_cosine_of_all_pairs(method):
    from fclseg.attacks.membership import LOOKS
    from fclseg.data.augment import Views
    from fclseg.randomness import generator

    images, draws = torch.rand(2, 1, 48, 48), generator(0, "membership")
    with torch.no_grad():
        found = [method.online.eval()(Views(PRESET)(images, draws)) for _ in range(LOOKS)]
    for number in range(2):
        pairs = [
            float(nn.functional.cosine_similarity(found[i][number], found[j][number], dim=0))
            for i in range(LOOKS)
            for j in range(LOOKS)
            if i != j
        ]
        assert agreement(method.online, images, PRESET)[number] == pytest.approx(np.mean(pairs), abs=1e-5)


class Linear(Method):
    """One layer on pixels: its gradient is the sum of the images."""

    learning_rates: ClassVar = {"sgd": 0.1}

    def __init__(self):
        super().__init__(PRESET)
        torch.manual_seed(0)
        self.online = nn.Linear(PRESET.images.view_size**2, 4)

    def loss(self, batch, generator):
        return self.online(self.views(batch.images, generator).flatten(1)).sum()


class Patterns:
    """Slices of eight patients that are mixtures of the same four patterns, so that few numbers tell all of them."""

    def __init__(self):
        random = np.random.default_rng(0)
        patterns, weights = random.standard_normal((4, 48, 48)), random.standard_normal((160, 4))
        self.images = (0.5 + 0.1 * np.einsum("np,phw->nhw", weights, patterns)).clip(0, 1).astype(np.float32)
        self.partition, self._owner = np.zeros(160, np.uint8), np.repeat(np.arange(8), 20).astype(str)

    def select(self, patients):
        return np.flatnonzero(np.isin(self._owner, patients))


def rebuilt(method, settings=NOTHING):
    """How much better than the blind guess slices from updates of four other patients are, in dB."""
    store = Patterns()
    known, sent = (
        updates(method, store, half, 80, Situation(), settings, n)
        for n, half in enumerate((list("0123"), list("4567")))
    )
    own, wanted = with_features(known[0], sent[0], known[1], sent[1])
    found, guess = reconstruct(train_decoder(own, 1), wanted), blind_guess(own, wanted)
    return float((found.psnr - guess.psnr).mean())


def test_an_update_tells_a_slice_until_noise_drowns_it():
    assert rebuilt(Linear()) > 1.0
    assert rebuilt(Linear(), PrivacySettings(clip=1e6)) > 1.0
    assert rebuilt(Linear(), PrivacySettings(clip=1e-3, sigma=1e4)) < 0.2


def test_the_update_is_that_of_the_method_s_own_step(method):
    """One step of plain descent, computed by torch, and BatchNorm's own moving average of a tenth."""
    images, places = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    method.bank.push(torch.randn(96, 16, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 4)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    batch = Batch(images, places, images.flip(0))
    found = sent_update(method, batch, Situation(slices=2), NOTHING, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in method.state_dict().items())
    method.views = lambda images, generator: images
    method.train()
    method.zero_grad()
    method.loss(batch, torch.Generator()).backward()
    for name, parameter in method.online.named_parameters():
        assert np.allclose(found[name], -0.05 * parameter.grad.numpy(), atol=1e-6), name
    first = method.online.encoder.stem.conv_0
    mean = first.conv(torch.cat([images, images])).mean(dim=(0, 2, 3)).detach().numpy()
    old = before["online.encoder.stem.conv_0.adn.N.running_mean"].numpy()
    assert np.allclose(found["encoder.stem.conv_0.adn.N.running_mean"], 0.1 * (mean - old), atol=1e-6)


def test_more_slices_and_steps_change_the_update(method):
    images, places = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    method.bank.push(torch.randn(96, 16, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 4)
    kinds = [Situation(), Situation(steps=2), Situation(real=True)]
    found = [sent_update(method, Batch(images, places, images.flip(0)), kind, NOTHING, 0) for kind in kinds]
    sizes = [compressed(one) for one in found]
    assert len({one.tobytes() for one in sizes}) == 3 and len({one.shape for one in sizes}) == 1


def test_scores_by_hand():
    truth = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert ssim(truth, truth).tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    assert psnr((truth + 0.1), truth).tolist() == pytest.approx([20.0, 20.0], abs=1e-3)
    # patients a: 1 and 3, b: 4: means 2 and 4, standard deviation sqrt(2), over the root of two patients 1
    assert standard_error(np.array([1.0, 4.0, 3.0]), np.array(["a", "b", "a"])) == pytest.approx(1.0)
    assert area_under_curve(np.array([3.0, 2.0]), np.array([1.0, 2.0])) == pytest.approx((1 + 1 + 1 + 0.5) / 4)


def test_vectors_keep_their_numbers_when_sites_are_joined(store, halves):
    one = Material(Pooled(), store, PRESET, PrivacySettings(prototypes=1)).leak(halves[0])
    both = joined([one, one])
    assert set(one.vector) == set(range(4)) and set(both.vector) == set(range(8))
    for vector in range(8):
        members = both.features[both.vector == vector]
        assert torch.equal(members, members[:1].expand_as(members))
