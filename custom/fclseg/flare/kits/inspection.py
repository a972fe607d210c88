"""What a party of our kits does not run: jobs with code, other classes, references or links. Checked at submission.

Every kit contains ``CodeFree``, so each hospital checks for itself. The server's kit contains ``Submissions`` and
checks a job when it is submitted, so that the lead gets the reason in one sentence instead of a failed job.
"""

import functools
import json
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from nvflare.apis.app_validation import AppValidationKey, AppValidator
from nvflare.apis.fl_component import FLComponent
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

from fclseg.documents import UNUSABLE, parse_json
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.classes import CUSTOM, NO_CODE, NOTE, SERVER_CLASSES, SITE_CLASSES
from fclseg.flare.references import check_references
from fclseg.text import one_line

CONFIGS = {"config/config_fed_server.json": SERVER_CLASSES, "config/config_fed_client.json": SITE_CLASSES}
"""The configurations of an app, and the classes that each may name."""
CODE, META = PurePosixPath(CUSTOM).name, "meta.json"
SIGNATURES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
"""Files that ``nvflare job submit`` adds to every folder. Python imports neither."""
MOST_BYTES = 10 * 2**20
"""Of a job, unpacked. Ours have 10 kB."""


class Submissions(FLComponent):
    """In the kit of the server: jobs are checked when they are submitted."""

    def __init__(self) -> None:
        super().__init__()
        check_submissions()


class CodeFree(AppValidator):
    """In the kits of sites and servers: a job whose code folder contains only our note brings no code."""

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        try:
            contents = {
                str(path.relative_to(app_folder)): None if path.is_symlink() else path.read_bytes()
                for path in sorted(Path(app_folder).rglob("*"))
                if path.is_symlink() or not path.is_dir()
            }
            check_app(contents)
        except FCLSegError as error:
            return one_line(error), {}
        return "", {AppValidationKey.BYOC: False}


def check_app(contents: Mapping[str, bytes | None]) -> None:
    """Refuse an app by the names and contents of its files; None stands for a link."""
    for name, content in contents.items():
        path = PurePosixPath(name)
        if content is None:
            raise FCLSegError(f"the job contains a link ({one_line(name)}): submit the file itself")
        if path.name in SIGNATURES:
            continue
        if path.parts[0] == CODE:
            if path.parts != (CODE, NOTE) or content != NO_CODE.encode():
                raise FCLSegError(
                    f"the job brings code ({one_line(name)}), which this federation does not run: submit a job of "
                    "fclseg without code of its own"
                )
        elif str(path) not in CONFIGS:  # NVFlare would find a configuration of another ending or folder, too
            raise FCLSegError(f"the job contains {one_line(name)}, which no job of fclseg has: leave it out")
        else:
            check_config(parse_json(content.decode(errors="replace"), one_line(name)), CONFIGS[str(path)])


def check_config(document: object, classes: Iterable[str]) -> None:
    """Refuse references, which NVFlare would replace by variables of the party's environment, and other classes."""
    check_references(document)
    for entry in _entries(document):
        for named in (entry[key] for key in ("path", "class_path", "name") if key in entry):
            if named not in classes:
                raise FCLSegError(
                    f"the job names the class {one_line(named)}, which this federation does not run: leave it out"
                )


def _entries(document: object) -> Iterator[Mapping[str, Any]]:
    """All objects of a document, at any depth."""
    if isinstance(document, Mapping):
        yield document
        document = list(document.values())
    for value in document if isinstance(document, list) else []:
        yield from _entries(value)


def check_archive(archive: zipfile.ZipFile, job: str) -> None:
    """Refuse a submitted job before it is stored."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if sum(info.file_size for info in infos) > MOST_BYTES:
        raise FCLSegError(f"the job has more than {MOST_BYTES // 2**20} MB: a job of fclseg is configuration only")
    apps: dict[str, dict[str, bytes | None]] = {}
    for info in infos:
        parts = PurePosixPath(info.filename).parts
        if parts[0] != job or ".." in parts or "\\" in info.filename:
            raise FCLSegError(f"the job's archive contains {one_line(info.filename)}: submit the job's folder")
        if len(parts) > 2:
            linked = stat.S_ISLNK(info.external_attr >> 16)
            apps.setdefault(parts[1], {})["/".join(parts[2:])] = None if linked else archive.read(info)
        elif parts[1:] == (META,):
            _check_meta(parse_json(archive.read(info).decode(errors="replace"), META))
        elif parts[-1] not in SIGNATURES:  # NVFlare also reads meta.conf and others
            raise FCLSegError(f"the job contains {one_line(info.filename)}, which no job of fclseg has: leave it out")
    for contents in apps.values():
        check_app(contents)
        _check_settings(contents.get("config/config_fed_server.json"))


def _check_meta(meta: object) -> None:
    if not isinstance(meta, Mapping):
        raise FCLSegError("the job's meta.json is not an object: submit a job of fclseg")
    if meta.get("launcher_spec") or any(spec for spec in (meta.get("resource_spec") or {}).values()):
        raise FCLSegError("the job chooses how a party starts its processes: leave out launcher_spec and resource_spec")
    if "job_id" in meta:  # by the simulator's id the server would take the run for a simulation
        raise FCLSegError("the job chooses its own id: leave out job_id")


def _check_settings(content: bytes | None) -> None:
    """The run's settings are checked before the job waits for its sites."""
    try:
        settings = json.loads(content or b"")["workflows"][0]["args"]["settings"]
    except UNUSABLE:
        raise FCLSegError("the job has no settings of an FCLSeg run: submit a job of fclseg") from None
    RunSettings.read(settings, {})


def check_submissions() -> None:
    """Make this server's process refuse jobs at submission. NVFlare calls its validator then, and nowhere else."""
    original = JobMetaValidator.validate
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def validate(self: JobMetaValidator, job_name: str, job_data: Any) -> tuple[bool, str, dict[str, Any]]:
        valid, error, meta = original(self, job_name, job_data)
        if valid:
            try:
                with zipfile.ZipFile(job_data) as archive:
                    check_archive(archive, job_name)
            except (FCLSegError, OSError, zipfile.BadZipFile, *UNUSABLE) as refusal:
                return False, one_line(refusal), meta
            meta.pop(AppValidationKey.BYOC, None)
        return valid, error, meta

    JobMetaValidator.validate = validate
