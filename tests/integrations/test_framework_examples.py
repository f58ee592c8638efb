"""The examples of frameworks are known, short and offline. `make thorough-frameworks` runs them."""

from __future__ import annotations

import pytest

from tests.integrations.newest import EXAMPLE_FOLDER, LAST_LINES

README = (EXAMPLE_FOLDER.parent / "README.md").read_text(encoding="utf-8")


def test_each_example_is_run_and_named_in_the_readme():
    programs = {path.name for path in EXAMPLE_FOLDER.glob("*.py")}
    # The tests of the module for LangChain run the graph.
    assert programs == {*LAST_LINES, "langgraph_thresholds.py"}
    assert [name for name in sorted(programs) if f"(frameworks/{name})" not in README] == []


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_says_what_it_needs(name):
    text = (EXAMPLE_FOLDER / name).read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert "Needs: pip install 'trimtab[testing]'" in text
    assert len(text.splitlines()) <= 200
