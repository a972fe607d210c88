import pytest
import torch

from fclseg.errors import FCLSegError
from fclseg.methods.exchange import DISTANCE, OTHERS, ROWS, Flow, Row
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset

PRESET = get_preset("demo")


@pytest.mark.parametrize("job", ROWS)
def test_every_row_can_send_what_its_plan_says_from_weights_of_the_seed(job):
    method, same, other = (build_method(job, PRESET, seed) for seed in (0, 0, 1))
    for flow in ROWS[job].flows:
        if flow.component == DISTANCE:
            continue
        sent = method.send(flow.component)
        assert sent
        for name, value in same.send(flow.component).items():
            assert torch.equal(value, sent[name])
        if flow.combine != OTHERS:
            method.receive({flow.component: other.send(flow.component)})
            assert all(torch.equal(method.send(flow.component)[n], v) for n, v in other.send(flow.component).items())
    assert any(not torch.equal(v, other.state_dict()[n]) for n, v in same.state_dict().items())


@pytest.mark.parametrize("job", ROWS)
def test_a_method_says_whether_it_has_a_target(job):
    method = build_method(job, PRESET, 0)
    assert method.has_target == hasattr(method, "target") == type(method).has_target


def test_building_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build_method("fclopt", PRESET, 0)
    assert torch.equal(torch.rand(3), expected)


def test_settings_of_a_row_reach_the_method():
    row = Row("mine", "Mine", "fedu:FedU", (Flow("online"),), {"threshold": 0.5})
    assert build_method(row, PRESET, 0).threshold == 0.5


def test_unknown_job_and_method_are_named():
    with pytest.raises(FCLSegError, match=r"no job 'fclop': choose one of .*fclopt"):
        build_method("fclop", PRESET, 0)
    with pytest.raises(FCLSegError, match="job 'x' names method 'byol:Bool'"):
        build_method(Row("x", "X", "byol:Bool", ()), PRESET, 0)
