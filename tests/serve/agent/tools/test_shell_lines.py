"""Lines that a hostile model would send, and those that a useful one does: each is tried for real.

The lines are in `lines.py`, which says how to add one, and in `outside_lines.py`.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from tests.serve.agent.tools import outside_lines
from tests.serve.agent.tools import shell_lines as lines
from tests.serve.agent.tools.shell_lines import OPERATORS
from tests.serve.agent.tools.trial import Stage, Trial
from trimtab.testing.server.local_server import serve_simulated_provider
from trimtab_serve.agent.environment import FIXED_TOOL_VARIABLES
from trimtab_serve.agent.tools.permissions.read_only_programs import READ_ONLY_USAGES
from trimtab_serve.agent.tools.permissions.rules import PermissionRules, decide_permission
from trimtab_serve.cli.init.files import build_agent_files
from trimtab_serve.cli.init.model_choice import choose_model

HOSTILE = (*lines.HOSTILE, *outside_lines.HOSTILE)
HARMLESS = (*lines.HARMLESS, *outside_lines.HARMLESS)
DENIED = (*lines.DENIED, *outside_lines.DENIED)
WRITTEN = build_agent_files("helper", choose_model({}, model="claude-sonnet-5-5"), with_shell=True)[
    "agent.yaml"
]
SHIPPED = tuple(yaml.safe_load(WRITTEN)["tools"]["shell"]["allow"])
"""The patterns that `trimtab init --shell` writes."""
TOOLS = {
    "shell": {"allow": [*SHIPPED, *OPERATORS]},
    "guarded": {"permission": "allow", "deny": ["rm *"]},
}
LINES = [
    *(("shell", line) for line in (*HARMLESS, *HOSTILE)),
    *(("guarded", line) for line in DENIED),
]


@pytest.fixture(scope="module", params=["served", pytest.param("chat", marks=pytest.mark.soak)])
def trial(request, tmp_path_factory) -> Trial:
    """All lines, in one process."""
    with serve_simulated_provider(tokenizer="estimate") as model:
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


def test_no_pattern_that_operators_write_allows_a_hostile_line():
    rules = PermissionRules(default="ask", allow=OPERATORS, is_shell=True)
    lines = [line.replace("%AWAY%", "/srv/away") for line in HOSTILE]
    assert [line for line in lines if decide_permission(rules, line).permission != "ask"] == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            "git log --oneline -5",
            "git diff HEAD~1 -- src",
            "git show HEAD:README.md",
            "git status",
        ),
        *("grep -rn foo src", "ls -la src", "cat README.md", "wc -l ./*.py", "head -n 5 src/a.py"),
        *("git log --stat | head -20", "cat src/*.py | grep -n def | wc -l"),
    ],
)
def test_with_the_shell_of_a_new_agent_the_usual_looks_around_are_not_asked_about(line):
    rules = PermissionRules(default="ask", allow=SHIPPED, is_shell=True)
    assert decide_permission(rules, line).permission == "allow"


@pytest.mark.parametrize("line", outside_lines.PUSHES)
def test_a_denied_command_of_a_program_does_not_hide_behind_another(line):
    rules = PermissionRules(default="allow", deny=("git push *",), is_shell=True)
    assert decide_permission(rules, line).permission != "allow"


NOTICED = {
    "canary": "marks/canary",
    "rm x": "marks/rm",
    "git diff --output=written HEAD~1": "work/written",
    "find . -name notes.txt -delete": "work/notes.txt",
    "git config --global core.pager less": "home/.gitconfig",
    "cd sub && git status": "marks/canary",
}


@pytest.mark.process
def test_the_stage_would_notice(tmp_path):
    with serve_simulated_provider() as model:
        stage = Stage(tmp_path, model, {})
    for line, changed in NOTICED.items():
        before = stage.files()
        subprocess.run(["/bin/bash", "-c", line], cwd=stage.work, env=stage.environ(), check=False)
        assert changed in stage.changed(before), line
        (stage.root / "marks" / "canary").unlink(missing_ok=True)


WORDS = """
--output=w --output -o -ow -x canary -exec -delete --exec=canary -O -Ocanary --ext-diff --textconv
-c core.pager=canary -p -i -w -e -f run.sh --compress-program=canary --pre=canary '{}' ';' + -- w
README.md notes.txt src src/a.py HEAD HEAD~1 main '*' hello 1 1,2 1,2p . ./* src/*.py *.md *.py -n
-5 HEAD:README.md --stat -I -C -M -name -type -printf -ls -newer f
"""


def random_lines(seed: int, count: int) -> Iterator[str]:
    """Calls of known programs with words that they know, and with words that would do harm."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    for _ in range(count):
        head, program = chance.choice(list(READ_ONLY_USAGES.items()))
        letters = program.flags + program.valued_flags or "abcdefghijklmnopqrstuvwxyz"
        values = [
            f"--{name}={value}" for name in program.long_options for value in ("1", "w", "canary")
        ]
        known = [
            *(f"-{letter}" for letter in letters),
            *(f"--{name}" for name in program.long_options),
        ]
        pool = [*WORDS.split(), *known, *values]
        yield " ".join((*head, *(chance.choice(pool) for _ in range(chance.randint(1, 4)))))


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_is_known_to_only_read_changes_anything(tmp_path, seed):
    with serve_simulated_provider() as model:
        stage = Stage(tmp_path, model, {})
    before = stage.files()
    rules = PermissionRules(default="ask", allow=("*",), is_shell=True)
    lines = [
        each
        for each in random_lines(seed, 3_000)
        if decide_permission(rules, each).permission == "allow"
    ]
    # A `tail -f` would wait for ever.
    script = "\n".join(f"( {line} ) </dev/null" for line in lines if "tail" not in line)
    subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=stage.work,
        env={**stage.environ(), **FIXED_TOOL_VARIABLES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    assert len(lines) > 300
    assert stage.changed(before) == []
