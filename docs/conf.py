"""How the pages become a site: `make docs`."""

import importlib
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from sphinx.addnodes import desc, desc_signature, pending_xref

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.contracts.definitions import find_definition, read_docstring

project = "Trimtab"
author = "the Trimtab authors"
version = release = installed("trimtab")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Trimtab"
html_baseurl = "https://trimtab.github.io/trimtab/"
html_logo = html_favicon = "static/mark.svg"
html_theme_options = {
    "source_repository": "https://github.com/trimtab/trimtab/",
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {
        "color-brand-primary": "#1f2328",
        "color-brand-content": "#0b57b0",
        "color-sidebar-link-text--top-level": "#3d444d",
        "color-sidebar-caption-text": "#59636e",
    },
    "dark_css_variables": {
        "color-brand-primary": "#f0f6fc",
        "color-brand-content": "#79b8ff",
        "color-sidebar-link-text--top-level": "#c9d1d9",
        "color-sidebar-caption-text": "#9198a1",
    },
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_extra_path = ["llms.txt"]
html_domain_indices = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
templates_path: list[str] = []
exclude_patterns = ["_build"]
nitpicky = True
# Types of other packages, and of ours that are not public, are printed and lead nowhere.
nitpick_ignore_regex = [("py:.*", ".*")]

# The pages in reference/ take their texts from docstrings.
default_role = "literal"  # what docstrings put into single backquotes
autodoc_default_options = {"members": True, "no-value": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # a function as a default would break the signature
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # or a field with a docstring would be described twice
python_use_unqualified_type_names = True
maximum_signature_line_length = 72
toc_object_entries_show_parents = "hide"

NAMES = Path(__file__).parents[1] / "tests" / "contracts" / "public_names.txt"


def find_public_names() -> dict[str, str]:
    """Map the name of each public object in the module that defines it to its public name."""
    found: dict[str, str] = {}
    for public in NAMES.read_text("utf-8").split():
        package, _, name = public.rpartition(".")
        try:
            defined = getattr(importlib.import_module(package), name)
        except ImportError:  # a framework that is not installed
            continue
        if getattr(defined, "__module__", "").startswith("trimtab") and hasattr(
            defined, "__qualname__"
        ):
            found.setdefault(f"{defined.__module__}.{defined.__qualname__}", public)
    return found


def resolve_type(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Link a type in a signature to its place in the reference, by its public name."""
    if node.get("refdomain") != "py":
        return None
    public = app.public_names.get(node.get("reftarget", ""))
    if public is None:
        return None
    domain, page = env.get_domain("py"), node["refdoc"]
    return domain.resolve_xref(env, page, app.builder, "obj", public, node, text)


def prepare_page(_app: Any, doctree: Any) -> None:
    """Correct what Sphinx makes of a page of the reference, before it lists its contents."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py":  # by the whole name: `bytes` is not `Window.bytes`
            node.attributes.pop("refspecific", None)
    for description in doctree.findall(desc):
        if description["objtype"] in ("attribute", "property"):  # a list of names stays readable
            for signature in description.findall(desc_signature):
                signature["_toc_name"] = ""


def prepare_docstring(*arguments: Any) -> None:
    """Mark what Sphinx would misread before it reads a docstring."""
    what, name, lines = arguments[1], arguments[2], arguments[-1]
    package, _, last = name.rpartition(".")
    if what == "data" and (definition := find_definition(package, last)):
        # Python keeps no docstring of an alias that another module exports.
        lines[:] = [*read_docstring(definition).split("\n"), ""]
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # or a colon in the first line would end the name of a type
        return
    marked: list[str] = []
    paragraph = ""
    for line in lines:
        is_program = line.startswith("    ") and marked[-1:] == [""] and paragraph[:1].isalnum()
        if is_program and not paragraph.endswith(":"):
            marked += ["::", ""]
        paragraph = line if line.strip() else paragraph
        marked.append(line)
    lines[:] = marked


def skip_member(*arguments: Any) -> bool | None:
    """Leave out the `__init__` that a dataclass generates: its fields follow."""
    code = getattr(arguments[3], "__code__", None)
    return True if code is not None and code.co_filename == "<string>" else None


def setup(app: Any) -> None:
    """Add what Sphinx does not do by itself."""
    app.public_names = find_public_names()
    app.connect("missing-reference", resolve_type)
    app.connect("doctree-read", prepare_page, priority=400)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)
