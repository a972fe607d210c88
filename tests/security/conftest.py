"""The attacks reuse parts of other tests: NVFlare contexts, runs in one process, parties as real processes."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in (TESTS / "flare", TESTS.parent / "poc"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
