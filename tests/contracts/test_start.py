"""What the start pages show works: their commands, their code and their file."""

import json
import os
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import warm
from tests.contracts.pages import ROOT
from tests.contracts.test_commands import commands
from tests.contracts.test_docs import blocks, run
from trimtab.cli.app import app
from trimtab.testing import serve_simulated_provider

pytestmark = pytest.mark.process

PAGES = ("start.md", "start-library.md")
MAX_LINES = 100
CALLS = 32
"""Of each recorded session: more than `--min-calls` on the page."""


def stamped(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": f"2026-01-01T00:{number:02}:00.000Z", **more}


def claude_code(number: int) -> list[dict[str, Any]]:
    """A question, a call and its result, as Claude Code writes them."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "def a(): ...\n" * 99}
    return [
        stamped(number, "user", message={"role": "user", "content": f"Look again, {number}."}),
        stamped(number, "assistant", message={"role": "assistant", "content": [use]}),
        stamped(number, "user", message={"role": "user", "content": [result]}),
    ]


def codex(number: int) -> list[dict[str, Any]]:
    """The same as Codex writes it."""
    text = {"type": "input_text", "text": f"Look again, {number}."}
    call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": f"c{number}", "output": "a line\n" * 99}
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": [text]}]
    return [stamped(number, "response_item", payload=item) for item in [*items, call, result]]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with one recorded session of each program."""
    for folder, turn in ((".claude/projects/x", claude_code), (".codex/sessions", codex)):
        (tmp_path / folder).mkdir(parents=True)
        lines = [json.dumps(line) for number in range(CALLS) for line in turn(number)]
        (tmp_path / folder / "one.jsonl").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no processes for one short session


@pytest.mark.usefixtures("home")
def test_the_commands_of_the_page_for_recorded_sessions_print_their_table():
    page = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    found = [words for _, words in commands(page)]
    assert found == [["replay"]]
    done = CliRunner().invoke(app, found[0])
    assert done.exit_code == 0, done.output
    assert ".claude/projects and " in done.stderr
    assert f"{2 * CALLS} calls" in done.stdout
    assert "WHAT TO TELL CODEX" in done.stdout


def test_the_yaml_of_the_page_is_an_excerpt_of_what_init_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["init", "my-agent", "--shell"]).exit_code == 0
    written = iter((tmp_path / "my-agent" / "agent.yaml").read_text("utf-8").splitlines())
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [line for line in shown.splitlines() if line not in written] == []  # and in its order


def script_for_readers_without_a_key(name: str) -> list[Any]:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8123 ANTHROPIC_API_KEY=any" in text
    (script,) = re.findall(r"testing\.server --port 8123 --script[\s\\]+'(.*?)'", text, re.DOTALL)
    return json.loads(script)


def test_the_page_for_loops_works_without_a_key(tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "start-library.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    with serve_simulated_provider(tokenizer="estimate") as server:
        server.simulator.script.set_replies(script_for_readers_without_a_key(page.name))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        for block in blocks(page.read_text(encoding="utf-8")):
            namespace: dict[str, Any] = {"__name__": "docs"}
            run(block, page, namespace)
            namespace["client"].close()
    told = capsys.readouterr().out
    assert "Anton Flettner." in told
    assert "I have read it." in told
    assert "Context Usage" in told


def test_the_page_for_agents_works_without_a_key(tmp_path):
    with serve_simulated_provider(tokenizer="estimate") as server:
        server.simulator.script.set_replies(script_for_readers_without_a_key("start.md"))
        own = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        environ = {**os.environ, **own, "XDG_STATE_HOME": str(tmp_path)}
        for words in (
            ["init", "my-agent", "--shell"],
            ["chat", "--agent", "my-agent/agent.yaml", "?"],
        ):
            done = warm.trimtab(words, cwd=tmp_path, env=environ)
            assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "These are your files."


@pytest.mark.parametrize("name", PAGES)
def test_a_start_page_is_short_and_says_where_to_go_next(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert "pip install" in text
    assert text.count(".md") >= 4
