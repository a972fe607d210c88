"""Typing errors give one sentence and exit code 1, not a traceback."""

import pytest

from fclseg.cli import main
from fclseg.cli.options import parse_value


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--labels", "1,x"], "--labels must be whole numbers separated by commas, for example 1,2,4, not '1,x'"),
        (["--labels=-1,2"], "--labels must not be negative, but is -1"),
        (["--mode", "half"], "there is no mode 'half': choose full, frozen or full,frozen"),
        (["--methods", "byol"], "there is no method 'byol'"),
        (["--methods", "finetune_federated"], "there is no method 'finetune_federated'"),
        (["--set", "rounds"], "--set rounds is not of the form NAME=VALUE"),
        (["--set", "colour=3"], "has no setting 'colour'"),
        (["--set", "finetuning.epochs=many"], "'finetuning.epochs' cannot be 'many'"),
        (["--data", "/nowhere"], "/nowhere: there is no such folder"),
        (["--splits", "splits.json"], "--splits needs the data folder it was made for: give --data as well"),
        (["--job-set", "fraction"], "--job-set fraction is not of the form NAME=VALUE"),
        (["--job-set", "seed=3"], "--job-set cannot set 'seed': choose from perturb, "),
        (["--job-set", "fraction=2"], "'fraction' cannot be 2"),
        (["--job-set", "network=n.safetensors"], "--job-set network can only be shipped"),
        (["--filter", "os.system:command=ls"], "there is no filter 'os.system': give a class of fclseg.flare.filters"),
        (
            ["--filter", "fclseg.flare.filters.nowhere.Filter"],
            "there is no filter 'fclseg.flare.filters.nowhere.Filter'",
        ),
        (
            ["--filter", "fclseg.flare.filters.Path:x=1"],
            "there is no filter 'fclseg.flare.filters.Path'",
        ),
        (["--filter", "fclseg.flare.filters.ClipAndNoise:sigma=1"], "ClipAndNoise needs 'clip'"),
        (["--filter", "fclseg.flare.filters.ClipAndNoise:clip=1,size=1"], "has no argument 'size'"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, capsys, tmp_path):
    assert main(["study", "local", "--preset", "demo", "--out", str(tmp_path), *arguments]) == 1
    text = capsys.readouterr().err
    assert sentence in text and text.startswith("fclseg: ") and text.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_unknown_table_is_refused_with_the_list(capsys):
    with pytest.raises(SystemExit):
        main(["study", "locale"])
    assert "learning-rate" in capsys.readouterr().err


def test_report_of_a_folder_without_results(capsys, tmp_path):
    assert main(["report", str(tmp_path)]) == 1
    assert "contains neither a study (study.json) nor a run (rounds.jsonl)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("0.5", 0.5), ("8,16", (8, 16)), ("adamw", "adamw"), ("true", True)]
)
def test_preset_values_from_the_command_line(text, value):
    assert parse_value(text) == value
