"""When a training ends, judged only by its losses."""

import math

from fclseg.finetune.convergence import converged_at, longest, rate_factor, window_of


def test_a_window_is_150_steps_but_at_least_5_epochs():
    assert [window_of(steps) for steps in (1, 10, 29, 30, 31, 1000)] == [150, 15, 6, 5, 5, 5]


def test_a_falling_loss_goes_on_and_a_flat_one_has_converged():
    falling = [0.9**epoch for epoch in range(30)]
    assert converged_at(falling, 5) is None
    assert converged_at(falling + [falling[-1]] * 20, 5) == 38, "by hand: epochs 34-38 are all flat, 29-33 nearly so"
    assert converged_at([1.0] * 10, 5) == 10 and converged_at([1.0] * 9, 5) is None


def test_the_rate_falls_to_zero_over_half_the_epochs():
    flat = [1.0] * 10
    assert rate_factor(flat, 5) == 1.0
    assert rate_factor([*flat, 1.0], 5) == 0.5 * (1 + math.cos(math.pi / 5))
    assert rate_factor(flat + [1.0] * 5, 5) < 1e-12


def test_no_training_is_endless():
    losses = [0.5**epoch for epoch in range(1000)]
    assert converged_at(losses, 5) == 100 and longest(5) == 150
