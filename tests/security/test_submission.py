"""What a party of our kits refuses when a job arrives: at submission on the server, and again at each site."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.fl_constant import SiteType
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.fuel.utils.zip_utils import zip_directory_to_file
from nvflare.private.fed.app.fl_app_validator import FLAppValidator
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

from fclseg.flare.kits.inspection import CodeFree, check_submissions
from fclseg.flare.wire import SIMULATED_JOB

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture
def job(tmp_path):
    shutil.copytree(JOBS / "fclopt_dp", tmp_path / "fclopt_dp")
    return tmp_path / "fclopt_dp"


@pytest.fixture
def submit(monkeypatch):
    """NVFlare's own validator in a server with our kit: it gets the path of the uploaded archive."""
    monkeypatch.setattr(JobMetaValidator, "validate", JobMetaValidator.validate)
    check_submissions()
    check_submissions()  # once is enough

    def submit(folder):
        archive = folder.with_suffix(".zip")
        zip_directory_to_file(str(folder.parent), folder.name, str(archive))
        return JobMetaValidator().validate(folder.name, str(archive))

    return submit


def at_a_site(job, site_type=SiteType.CLIENT):
    """What NVFlare concludes about an unpacked app: an error, and whether it brings code."""
    error, info = FLAppValidator(site_type, [CodeFree()]).validate(str(job / "app"))
    return error, info.get(AppValidationKey.BYOC)


def edit(job, change, name="client"):
    path = job / "app" / "config" / f"config_fed_{name}.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def hidden(where):
    """The site's configuration under another name that NVFlare finds, with a class and a reference in it."""

    def change(job):
        edit(job, lambda d: d["components"].append({"id": "{$HOME}", "path": "os.system"}))
        path = job / "app" / where
        path.parent.mkdir(exist_ok=True)
        (job / "app/config/config_fed_client.json").rename(path)
        found = ConfigFactory.search_config_format("config_fed_client.json", [str(job / "app" / "config")])[1]
        assert found == str(path), "NVFlare does not read it: no attack"

    return change


def settings(**values):
    return lambda job: edit(job, lambda d: d["workflows"][0]["args"]["settings"].update(values), "server")


def component(**values):
    return lambda job: edit(job, lambda d: d["components"].append({"id": "x", **values}))


def meta(**values):
    def change(job):
        path = job / "meta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def moved_meta(job):
    meta(launcher_spec={"default": {"docker": {"image": "evil"}}})(job)
    (job / "meta.json").rename(job / "meta.conf")


@pytest.mark.parametrize("name", sorted(path.name for path in JOBS.iterdir() if path.is_dir()))
def test_every_committed_job_is_accepted_and_brings_no_code(submit, tmp_path, name):
    shutil.copytree(JOBS / name, tmp_path / name)
    for folder in ("", "app", "app/config", "app/custom"):  # as `nvflare job submit` signs them
        for signature in (".__nvfl_sig.json", ".__nvfl_submitter.crt"):
            (tmp_path / name / folder / signature).write_text("{}")
    valid, error, found = submit(tmp_path / name)
    assert (valid, error) == (True, "") and not found.get(AppValidationKey.BYOC)
    assert at_a_site(tmp_path / name) == ("", False) == at_a_site(tmp_path / name, SiteType.SERVER)


