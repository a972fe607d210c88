"""Settings of the documentation site (``make docs``). Reference pages are generated from the code first."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_pages

from fclseg import __version__

project, author, release, version = "FCLSeg", "The FCLSeg developers", __version__, __version__
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["quickstart.ipynb"]
html_theme = "furo"
html_title = f"FCLSeg {release}"
html_show_sourcelink = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages

OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#]+\.md)\)")


def link_files(app, docname: str, source: list[str]) -> None:
    """Markdown files outside of docs/ (README, bundles) are offered as files. A missing one is a warning."""
    page, docs = Path(app.srcdir, f"{docname}.md"), Path(app.srcdir).resolve()
    outside = lambda target: not (page.parent / target).resolve().is_relative_to(docs)  # noqa: E731
    source[0] = OUTSIDE.sub(lambda match: f"](path:{match[1]})" if outside(match[1]) else match[0], source[0])


def setup(app) -> None:
    app.connect("source-read", link_files)


write_pages(Path(__file__).parent / "reference" / "generated")
