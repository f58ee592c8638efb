"""The vectors for ports follow from the code: docs/vectors.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.golden.lists import LISTS_FILE, render_vectors

ROOT = Path(__file__).parents[2]


def test_the_lists_of_messages_are_fitted_as_the_vectors_say():
    lines = LISTS_FILE.read_text(encoding="ascii").splitlines()
    assert render_vectors() == lines, "if it is meant, run `python -m tests.golden.record`"


def test_the_program_of_the_page_runs_the_vectors(monkeypatch):
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(program, {})  # noqa: S102 - of our own page
