"""`fclseg attack` on a run: figures on the screen and in a file, pictures, and a sentence where it cannot be done."""

import json

import pytest
from inprocess import InProcess

from fclseg.cli import main
from fclseg.data.sites import Splits
from fclseg.phantom.dataset import write_phantom


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs of two sites on the same four patients; the split leaves the last one out."""
    root = tmp_path_factory.mktemp("attacked")
    write_phantom(root / "data", patients=4, frames=2)
    names = sorted(path.name for path in (root / "data").iterdir() if path.is_dir())
    sites = {"site-1": names[:2], "site-2": names[2:3]}
    Splits(sites, {site: [patients[:1]] for site, patients in sites.items()}).save(root / "splits.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(root))  # training slots of its own
        patch.setenv("FCLSEG_DEVICE", "cpu")
        patch.setenv("FCLSEG_CACHE", str(root / "cache"))
        made = {
            job: InProcess(root / job, dict.fromkeys(sites, root / "data"), job, rounds=1) for job in ("fcl", "fedbyol")
        }
        for one in made.values():
            one.complete()

        def attack(kind, job, *more):
            folder = root / f"{kind}-{job}"
            given = ["--run", str(made[job].run), "--data", str(root / "data"), "--splits", str(root / "splits.json")]
            code = main(["attack", kind, *given, "--known", "site-1", "--out", str(folder), *more])
            file = folder / f"{kind}.json"
            return code, json.loads(file.read_text()) if file.exists() else None, folder

        yield attack


@pytest.mark.parametrize(
    ("kind", "job", "figures"),
    [
        ("inversion", "fcl", {"ssim", "psnr", "guess_ssim", "ssim_error", "better_than_guess", "vectors"}),
        ("reidentify", "fcl", {"top_1", "top_1_error", "chance"}),
        ("membership", "fedbyol", {"auc_patients", "auc_slices"}),
        ("update", "fedbyol", {"ssim", "psnr", "guess_ssim", "guess_psnr", "better_than_guess", "updates"}),
    ],
)
def test_each_attack_writes_its_figures(run, kind, job, figures, capsys):
    code, found, folder = run(kind, job, "--protect", "feature_noise=0.5")
    assert code == 0 and figures <= set(found) and found["protections"] == {"feature_noise": 0.5}
    shown = capsys.readouterr().out
    assert all(name in shown for name in figures)
    assert [path.name for path in folder.glob("*.png")] == ([f"{kind}.png"] if "ssim" in figures else [])


def test_what_cannot_be_attacked_is_said_in_a_sentence(run, capsys):
    assert run("inversion", "fedbyol")[0] == 1
    assert "job 'fedbyol' sends no features, so there is nothing to attack" in capsys.readouterr().err
    assert run("inversion", "fcl", "--protect", "blur=1")[0] == 1
    assert "there is no protection 'blur'" in capsys.readouterr().err
    assert run("inversion", "fcl", "--known", "site-9")[0] == 1
    assert "the split has no site 'site-9'" in capsys.readouterr().err
