"""State files and a site's memory: complete or refused, and a repeated round starts from the same state."""

import pytest
import torch

from fclseg.engine.memory import SiteMemory, SiteState
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.state_files import KEPT_CHECKPOINTS, StateError, read_state, write_state
from fclseg.methods.exchange import get_row
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset


def _state(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"method": {"a.weight": torch.full((3, 4), value), "a.count": torch.tensor(7)}, "optimizer": {}}


def test_a_state_file_comes_back_as_it_was(tmp_path):
    path = tmp_path / "state.safetensors"
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    write_state(path, {"a": {"x": channels_last, "n": torch.tensor(3)}, "b": {"y": torch.zeros(0)}}, {"round": 4})
    states, info = read_state(path)
    assert info == {"round": 4}
    assert torch.equal(states["a"]["x"], channels_last) and states["a"]["n"].shape == ()
    assert states["b"]["y"].numel() == 0


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.99])
def test_one_flipped_bit_anywhere_is_refused(tmp_path, where):
    path = tmp_path / "state.safetensors"
    write_state(path, _state(1.5), {"round": 1})
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(StateError, match="is not used"):
        read_state(path)


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_half_a_file_is_refused(tmp_path, kept):
    path = tmp_path / "state.safetensors"
    write_state(path, _state(1.5), {"round": 1})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StateError, match=r"state\.safetensors"):
        read_state(path)


def _memory(folder, run_id="run", rounds=()):
    memory = SiteMemory(folder, run_id)
    for number in rounds:
        memory.save(SiteState(number, _state(float(number))["method"], {}))
    return memory


def test_a_round_starts_from_the_newest_state_before_it(tmp_path):
    memory = _memory(tmp_path, rounds=(0, 1, 4))
    assert memory.load_before(9).round_number == 4
    assert memory.load_before(4).round_number == 1  # the server died in round 4 and asks for it again
    assert memory.load_before(4).component("a")["weight"][0, 0] == 1.0
    assert memory.load_before(1).round_number == 0 and memory.load_before(0) is None


def test_a_server_that_goes_back_to_its_oldest_checkpoint_finds_the_sites_states(tmp_path):
    rounds = 9
    memory = _memory(tmp_path, rounds=range(rounds))  # the last one while the server died in that round
    oldest = rounds - 1 - KEPT_CHECKPOINTS  # the round after which the server wrote it
    assert memory.load_before(oldest + 1).round_number == oldest
    assert len(list(tmp_path.glob("round-*"))) == KEPT_CHECKPOINTS + 1
    with pytest.raises(StateError, match=rf"no state from before round {oldest}: restore a backup"):
        memory.load_before(oldest)
    memory.save(SiteState(oldest + 1, _state(0.0)["method"], {}))  # which drops the states of later rounds
    with pytest.raises(StateError, match="no state from before"):
        memory.load_before(oldest)
    assert memory.load_before(0) is None  # where every site starts from scratch


def test_the_first_round_of_a_site_that_joined_late_can_be_repeated(tmp_path):
    memory = _memory(tmp_path, rounds=(5,))
    assert memory.load_before(5) is None
    memory.save(SiteState(5, _state(0.0)["method"], {}))
    assert memory.load_before(5) is None and memory.load_before(6).round_number == 5


def test_state_of_a_run_that_was_started_over_is_not_used(tmp_path):
    _memory(tmp_path, "old", rounds=(2, 3))
    assert _memory(tmp_path, "new").load_before(9) is None


def test_a_run_that_was_started_over_keeps_its_own_states(tmp_path):
    _memory(tmp_path, "old", rounds=(8, 9))
    again = _memory(tmp_path, "new", rounds=(0, 1))
    assert again.load_before(1).round_number == 0 and again.load_before(2).round_number == 1
    assert len(list(tmp_path.glob("round-*"))) == 2


def test_a_component_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StateError, match="'target'"):
        _memory(tmp_path, rounds=(0,)).load_before(1).component("target")


def test_the_global_network_is_recalled_in_its_round_only(tmp_path):
    memory = _memory(tmp_path)
    assert memory.recall_global(0) == {}
    memory.keep_global(3, {"online": {"w": torch.ones(2)}})
    assert torch.equal(memory.recall_global(3)["online"]["w"], torch.ones(2))
    assert memory.recall_global(4) == {}
    assert SiteMemory(tmp_path, "another").recall_global(3) == {}


def _damage(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_an_older_intact_state_is_used_by_itself_and_said(tmp_path, caplog):
    memory = _memory(tmp_path, rounds=(0, 1, 2))
    _damage(tmp_path / "round-0002.safetensors")
    assert memory.load_before(3).round_number == 1
    assert "fails its checksum" in caplog.text and "continues with its state of round 2" in caplog.text
    (tmp_path / "round-0001.safetensors").write_bytes(b"")  # cut off
    assert memory.load_before(3).round_number == 0
    _damage(tmp_path / "round-0000.safetensors")
    with pytest.raises(StateError, match="delete it or restore a backup"):  # nothing intact is left
        memory.load_before(3)


def test_an_older_intact_checkpoint_is_used_by_itself_and_said(tmp_path, caplog):
    row = get_row("fedbyol")
    initial = GlobalModel.initial(row, build_method(row, get_preset("demo", channels=(2, 4), hidden=4), 0))
    folder = RunFolder(tmp_path)
    for number in (1, 2):
        initial.next_round = number
        folder.save(initial, {"round": number - 1})
    _damage(tmp_path / "checkpoints" / "round-0001.safetensors")
    assert folder.load(initial).next_round == 1 and [line["round"] for line in folder.rounds()] == [0]
    assert "the run continues from the checkpoint before it" in caplog.text
    _damage(tmp_path / "checkpoints" / "round-0000.safetensors")
    with pytest.raises(StateError, match="fails its checksum"):
        folder.load(initial)
