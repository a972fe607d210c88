"""Runs behind real gates use the harness of the NVFlare tests."""

import sys
from pathlib import Path

FLARE = Path(__file__).parents[1] / "flare"
if str(FLARE) not in sys.path:
    sys.path.append(str(FLARE))
