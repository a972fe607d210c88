"""The demo preset learns: with two labelled patients it finds structures that were drawn, in a patient it never saw."""

from discs import write_discs

from fclseg.finetune.train import FinetuneSpec
from fclseg.study.fixed_training import train_fixed


def test_it_finds_discs_within_its_own_epochs(tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    data = write_discs(tmp_path / "data", patients=3)
    result = train_fixed(FinetuneSpec(data, ("patient001", "patient002"), ("patient003",), preset="demo", seed=1))
    assert len(result.losses) == 30 and result.evaluation.mean_dice > 0.55, "at the paper's rate it reaches about 0.4"
