"""A second implementation of federated BYOL, written as plainly as possible from the paper: the oracle for a run.

It shares with the product the images, the initial networks, the random views and the seeds; everything that happens
between them is written out here: local SGD, the schedule, the average, and PTNU's loop. Sums are rounded as PyTorch's
optimiser rounds them: max pooling turns a difference in the last bit of a pixel into another gradient.
"""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from fclseg.anatomy.folders import read_folder
from fclseg.data.augment import Views
from fclseg.data.slices import open_store
from fclseg.methods.registry import build_method
from fclseg.presets import Preset
from fclseg.randomness import generator

MOMENTUM, DECAY = 0.9, 1e-4  # the paper's
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def copied(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def mean_distance(theta, xi):
    """Mean absolute difference over the parameters."""
    names = [name for name in xi if name.rsplit(".")[-1] not in STATISTICS]
    differences = [(theta[name].double() - xi[name].double()).abs().flatten() for name in names]
    return float(torch.cat(differences).mean())


def weighted_mean(states, weights):
    """sum_c n_c / n f_c, tensor by tensor."""
    total = sum(weights)
    result = {}
    for name, tensor in states[0].items():
        parts = [state[name].double() * weight for state, weight in zip(states, weights, strict=True)]
        result[name] = (sum(parts) / total).to(tensor.dtype) if tensor.is_floating_point() else tensor
    return result


def approach(theta, xi, d, momentum):
    """Algorithm 2: the paper's loop counts the steps xi <- m xi + (1 - m) theta, and each shrinks xi - theta by m.

    For d = 0, which the loop never reaches, its limit.
    """
    if d == 0:
        return dict(theta)
    moving, steps = {name: tensor.double() for name, tensor in xi.items()}, 0
    while mean_distance(theta, moving) > d * (1 + 1e-9):
        moving = {name: momentum * tensor + (1 - momentum) * theta[name] for name, tensor in moving.items()}
        steps += 1
    shrink = torch.tensor(momentum**steps, dtype=torch.float32)
    return {
        name: (theta[name] + shrink * (tensor - theta[name]) if steps else tensor)
        if tensor.is_floating_point()
        else theta[name]
        for name, tensor in xi.items()
    }


@dataclass
class PlainSite:
    """One hospital: its slices, its networks and its optimiser's momentum."""

    name: str
    folder: str
    preset: Preset
    cache: str
    velocity: dict[int, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self):
        volumes = read_folder(self.folder)
        size, spacing = self.preset.images.size, 1.25 * self.preset.images.pixel_scale
        store = open_store(volumes, image_size=size, spacing=spacing, cache=self.cache, progress=False)
        self.images = torch.from_numpy(store.images[:].astype("float32"))[:, None]
        method = build_method("fclopt", self.preset, 0)
        self.online, self.predictor, self.target = method.online, method.predictor, method.target
        self.views = Views(self.preset)

    def train(self, round_number, rounds):
        lr = self.preset.pretraining.lr * (1 + math.cos(math.pi * round_number / rounds)) / 2
        order = generator(0, self.name, round_number, "batches")
        draws = generator(0, self.name, round_number, "views")
        size = self.preset.pretraining.batch_size
        for _ in range(self.preset.pretraining.local_epochs):
            permutation = torch.randperm(len(self.images), generator=order)
            for start in range(0, len(self.images) - size + 1, size):
                self.step(self.images[permutation[start : start + size]], draws, lr)

    def step(self, images, draws, lr):
        first, second = self.views(images, draws), self.views(images, draws)
        with torch.no_grad():
            target_first, target_second = self.target(first), self.target(second)
        online_first, online_second = self.predictor(self.online(first)), self.predictor(self.online(second))
        loss = (squared(online_first, target_second) + squared(online_second, target_first)) / 2
        parameters = [*self.online.parameters(), *self.predictor.parameters()]
        gradients = torch.autograd.grad(loss, parameters)
        momentum = self.preset.pretraining.ema_momentum
        with torch.no_grad():
            for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                gradient = gradient.add(parameter, alpha=DECAY)
                before = self.velocity.get(index)
                self.velocity[index] = gradient if before is None else (MOMENTUM * before).add(gradient)
                parameter.add_(self.velocity[index], alpha=-lr)
            for xi, theta in zip(self.target.parameters(), self.online.parameters(), strict=True):
                xi.lerp_(theta, 1 - momentum)


def squared(z, goal):
    """Mean squared distance of unit vectors."""
    return 2 - 2 * functional.cosine_similarity(z, goal, dim=1).mean()


def federated_byol(job, sites, rounds, *, ptnu_momentum, calibration_rounds):
    """Run all rounds. Returns the final global networks, and the d used in each round of PTNU."""
    weights = [len(site.images) for site in sites]
    networks = {part: copied(getattr(sites[0], part)) for part in ("online", "predictor", "target")}
    alpha, uploaded, used = 1.0, True, []
    for number in range(rounds):
        if job == "fclopt_ptnu":
            used.append(mean_distance(networks["online"], networks["target"]))
        if job == "fclopt_dp":
            measured = sum(mean_distance(networks["online"], copied(site.target)) for site in sites) / len(sites)
            if uploaded and measured:
                alpha = mean_distance(networks["online"], networks["target"]) / measured
            used.append(alpha * measured)
        for site in sites:
            site.online.load_state_dict(networks["online"])
            site.predictor.load_state_dict(networks["predictor"])
            if job == "fclopt":
                site.target.load_state_dict(networks["target"])
            elif job != "fedbyol":
                own = copied(site.target)
                site.target.load_state_dict(approach(networks["online"], own, used[-1], ptnu_momentum))
            site.train(number, rounds)
        uploaded = job != "fclopt_dp" or number % calibration_rounds == 0
        for part in networks:
            if part != "target" or uploaded:
                networks[part] = weighted_mean([copied(getattr(site, part)) for site in sites], weights)
    return networks, used
