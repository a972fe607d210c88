"""NVFlare's recipes over the same job generator: one description of a run for simulator, POC and hospitals.

from nvflare.recipe import PocEnv, ProdEnv, SimEnv
from fclseg.flare.recipe import PretrainRecipe

recipe = PretrainRecipe("fclopt_dp", preset="demo", rounds=3)
recipe.execute(SimEnv(num_clients=2, workspace_root="simulation"))          # on this machine, with a phantom
recipe.execute(PocEnv(num_clients=2))        # on this machine, as real processes, with the images in FCLSEG_DATA
recipe.execute(ProdEnv(startup_kit_location=KIT, username="lead@coordinator.org"))       # at the hospitals
"""

import json
from pathlib import Path
from typing import Any

import yaml
from nvflare.apis.job_def import ALL_SITES
from nvflare.job_config.api import FedJob
from nvflare.job_config.fed_job_config import FedJobConfig
from nvflare.recipe.poc_env import PocEnv
from nvflare.recipe.sim_env import SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fclseg.engine.job_defaults import completed
from fclseg.engine.run_settings import RunSettings
from fclseg.files import write_text
from fclseg.flare.classes import SERVER_CLASSES, SITE_CLASSES, resources
from fclseg.flare.jobs import write_job
from fclseg.flare.kits.project import STORE, describe_project
from fclseg.methods.exchange import Row, get_row

POC_HOST, POC_PORT, POC_USER = "localhost", 8102, "admin@coordinator.org"
"""As in ``project.yml``."""


class GeneratedConfig(FedJobConfig):
    """Files from our generator. They contain configuration only, so hospitals need not allow foreign code."""

    def __init__(self, row: Row, settings: dict[str, Any]):
        super().__init__(row.job, settings.get("min_sites", 1))
        self._row, self._settings = row, settings

    def generate_job_config(self, job_root: str) -> None:
        folder = Path(job_root) / self.job_name
        write_job(folder, self._row, self._settings, simulator=False)
        meta = json.loads((folder / "meta.json").read_text()) | {"min_clients": self.min_clients}
        write_text(folder / "meta.json", json.dumps(meta, indent=2) + "\n")


class GeneratedJob(FedJob):
    """A job that NVFlare's environments can export, simulate and submit."""

    def __init__(self, row: Row, settings: dict[str, Any]):
        super().__init__(name=row.job)
        self.job = GeneratedConfig(row, settings)
        self.clients = [ALL_SITES]

    def _set_all_apps(self) -> None:
        """There is nothing to collect: the generator writes all files."""


class PretrainRecipe(Recipe):
    """A run of one job. ``settings`` are those of a job: preset, rounds, seed, run, min_sites, codec, ..."""

    def __init__(self, job: str, **settings: Any):
        row = get_row(job)
        chosen = completed(row, {"preset": "demo"} | settings)
        self.settings = RunSettings.read({"job": job, **chosen}, {})  # an invalid setting is refused here, not later
        generated = GeneratedJob(row, chosen)
        self._config, self._fewest = generated.job, generated.job.min_clients
        super().__init__(generated)

    def process_env(self, env: ExecEnv) -> None:
        """A simulation gets the allow-list of classes that hospitals have. NVFlare's proof of concept gets our kits, in
        which one person may do everything.

        It starts all its sites and waits for none. The job does, because a site that joins a run later ends the job and
        continues the run with another one, which NVFlare's recipes do not follow.
        """
        if isinstance(env, SimEnv):
            allowed = json.dumps(resources(SERVER_CLASSES + SITE_CLASSES))
            write_text(Path(env.workspace_root) / self.name / "local" / "resources.json", allowed)
        self._config.min_clients = self._fewest  # a recipe can be executed in several environments
        if isinstance(env, PocEnv):
            workspace = Path(env.poc_workspace).absolute()
            path = workspace.with_name(f"{workspace.name}-project.yml")
            if env.project_conf_path and env.project_conf_path != str(path):
                return
            sites = env.clients or [f"site-{number + 1}" for number in range(env.num_clients)]
            project = describe_project(POC_HOST, sites, POC_PORT, workspace / STORE, alone=True)
            write_text(path, yaml.safe_dump(project, sort_keys=False))
            env.project_conf_path, env.username = str(path), POC_USER
            self._config.min_clients = len(sites)
