import numpy as np
import pytest
import torch
from torch import nn

from fclseg.errors import FCLSegError
from fclseg.federation.states import check_state, is_finite, parameter_names, to_arrays, to_tensors


@pytest.fixture
def network():
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    return layers.to(memory_format=torch.channels_last)


def test_wire_format_is_contiguous_and_a_copy_and_comes_back_unchanged(network):
    arrays = to_arrays(network.state_dict())
    assert all(array.flags.c_contiguous for array in arrays.values())
    assert arrays["1.num_batches_tracked"].shape == () and isinstance(arrays["1.num_batches_tracked"], np.ndarray)
    before = {name: array.copy() for name, array in arrays.items()}
    for name, tensor in to_tensors(arrays).items():
        assert torch.equal(tensor, network.state_dict()[name]) and tensor.dtype == network.state_dict()[name].dtype
    with torch.no_grad():
        network[0].weight.add_(1)
    assert all(np.array_equal(arrays[name], before[name]) for name in arrays)


def test_read_only_arrays_become_tensors_that_can_be_written():
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    to_tensors({"w": array})["w"].add_(1)
    assert array.tolist() == [1, 1, 1]


def test_parameters_are_told_from_statistics_by_name(network):
    assert parameter_names(network.state_dict()) == [name for name, _ in network.named_parameters()]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.pop("0.bias"), r"site-3: component 'online' lacks tensor '0\.bias'"),
        (lambda s: s.update(extra=np.ones(1)), "site-3: component 'online' brings an unknown tensor 'extra'"),
        (
            lambda s: s.update({"0.bias": np.ones(5, np.float32)}),
            r"as float32 \[5\] instead of float32 \[4\]",
        ),
        (lambda s: s.update({"0.bias": np.ones(4)}), r"'0\.bias' as float64 \[4\] instead of float32 \[4\]"),
        (lambda s: s.update({"0.bias": "text"}), r"'0\.bias' as str instead of float32 \[4\]"),
        (lambda s: s["0.bias"].__setitem__(2, np.nan), r"values in tensor '0\.bias' that are not finite"),
        (lambda s: s["0.bias"].__setitem__(2, np.inf), r"values in tensor '0\.bias' that are not finite"),
    ],
)
def test_a_bad_component_is_refused_by_name(network, damage, message):
    like, state = to_arrays(network.state_dict()), to_arrays(network.state_dict())
    check_state(state, like, "site-3", "online")
    damage(state)
    with pytest.raises(FCLSegError, match=message):
        check_state(state, like, "site-3", "online")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_large_numbers_are_finite_and_a_single_other_one_is_noticed(dtype):
    large = np.full((7, 50), np.finfo(dtype).max, dtype)
    assert is_finite(large) and is_finite(-large) and is_finite(large[:0]) and is_finite(large.T)
    for value in (np.nan, np.inf, -np.inf):
        for place in ((0, 0), (3, 17), (6, 49)):
            damaged = np.linspace(-1, 1, 350, dtype=dtype).reshape(7, 50)
            damaged[place] = value
            assert not is_finite(damaged) and not is_finite(damaged.T)
