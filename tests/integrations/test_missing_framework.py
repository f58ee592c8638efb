"""A framework's module where the framework is not installed."""

from __future__ import annotations

import importlib
import re
import sys

import pytest


@pytest.mark.parametrize(
    ("extra", "package"),
    [("langchain", "langchain"), ("pydantic-ai", "pydantic_ai"), ("openai-agents", "agents")],
)
def test_the_import_says_what_to_install(extra, package, monkeypatch):
    module = f"trimtab.integrations.{extra.replace('-', '_')}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=re.escape(f"pip install 'trimtab[{extra}]'")):
        importlib.import_module(module)
