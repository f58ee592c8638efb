"""How the pages become a site: `make docs`."""

from importlib.metadata import version as installed

project = "Trimtab"
author = "the Trimtab authors"
version = release = installed("trimtab")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Trimtab"
html_static_path: list[str] = []
templates_path: list[str] = []
exclude_patterns = ["_build"]
nitpicky = True
