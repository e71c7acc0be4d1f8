"""The configuration of the documentation site, which ``make docs`` builds without a network connection."""

import importlib.metadata
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for ``reference``

# Warnings of a kernel that is compiled, and the number of threads, would make pages differ between machines.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LITERAL = re.compile(r"(`+[^`]*`+)")
"""Text between backticks, which is not changed."""

project = "dualnewton"
author = "The dualnewton developers"
release = version = importlib.metadata.version("dualnewton")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
root_doc = "index"

html_theme = "furo"
html_title = "dualnewton"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = [
    "config.cache",  # the gallery's ordering is a function, which Sphinx cannot keep between builds
    "myst.xref_missing",  # links to files of the repository outside the site; tests/test_docs.py checks them
    "misc.highlighting_failure",
]

autosummary_generate = True
autodoc_typehints = "none"  # types stand in the sections of numpydoc
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "min_reported_time": 60,
}


def escape_formulas(app, what, name, thing, options, lines):
    """Let |z| and a_{ij} in docstrings be formulas, where reStructuredText would look for a substitution or a link target."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "..")):
            parts = LITERAL.split(line)
            parts[::2] = [re.sub(r"_(?=[^\w]|$)", r"\\_", part.replace("|", "\\|")) for part in parts[::2]]
            lines[place] = "".join(parts)


def setup(app):
    """Write the index of the reference before the pages are read."""
    import reference

    app.connect("autodoc-process-docstring", escape_formulas)
    reference.write(Path(app.srcdir) / "reference.rst")
