"""Files are scored with the labels that inference would write."""

import pytest

from fclseg.finetune import file_evaluation
from fclseg.finetune.train import FinetuneSpec, train


@pytest.mark.parametrize("refined", [True, False])
def test_files_are_segmented_as_the_config_says(phantom, monkeypatch, refined):
    asked, whole = [], file_evaluation.Segmenter
    monkeypatch.setattr(
        file_evaluation, "Segmenter", lambda *given, **how: (asked.append(how["refined"]), whole(*given, **how))[1]
    )
    spec = FinetuneSpec(phantom, ("patient001",), ("patient002",), preset="demo")
    found = train(FinetuneSpec(**{**vars(spec), "overrides": {"epochs": 1, "original_grid": True, "refined": refined}}))
    assert asked == [refined] and len(found.evaluation.rows) == 2
