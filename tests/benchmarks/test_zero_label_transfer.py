"""Merging the classes of one anatomy into those of another."""

import importlib.util
from pathlib import Path

import torch

from fclseg.anatomy.registry import ANATOMIES

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "zero_label_transfer.py"


def test_merged_probabilities_are_sums():
    spec = importlib.util.spec_from_file_location("zero_label_transfer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source, target = ANATOMIES["acdc"], ANATOMIES["hvsmr"]
    assert source.names == ("RV", "MYO", "LV") and target.names == ("MYO", "BP")
    merged = module.Merged(torch.nn.Identity(), source, target)
    logits = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    background, rv, myo, lv = logits.softmax(dim=1).unbind(dim=1)
    expected = torch.stack([background, myo, rv + lv], dim=1)
    torch.testing.assert_close(merged(logits).softmax(dim=1), expected)
    # No single class of blood is the most likely one, but both together are.
    split = torch.tensor([0.4, 0.3, 0.0, 0.3]).clamp(min=1e-6).log()[None, :, None, None]
    assert merged(split).argmax(dim=1).item() == 2
