"""What a person or a tool may ask of the library when nothing else is installed.

`make test-core` runs these tests in an environment that has nothing else.
"""

from __future__ import annotations

import inspect
import pydoc
import re
from importlib import import_module

import pytest

WITHOUT_EXTRAS = (
    "trimtab",
    "trimtab.errors",
    "trimtab.events",
    "trimtab.log",
    "trimtab.models",
    "trimtab.observe",
    "trimtab.policies",
    "trimtab.summaries",
    "trimtab.types",
)
"""Packages whose names all work without an extra."""


@pytest.mark.parametrize("package", WITHOUT_EXTRAS)
def test_help_shows_every_public_name(package):
    module = import_module(package)
    text = pydoc.plain(pydoc.render_doc(module))
    assert set(module.__all__) - {"__version__"} <= set(re.findall(r"\w+", text))


@pytest.mark.parametrize("package", WITHOUT_EXTRAS)
def test_tools_list_every_member(package):
    module = import_module(package)
    members = dict(inspect.getmembers(module))
    assert [name for name in module.__all__ if name not in members] == []


@pytest.mark.parametrize("package", WITHOUT_EXTRAS)
def test_all_names_are_imported_at_once(package):
    names: dict[str, object] = {}
    exec(f"from {package} import *", names)  # noqa: S102 - a program as a user writes it
    assert set(import_module(package).__all__) <= names.keys()
