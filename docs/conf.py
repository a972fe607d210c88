"""Settings of the documentation site (``make docs``). Reference pages are generated from the code first."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_pages

from fclseg import __version__

project, author, release, version = "FCLSeg", "The FCLSeg developers", __version__, __version__
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["quickstart.ipynb"]
html_theme = "furo"
html_title = f"FCLSeg {release}"
html_show_sourcelink = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"

write_pages(Path(__file__).parent / "reference" / "generated")
