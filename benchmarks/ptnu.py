"""Closed-form PTNU against the paper's loop (Algorithm 2) on the ``paper`` network: prints one line.

    python benchmarks/ptnu.py [--share 0.5]

``share`` is d / d0: how much closer to the online network the target must get.
"""

import argparse
import time

import numpy as np

from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target
from fclseg.federation.states import parameter_names, to_arrays
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset


def loop(theta, xi, d, momentum):
    """Algorithm 2 step by step, in the networks' own float32."""
    keep, add, steps = np.float32(momentum), np.float32(1 - momentum), 0
    while distance(theta, xi) > d:
        xi = {name: keep * value + add * theta[name] for name, value in xi.items()}
        steps += 1
    return xi, steps


def seconds(function):
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.5, help="d / d0 (default 0.5)")
    share = parser.parse_args().share
    preset = get_preset("paper")
    theta, xi = (to_arrays(build_method("fclopt", preset, seed).send("online")) for seed in (0, 1))
    theta, xi = ({name: network[name] for name in parameter_names(network)} for network in (theta, xi))
    d = share * distance(theta, xi)
    slow, (looped, steps) = seconds(lambda: loop(theta, xi, d, preset.pretraining.ptnu_momentum))
    fast, predicted = min(
        (seconds(lambda: predict_target(theta, xi, d, preset.pretraining.ptnu_momentum)) for _ in range(5)),
        key=lambda timed: timed[0],
    )
    difference = max(float(np.abs(looped[name] - predicted[name]).max()) for name in looped)
    print(
        f"ptnu: loop of {steps} steps {slow:.2f} s, closed form {fast:.3f} s, {slow / fast:.0f} times as fast, "
        f"largest difference {difference:.1e} ({sum(a.size for a in xi.values()):,} parameters, d/d0 = {share:g})"
    )


if __name__ == "__main__":
    main()
