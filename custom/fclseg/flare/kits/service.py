"""A site or a server as a systemd user service: started at boot, and restarted whenever it ends."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.files import write_text
from fclseg.flare.kits.kit import START

OUTPUT = "start.log"
"""What a party prints that was started in the background."""
UNIT = """\
[Unit]
Description=FCLSeg {name}
After=network-online.target
Wants=network-online.target

[Service]
Environment={path}
ExecStart=/bin/bash {script} --once
Restart=always
RestartSec=5
KillMode=control-group
UMask=0077
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=default.target
"""
"""``--once``, because systemd restarts it, not NVFlare's own loop. The control group ends with it, so that a training
never outlives its site."""


def search_path(rest: str = "/usr/bin:/bin") -> str:
    """The PATH for a kit's script: it calls ``python3``, and this package may be in a virtual environment."""
    return f"{Path(sys.executable).parent}{os.pathsep}{rest}"


def unit(name: str, kit: Path) -> str:
    """The unit file of a party."""
    script = _quoted(str(kit / "startup" / "sub_start.sh")).replace("$", "$$")  # not a variable
    return UNIT.format(name=name.replace("%", "%%"), script=script, path=_quoted(f"PATH={search_path()}"))


def _quoted(text: str) -> str:
    """One word of a unit file: folders may have spaces, and systemd replaces ``%h`` and the like."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def start_kit(kit: Path) -> None:
    """Start a party in the background with its kit's own script, which restarts it when it ends."""
    environment = {**os.environ, "PATH": search_path(os.environ.get("PATH", ""))}
    # Not our own output: the party would keep it open for whoever reads it. Appended, so that it can be emptied.
    with open(kit / OUTPUT, "a") as output:
        done = subprocess.run(
            ["bash", str(kit / START)],
            env=environment,
            cwd=kit,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if done.returncode:
        raise FCLSegError(f"{kit / START} ended with code {done.returncode}: {kit / OUTPUT} has the reason")


def install_service(party: str, kit: Path) -> str:
    """Write the unit of a party for this account and start it. Returns the service's name."""
    name = f"fclseg-{party}.service"
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    write_text(folder / name, unit(party, kit))
    if shutil.which("systemctl") is None:
        raise FCLSegError(f"{folder / name} was written, but this machine has no systemd: start {kit / START} instead")
    try:
        subprocess.run(["systemctl", "--user", "daemon-reload"], check=True, capture_output=True, text=True)
        subprocess.run(["systemctl", "--user", "enable", "--now", name], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise FCLSegError(
            f"{folder / name} was written, but systemd did not start it ({error.stderr.strip()}): log in as the "
            f"account that runs it, with `loginctl enable-linger` once, or start {kit / START} instead"
        ) from None
    return name
