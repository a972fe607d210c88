"""The last lines of a run name what it made, and start fine-tuning from the best of it."""

import json

import pytest

from fclseg.engine.next_step import next_steps
from fclseg.engine.run_folder import RunFolder

BOTH = {"encoders": {"": "encoder.safetensors"}, "model": "model.safetensors", "network": "model.safetensors"}
MOTION = {"encoders": {"": "encoder.safetensors"}, "network": "network.safetensors"}  # it does not segment
ALONE = {"encoders": {"a": "sites/a/encoder.safetensors", "b": "sites/b/encoder.safetensors"}}


@pytest.mark.parametrize(
    ("result", "option", "start"),
    [
        ({"encoders": {"": "encoder.safetensors"}}, "--encoder", "encoder.safetensors"),
        (BOTH, "--network", "model.safetensors"),
        (MOTION, "--encoder", "encoder.safetensors"),
        (ALONE, "--encoder", "sites/a/encoder.safetensors"),
    ],
)
def test_what_to_type_next(tmp_path, result, option, start):
    (tmp_path / "result.json").write_text(json.dumps(result))
    *made, last = next_steps(RunFolder(tmp_path))
    assert last == f"next: fclseg finetune LABELLED --out my_model {option} {tmp_path / start}"
    assert len(made) == len(result["encoders"]) + ("network" in result)
    assert made[0].endswith(f": {tmp_path / next(iter(result['encoders'].values()))}")
