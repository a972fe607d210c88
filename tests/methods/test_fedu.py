"""FedU's rule: the encoder is always replaced, the predictor only below the threshold."""

import math

import pytest
import torch

from fclseg.methods.fedu import FedU, encoder_divergence
from fclseg.presets import get_preset

PRESET = get_preset("demo")


def shifted(state, by):
    return {name: value + by if value.is_floating_point() else value.clone() for name, value in state.items()}


def test_divergence_is_the_mean_distance_of_convolutions():
    state = {"a": torch.zeros(2, 1, 3, 3), "b": torch.zeros(5, 2, 1, 1), "bias": torch.zeros(9), "w": torch.zeros(4, 4)}
    expected = 0.1 * (math.sqrt(18) + math.sqrt(10)) / 2
    assert encoder_divergence(state, shifted(state, 0.1)) == pytest.approx(expected)


@pytest.mark.parametrize("margin, takes_predictor", [(0.99, True), (1.01, False)])
def test_predictor_follows_only_a_close_encoder(margin, takes_predictor):
    method = FedU(PRESET)
    step = 0.01
    distance = encoder_divergence(method.online.state_dict(), shifted(method.online.state_dict(), step))
    online = shifted(method.online.state_dict(), step * margin * method.threshold / distance)
    predictor = shifted(method.predictor.state_dict(), 1.0)
    own = {name: value.clone() for name, value in method.predictor.state_dict().items()}
    method.receive({"online": online, "predictor": predictor})
    assert all(torch.equal(value, online[name]) for name, value in method.online.state_dict().items())
    expected = predictor if takes_predictor else own
    assert all(torch.equal(value, expected[name]) for name, value in method.predictor.state_dict().items())


def test_first_round_takes_everything():
    method = FedU(PRESET)
    predictor = shifted(method.predictor.state_dict(), 1.0)
    method.receive({"online": method.send("online"), "predictor": predictor})
    assert torch.equal(method.predictor[0].weight, predictor["0.weight"])


def test_a_site_that_took_the_global_network_for_its_own_takes_the_predictor_too():
    """What a site that joins late does first, see ``SiteLearner``."""
    method = FedU(PRESET)
    online, predictor = shifted(method.online.state_dict(), 1.0), shifted(method.predictor.state_dict(), 1.0)
    method.receive({"online": online, "target": online})
    method.receive({"online": online, "predictor": predictor})
    assert all(torch.equal(value, predictor[name]) for name, value in method.predictor.state_dict().items())