IN_THE_APP = {
    "a module": (lambda job: (job / "app/custom/evil.py").write_text("x"), "brings code (custom/evil.py)"),
    "a hidden module": (lambda job: (job / "app/custom/.evil.so").write_text("x"), "brings code (custom/.evil.so)"),
    "another note": (lambda job: (job / "app/custom/README.md").write_text("x"), "brings code (custom/README.md)"),
    "a package": (
        lambda job: ((job / "app/custom/a").mkdir(), (job / "app/custom/a/README.md").write_text("x")),
        "brings code (custom/a/README.md)",
    ),
    "an environment variable": (settings(run="leak-{$WANDB_API_KEY}"), "contains a reference (leak-{$WANDB_API_KEY})"),
    "a variable's attribute": (settings(run="{run.__class__}"), "contains a reference"),
    "a secret": (settings(run="${secret:key}"), "contains a reference"),
    "a reference in a name": (lambda job: edit(job, lambda d: d.update({"{$HOME}": 1})), "contains a reference"),
    "a class": (component(path="os.system", args={"command": "id"}), "names the class os.system"),
    "a class without arguments": (component(path="fclseg.cli.main"), "names the class fclseg.cli.main"),
    "a class under its other key": (component(class_path="os.system"), "names the class os.system"),
    "a class by its short name": (component(name="JobLogStreamer"), "names the class JobLogStreamer"),
    "a log streamer": (
        component(path="nvflare.app_common.logging.job_log_streamer.JobLogStreamer", args={}),
        "names the class nvflare.app_common.logging.job_log_streamer.JobLogStreamer",
    ),
    "a default": (
        hidden("config/config_fed_client.json.default"),
        "contains config/config_fed_client.json.default, which no job of fclseg has",
    ),
    "YAML": (
        lambda job: (job / "app/config/config_fed_client.yml").write_text("a: ${env:X}"),
        "contains config/config_fed_client.yml, which",
    ),
    "settings of logging": (
        lambda job: (job / "app/config/log_config.json").write_text('{"handlers": {"x": {"()": "os.system"}}}'),
        "contains config/log_config.json, which",
    ),
}
IN_THE_JOB = {
    "a wrong setting": (settings(fraction=2.0), "'fraction' cannot be 2.0"),
    "a run name that is a path": (settings(run="../../x"), "not a valid run name"),
    "no settings": (lambda job: edit(job, lambda d: d.update(workflows=[]), "server"), "no settings of an FCLSeg run"),
    "a container": (meta(launcher_spec={"default": {"docker": {"image": "evil"}}}), "how a party starts its processes"),
    "the id of a simulation": (meta(job_id=SIMULATED_JOB), "chooses its own id"),
    "a container in another file": (moved_meta, "contains fclopt_dp/meta.conf, which"),
    "too large": (lambda job: (job / "app/config/x.bin").write_bytes(bytes(11 * 2**20)), "more than 10 MB"),
}


@pytest.mark.parametrize("attack", [*IN_THE_APP, *IN_THE_JOB])
def test_a_job_that_must_be_refused_is_refused_at_submission_with_a_sentence(submit, job, attack):
    change, complaint = (IN_THE_APP | IN_THE_JOB)[attack]
    change(job)
    valid, error, _ = submit(job)
    assert not valid and complaint in error and "\n" not in error and len(error) < 400


@pytest.mark.parametrize("attack", list(IN_THE_APP))
def test_a_site_refuses_it_too_without_trusting_the_server(job, attack):
    change, complaint = IN_THE_APP[attack]
    change(job)
    error, _ = at_a_site(job)
    assert complaint in error


def test_a_site_refuses_a_configuration_in_a_folder_below(job):
    """NVFlare would find it there, too. At submission it says itself that the configuration is missing."""
    hidden("config/below/config_fed_client.json")(job)
    assert "contains config/below/config_fed_client.json, which" in at_a_site(job)[0]


def test_links_are_refused_in_the_archive_and_on_the_disk(submit, job):
    """NVFlare's own command follows links; an attacker writes the archive by hand."""
    archive = job.with_suffix(".zip")
    zip_directory_to_file(str(job.parent), job.name, str(archive))
    with zipfile.ZipFile(archive, "a") as files:
        link = zipfile.ZipInfo("fclopt_dp/app/config/secret.json")
        link.external_attr = 0o120777 << 16
        files.writestr(link, "/etc/passwd")
    valid, error, _ = JobMetaValidator().validate(job.name, str(archive))
    assert not valid and "contains a link (config/secret.json)" in error
    os.symlink("/etc/passwd", job / "app" / "config" / "secret.json")
    assert "contains a link" in at_a_site(job)[0]
    with zipfile.ZipFile(archive, "a") as files:
        files.writestr("../outside.txt", "x")
    assert "archive contains ../outside.txt" in JobMetaValidator().validate(job.name, str(archive))[1]
