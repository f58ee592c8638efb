"""What a hostile model, a hostile tool server or a hostile file may try."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.attacks.target import PROVIDER_KEY, Target, attacked
from tests.cli.running import trimtab
from tests.serve.agent.tools.shell_lines import OPERATORS
from tests.serve.process.processes import write_agent
from trimtab.cli.app import app
from trimtab_serve.agent.tools.mcp import assign_mcp_tool_names
from trimtab_serve.agent.tools.permissions.rules import PermissionRules, decide_permission

TRICKS = (
    "ls $(rm x)",
    "ls `rm x`",
    "ls; rm x",
    "ls && rm x",
    "ls | rm x",
    "ls\nrm x",
    "ls > x",
    "ls <(rm x)",
    "ls ${x:-`rm x`}",
    "{ls,-l}",
    "ls $'\\x24(rm x)'",
    "ls\rrm x",
    "ls\u2028rm x",
    "X=1 ls",
)
HIDDEN = (
    "/bin/rm x",
    "'r'm x",
    "r\\m x",
    "sh -c 'rm x'",
    "env rm x",
    "nice rm x",
    "timeout 5 rm x",
    "command rm x",
    "eval 'rm x'",
    "busybox rm x",
)
BY_OTHER_PROGRAMS = (
    """python3 -c 'import os; os.remove("x")'""",
    "echo cm0geA== | base64 -d | sh",
    "ln -s /bin/rm r; ./r x",
    "find . -delete",
    "unlink x",
)


@pytest.mark.parametrize("line", TRICKS, ids=repr)
def test_no_trick_of_the_shell_is_allowed_by_a_pattern(line: str):
    for patterns in (("ls*",), ("ls *",), ("ls",)):
        rules = PermissionRules(default="ask", allow=patterns, is_shell=True)
        assert decide_permission(rules, line).permission == "ask"


@pytest.mark.parametrize("line", HIDDEN)
def test_a_denied_program_does_not_hide(line: str):
    rules = PermissionRules(default="allow", deny=("rm *",), is_shell=True)
    assert decide_permission(rules, line).permission == "deny"


@pytest.mark.parametrize("line", ["xargs rm", "echo / | xargs rm -rf", "xargs -0 -n 1 rm"])
@pytest.mark.parametrize("pattern", ["rm *", "rm -rf *", "rm"])
def test_xargs_does_not_get_around_a_denial(line: str, pattern: str):
    rules = PermissionRules(default="allow", deny=(pattern,), is_shell=True)
    decided = decide_permission(rules, line).permission
    assert decided == "deny" or (pattern == "rm -rf *" and "-rf" not in line)


@pytest.mark.parametrize("line", BY_OTHER_PROGRAMS)
def test_what_a_denial_cannot_find_no_pattern_allows(line: str):
    """A list of what is denied does not hold these; a list of what is allowed does."""
    rules = PermissionRules(default="ask", allow=OPERATORS, deny=("rm *",), is_shell=True)
    assert decide_permission(rules, line).permission != "allow"


@pytest.mark.parametrize(
    "line",
    [
        'git difftool -y -x "touch PWNED; echo" --no-index /etc/hostname /etc/passwd',
        "git difftool -y --extcmd=canary HEAD~1",
        "lsof",
        "lsblk",
    ],
)
def test_a_pattern_allows_no_program_whose_name_goes_on(line: str):
    patterns = ("git diff*", "git diff *", "git log*", "ls*")
    rules = PermissionRules(default="ask", allow=patterns, is_shell=True)
    assert decide_permission(rules, line).permission == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "git diff --no-index --output=PWNED /dev/null /etc/hostname",
        "git diff --output PWNED HEAD~1",
        "git log --output=PWNED",
        "git diff --ext-diff HEAD~1",
        "git diff -O PWNED",
    ],
)
def test_a_pattern_allows_no_option_that_writes_or_runs(line: str):
    patterns = ("git diff*", "git diff *", "git log*", "git *")
    rules = PermissionRules(default="ask", allow=patterns, is_shell=True)
    assert decide_permission(rules, line).permission == "ask"


@pytest.mark.process
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_shell_in_a_sandbox_reads_neither_sessions_nor_keys(tmp_path: Path):
    shell = {"kind": "shell", "permission": "allow", "sandbox": "required"}
    lines = (
        "cat sessions/default*/events.jsonl",
        "cat sessions/.server/server.db",
        "cat /proc/*/environ",
        "grep -rs . sessions",
        "echo as it should | tr a-z A-Z",
    )
    calls = [{"name": "shell", "arguments": {"command": line}} for line in lines]
    with attacked(tmp_path, tools={"shell": shell}) as target:
        target.ask("The word of the operator is ZEBRA.", "secret", key="operator")
        told = target.ask(f"simulate: {json.dumps([{'calls': calls}, 'Done.'])}", "attack")
        # They ran, and found nothing.
        assert "AS IT SHOULD" in told
        assert [secret for secret in ("ZEBRA", "prometheus", PROVIDER_KEY) if secret in told] == []


def test_a_tool_server_gives_no_tool_a_name_of_ours():
    offered = ["shell", "../../x y", "x" * 300, "x" * 299 + "y", "\x1b[2Jx", "recall", "", "é\n"]
    names = assign_mcp_tool_names("ev", offered)
    assert len(set(names.values())) == len(offered)
    for name in names.values():
        assert re.fullmatch(r"ev__[A-Za-z0-9_-]{0,60}", name)


@pytest.mark.parametrize("name", ["../x", "..", "a/b", ".server", "a b", "x\ny", "-x", "\u202ex"])
def test_path_traversal_in_an_agents_name_leads_nowhere(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_agent(tmp_path, "http://127.0.0.1:1", name=name)
    done = CliRunner().invoke(app, ["serve"])
    assert done.exit_code == 2, done.output
    assert "invalid name" in done.stderr
    assert "\u202e" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["agent.yaml"]


@pytest.mark.process
def test_a_second_server_on_the_same_folder_is_refused(target: Target):
    done = trimtab("serve", cwd=target.folder, ANTHROPIC_API_KEY=PROVIDER_KEY)
    assert done.code not in (0, None)
    assert str(target.server.process.pid) in done.err


@pytest.mark.process
def test_no_secret_is_in_a_log_line_or_an_export(target: Target, monkeypatch, tmp_path: Path):
    told = target.ask('simulate: {"fault": "not_found", "repeat": 9}', "secrets")
    assert "event: turn.failed" in told
    while not target.server.lines.empty():
        line = target.server.lines.get()
        assert line is not None
        target.server.heard.append(line)
    monkeypatch.chdir(target.folder)
    monkeypatch.setenv("ANTHROPIC_API_KEY", PROVIDER_KEY)
    export, run = tmp_path / "export.jsonl", CliRunner().invoke
    done = run(app, ["session", "export", "acme/helper/secrets", "-o", str(export)])
    assert done.exit_code == 0, done.output
    texts = {
        "answer": told,
        "log": json.dumps(target.server.heard),
        "export": export.read_text(encoding="utf-8"),
        "keys": run(app, ["keys", "list", "--json"]).output,
    }
    assert all(len(text) > 100 for text in texts.values())
    secrets = [PROVIDER_KEY, *target.keys.values()]
    assert [name for name, text in texts.items() if any(each in text for each in secrets)] == []
    # Nor what was said.
    assert "ZEBRA" not in texts["log"]
