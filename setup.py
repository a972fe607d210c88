"""Puts the top-level folders ``bundles`` and ``jobs`` into the wheel, inside the package (``fclseg/resources.py``).

Everything else about the build is in pyproject.toml, which cannot list data outside of the package.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "bundles/metadata_schema.json",
    "bundles/*/LICENSE",
    "bundles/*/configs/*",
    "bundles/*/docs/*",
    "bundles/*/models/*.safetensors",
    "bundles/*/models/*_calibration.json",
    "jobs/**/*",
)
"""The files of a bundle or a job. Of its models only the weights, not the other files of a training."""


class BuildWithResources(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # an editable install uses the folders of the checkout
            return
        root = Path(__file__).parent
        for source in sorted(path for pattern in SHIPPED for path in root.glob(pattern) if path.is_file()):
            target = Path(self.build_lib, "fclseg", source.relative_to(root))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


setup(cmdclass={"build_py": BuildWithResources})
