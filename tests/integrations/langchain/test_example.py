"""The example of a graph with thresholds runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

EXAMPLE = Path(__file__).parents[3] / "examples" / "frameworks" / "langgraph_thresholds.py"


@pytest.mark.filterwarnings("default")
def test_the_graph_stays_below_its_window_and_shows_how_full_it_is(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("Context Usage") == 4
    assert "Context summary" in printed
    last = printed.splitlines()[-1]
    assert re.fullmatch("20 turns, 40 calls, 0 refused; LangGraph keeps all 100 messages", last)
