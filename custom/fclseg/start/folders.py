"""What a person can choose on the start page: folders of this machine, and files that are exams by themselves."""

from pathlib import Path
from typing import Any

from fclseg.errors import FCLSegError

EXAMS = (".nii", ".nii.gz", ".zip", ".dcm")


def listing(path: Path) -> dict[str, Any]:
    """The folders and exams in a folder. Hidden ones are left out."""
    folder = path.expanduser().absolute()
    try:
        entries = sorted((one for one in folder.iterdir() if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError as error:
        raise FCLSegError(f"{folder}: {error.strerror}; choose another folder") from None
    files = [one.name for one in entries if one.is_file()]
    return {
        "path": str(folder),
        "parents": [{"name": one.name or str(one), "path": str(one)} for one in (*reversed(folder.parents), folder)],
        "folders": [one.name for one in entries if one.is_dir()],
        "exams": [name for name in files if name.lower().endswith(EXAMS)],
        "files": len(files),
    }


def beside(source: Path, word: str) -> Path:
    """Where results go unless the person says otherwise: next to the source, and never inside of it."""
    name = next((source.name[: -len(end)] for end in EXAMS[::-1] if source.name.lower().endswith(end)), source.name)
    return source.with_name(f"{name}_{word}")
