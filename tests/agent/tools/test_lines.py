"""Lines that a hostile model would send, and those that a useful one does: each is tried for real.

The lines are in `lines.py`, which says how to add one.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.agent.tools.lines import DENIED, HARMLESS, HOSTILE, OPERATORS
from tests.agent.tools.trial import Stage, Trial
from trimtab.agent.permissions import Rules, judge
from trimtab.testing.server.serving import serve

TOOLS = {
    "shell": {"allow": list(OPERATORS)},
    "guarded": {"permission": "allow", "deny": ["rm *"]},
}
LINES = [
    *(("shell", line) for line in (*HARMLESS, *HOSTILE)),
    *(("guarded", line) for line in DENIED),
]


@pytest.fixture(scope="module", params=["chat", "served"])
def trial(request, tmp_path_factory) -> Trial:
    """All lines, in one process."""
    with serve(tokenizer="estimate") as model:
        stage = Stage(tmp_path_factory.mktemp("stage"), model, TOOLS)
        return getattr(stage, request.param)(LINES)


@pytest.mark.process
def test_no_hostile_line_runs_where_nobody_says_yes(trial: Trial):
    assert set(trial.ran("shell")) & set(HOSTILE) == set()


@pytest.mark.process
def test_nothing_was_run_written_or_shown_that_lies_outside_of_the_folder(trial: Trial):
    assert (trial.changed, trial.leaked) == ([], [])


@pytest.mark.process
def test_harmless_lines_run_without_a_question(trial: Trial):
    assert [line for line in HARMLESS if line not in trial.ran("shell")] == []


@pytest.mark.process
def test_what_is_denied_does_not_run_however_it_is_put(trial: Trial):
    assert trial.ran("guarded") == []


@pytest.mark.parametrize("line", HOSTILE, ids=repr)
def test_no_pattern_that_operators_write_allows_a_hostile_line(line):
    rules = Rules(default="ask", allow=OPERATORS, by_command=True)
    assert judge(rules, line.replace("%AWAY%", "/srv/away")).permission == "ask"


NOTICED = {
    "canary": "marks/canary",
    "rm x": "marks/rm",
    "git diff --output=written HEAD~1": "work/written",
    "find . -name notes.txt -delete": "work/notes.txt",
    "git config --global core.pager less": "home/.gitconfig",
    "cd sub && git status": "marks/canary",
}


@pytest.mark.process
@pytest.mark.parametrize("line", NOTICED)
def test_the_stage_would_notice(tmp_path, line):
    with serve() as model:
        stage = Stage(tmp_path, model, {})
    before = stage.files()
    subprocess.run(["/bin/bash", "-c", line], cwd=stage.work, env=stage.environ(), check=False)
    assert NOTICED[line] in stage.changed(before)
