"""What must hold for every row of the paper's tables: it trains, keeps its state, sends and receives."""

from copy import deepcopy

import pytest
import torch
from safetensors.torch import load, save

from fclseg.methods.exchange import DISTANCE, MEAN, OTHERS, ROWS
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.networks.loading import read_tensors
from fclseg.presets import get_preset
from fclseg.resources import shipped_model

PRESET = get_preset("demo", bank_size=32)
ALL_ROWS = pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))


@pytest.fixture(scope="module")
def trained():
    """Methods after one round, each trained once for the whole module."""
    methods = {}

    def get(row, make_sampler):
        if row.job not in methods:
            method = build_method(row, PRESET, seed=0)
            start = {name: value.clone() for name, value in method.state_dict().items()}
            methods[row.job] = method, start, one_round(method, make_sampler)
        return methods[row.job]

    return get


def one_round(method, make_sampler, round_number=0):
    optimizer = make_optimizer(method)
    return train_round(
        method, make_sampler(method), optimizer, lr=0.05, epochs=1, seed=0, site="site-1", round_number=round_number
    )


@ALL_ROWS
def test_a_round_moves_the_online_encoder(row, trained, make_sampler):
    method, start, result = trained(row, make_sampler)
    assert 0 < result.loss < 20
    assert result.feature_std > 0
    for name, parameter in method.online.encoder.named_parameters():
        if name.endswith("conv.weight"):
            assert not torch.equal(parameter, start[f"online.encoder.{name}"]), name
    targets = [name for name, parameter in method.named_parameters() if not parameter.requires_grad]
    assert all(name.startswith("target.") for name in targets)


@ALL_ROWS
def test_state_is_all_a_method_remembers(row, trained, make_sampler):
    """A second round from the stored bytes equals a second round of the method itself, bit for bit."""
    method, _, _ = trained(row, make_sampler)
    stored = save({name: value.contiguous() for name, value in method.state_dict().items()})
    continued, restored = deepcopy(method), build_method(row, PRESET, seed=1)
    restored.load_state_dict(load(stored))
    for one in (continued, restored):
        one_round(one, make_sampler, round_number=1)
    states = continued.state_dict(), restored.state_dict()
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())


@ALL_ROWS
def test_what_one_site_sends_another_receives(row, trained, make_sampler):
    method, _, _ = trained(row, make_sampler)
    other = build_method(row, PRESET, seed=1)
    sent = {f.component: method.send(f.component) for f in row.flows if f.component != DISTANCE}
    other.receive({f.component: sent[f.component] for f in row.flows if f.combine == MEAN and f.component in sent})
    for flow in row.flows:
        if flow.combine == OTHERS:
            other.receive_others(flow.component, {"site-1": sent[flow.component], "site-3": sent[flow.component]})
            torch.testing.assert_close(other.remote.features, sent[flow.component]["features"].repeat(2, 1))
        elif flow.component == "online" or (flow.component in sent and row.job != "fedu"):
            received = other.send(flow.component)
            assert all(torch.equal(value, received[name]) for name, value in sent[flow.component].items())
    assert torch.isfinite(torch.tensor(one_round(other, make_sampler).loss))


@ALL_ROWS
def test_components_of_the_plan_exist_and_have_a_size_before_training(row):
    """The byte accounting reads fresh methods, so what they send must have its final shapes."""
    method = build_method(row, PRESET, seed=0)
    for flow in row.flows:
        if flow.component != DISTANCE:
            assert sum(value.numel() for value in method.send(flow.component).values()) > 0


@ALL_ROWS
def test_every_method_can_start_from_the_shipped_network(row):
    """Online and target get what they have in common with it: the encoder, and the decoder of a whole network. The
    rest, such as a projector, keeps its initial weights."""
    method, untouched = (build_method(row, PRESET, seed=0) for _ in range(2))
    method.start_from(shipped_model("acdc_unet", "demo"))
    shipped, _ = read_tensors(shipped_model("acdc_unet", "demo"))
    for component in ("online", "target") if method.has_target else ("online",):
        state, before = method.send(component), untouched.send("online")
        common = {name for name in shipped if name in state and state[name].shape == shipped[name].shape}
        assert {name for name in state if name.startswith("encoder.")} <= common
        assert method.whole_network == any(name.startswith("decoder.") for name in common)
        assert all(torch.equal(state[name], shipped[name]) for name in common)
        assert all(torch.equal(state[name], before[name]) for name in set(state) - common)
