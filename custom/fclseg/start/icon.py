"""An icon that starts the page: an entry in the menu of applications, and on the desktop if there is one (Linux)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.files import write_text

ENTRY = """[Desktop Entry]
Type=Application
Name=FCLSeg
Comment=Segment and label cardiac MRI (research only)
Exec={command} start
Icon={icon}
Terminal=false
Categories=Science;MedicalSoftware;
"""


def write_icon(home: Path, command: Path | None = None) -> list[Path]:
    """Write the entries; returns their files."""
    if sys.platform != "linux":
        raise FCLSegError("icons are written on Linux only; elsewhere make a shortcut to the command 'fclseg start'")
    program = command or Path(sys.executable).with_name("fclseg")
    if not program.is_file():
        raise FCLSegError(f"{program}: there is no such program; install the package into this environment")
    text = ENTRY.format(command=_quoted(str(program)), icon=Path(__file__).parent / "page" / "icon.svg")
    share = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    places = [share / "applications", *([desktop] if (desktop := _desktop(home)).is_dir() else [])]
    written = []
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / "fclseg.desktop", text)
        (place / "fclseg.desktop").chmod(0o755)  # file managers start only what may be executed
        written.append(place / "fclseg.desktop")
    return written


def _quoted(path: str) -> str:
    """As the desktop entry specification wants it: quoted for the command line, then escaped as a value of the file."""
    escaped = "".join(f"\\{one}" if one in '"`$\\' else one for one in path)
    return f'"{escaped}"'.replace("\\", "\\\\").replace("%", "%%")


def _desktop(home: Path) -> Path:
    """The desktop has another name in other languages."""
    tool = shutil.which("xdg-user-dir")
    found = subprocess.run([tool, "DESKTOP"], capture_output=True, text=True).stdout.strip() if tool else ""
    return Path(found) if found and Path(found) != home else home / "Desktop"
