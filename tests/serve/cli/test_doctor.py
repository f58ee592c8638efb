"""The doctor against a simulated provider in a process of its own, and against what is broken."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import warm
from tests.cli.running import TRIMTAB, environ, trimtab
from trimtab.cli.app import app
from trimtab.errors import DatabaseSchemaTooNew
from trimtab.integrations.claude_code.settings import add_hook
from trimtab.testing.server import RemoteSimulator
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.tools import sandbox as sandboxing
from trimtab_serve.cli.doctor import checks as checking
from trimtab_serve.cli.doctor import model_checks as asking
from trimtab_serve.cli.doctor import tool_checks as reaching
from trimtab_serve.cli.doctor import tool_checks as tooling

pytestmark = pytest.mark.process

KEY = "sk-ant-api03-not-a-real-key-0123456789"
KEYS = "serve: {keys: true}\n"
AGENT = """\
name: ship
model: {{name: claude-sonnet-4-6, base_url: "{url}"}}
system: system.md
{more}"""


@pytest.fixture(scope="module")
def simulator():
    with warm.spawn_simulated_provider(api_keys=[KEY]) as remote:
        yield remote


@pytest.fixture
def agent(tmp_path, simulator: RemoteSimulator):
    """Writes an agent that is asked from the simulator, and looks at it."""

    def examine(more="", *options, url=simulator.url, key=KEY, every=False, **environ):
        (tmp_path / "system.md").write_text("Be careful.\n", encoding="utf-8")
        made = more if more.startswith("model") else AGENT.format(url=url, more=more)
        (tmp_path / "agent.yaml").write_text(made, encoding="utf-8")
        file = str(tmp_path / "agent.yaml")
        known = {"ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": None, **environ}
        done = CliRunner().invoke(app, ["doctor", "--agent", file, "--json", *options], env=known)
        assert KEY not in done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        told = json.loads(done.stdout)
        assert done.exit_code == (0 if told["ok"] else 1)
        return told["checks"] if every else {check["about"]: check for check in told["checks"]}

    return examine


def states(checks):
    return {about: check["state"] for about, check in checks.items()}


def test_an_agent_that_works_is_well_in_every_respect(agent):
    checks = agent()
    assert set(states(checks).values()) == {"ok"}
    names = [
        *("Python", "agent.yaml", "packages", "system", "key", "provider", "catalog", "store"),
        "window",
    ]
    assert list(checks) == names
    assert checks["provider"]["text"] == "it answers and accepts the key"
    assert checks["catalog"]["text"].startswith("claude-sonnet-4-6: window 1,000,000 tokens")


def test_as_a_process_it_says_a_line_for_each_and_the_next_command(tmp_path, simulator):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=simulator.url, more=""), encoding="utf-8")
    (tmp_path / "system.md").write_text("Be careful.\n", encoding="utf-8")
    done = trimtab("doctor", cwd=tmp_path, ANTHROPIC_API_KEY=KEY)
    *lines, blank, last = done.out.splitlines()
    assert (done.code, done.err, blank) == (0, "", "")
    assert all(line.startswith("✓ ") for line in lines)
    assert last == "Everything works. Next: trimtab chat"


def test_it_says_what_shells_and_commands_run_in(agent, tmp_path, monkeypatch):
    tools = """\
tools:
  one: {kind: shell}
  two: {kind: shell, sandbox: auto}
  three: {kind: shell, sandbox: auto, sandbox_network: true}
"""
    monkeypatch.setattr(sandboxing, "BUBBLEWRAP_PROGRAM", "no-such-program")
    sandboxing.find_bubblewrap.cache_clear()
    checks = agent(tools)
    assert checks["sandbox"]["state"] == "warn"
    assert checks["sandbox"]["text"].startswith("none for two and three: bubblewrap is not instal")
    made = sandboxing.Bubblewrap(program="/bin/true", version="0.8.0", user_namespace=())
    monkeypatch.setattr(tooling, "find_bubblewrap", lambda _: made)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    found = [
        (finding.state, finding.text)
        for finding in tooling.check_sandboxes(
            load_agent_spec(tmp_path / "agent.yaml", {}), {"PATH": "/bin"}
        )
    ]
    sandboxing.find_bubblewrap.cache_clear()
    assert found == [
        ("skip", "off for one; see `sandbox` in docs/tools.md"),
        ("ok", "bubblewrap 0.8.0, network off: two"),
        ("ok", "bubblewrap 0.8.0, network on: three"),
        ("warn", "the server runs as root, so programs in the sandbox can read every file"),
    ]


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        ("max_per_day: 20", "cost.max_per_day $20.00, checked before each call"),
        ("max_per_session: 0.01", "cost.max_per_session is $0.01, but one reply of up to"),
    ],
)
def test_a_cost_ceiling_is_told_or_why_it_cannot_be_kept(agent, cost, told):
    checks = agent(f"cost: {{{cost}}}\n")
    assert checks["cost"]["text"].startswith(told)
    assert checks["cost"]["state"] == ("ok" if "20" in cost else "bad")


def test_a_missing_file_is_said_with_the_command_that_writes_one(tmp_path):
    done = trimtab("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "✗ agent.yaml         does not exist; `trimtab init` writes one that works" in done.out
    assert done.out.endswith("\n1 thing to fix before `trimtab chat` works.\n")


def test_every_problem_of_the_file_is_shown_as_it_is(tmp_path):
    (tmp_path / "agent.yaml").write_text("modle: {name: x}\nsesion: {}\n", encoding="utf-8")
    done = trimtab("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "line 1" in done.out
    assert "line 2" in done.out


def test_a_key_in_the_file_is_warned_of_and_not_repeated(agent, simulator):
    checks = agent(
        f'model: {{name: claude-sonnet-4-6, base_url: "{simulator.url}", api_key: {KEY}}}'
    )
    assert checks["agent.yaml"]["state"] == "warn"
    assert "put it into the environment" in checks["agent.yaml"]["text"]
    assert checks["provider"]["state"] == "ok"


def test_a_missing_key_is_said_with_the_variable(agent):
    checks = agent("model: {name: claude-sonnet-4-6}\n", key=None)
    assert states(checks)["key"] == "bad"
    assert checks["key"]["text"] == (
        "no key for 'claude-sonnet-4-6': set ANTHROPIC_API_KEY, or set `api_key` under `model` in "
        "agent.yaml"
    )
    assert checks["key"]["next"] == "export ANTHROPIC_API_KEY=…"
    assert "provider" not in checks


def test_a_key_that_is_refused_is_told_from_a_provider_that_is_away(agent):
    checks = agent(key="wrong-key")
    assert checks["provider"]["text"] == "the key was refused: invalid x-api-key (HTTP 401)"
    assert checks["provider"]["next"] == "set ANTHROPIC_API_KEY to a valid key"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = agent(url=f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert away["provider"]["state"] == "bad"
    assert away["provider"]["text"].startswith("it cannot be reached: Connection error.")


def test_a_server_that_answers_without_a_key_is_not_said_to_accept_one(agent):
    with warm.spawn_simulated_provider() as open_to_all:
        checks = agent(url=open_to_all.url, key=None)
    assert checks["key"]["text"] == "not set, and not needed here"
    assert checks["provider"]["text"] == "it answers without a key"


def test_a_server_that_wants_a_key_is_not_said_to_refuse_one_that_is_not_set(agent):
    checks = agent(key=None)
    told = "it does not answer without a key: invalid x-api-key (HTTP 401)"
    assert checks["provider"]["text"] == told
    assert checks["provider"]["next"] == "set ANTHROPIC_API_KEY to a valid key"


def test_a_provider_that_never_answers_is_given_up(agent, monkeypatch):
    monkeypatch.setattr(asking, "PROVIDER_TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        checks = agent(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "no answer within 0.3 seconds" in checks["provider"]["text"]


def test_offline_nobody_is_asked(agent):
    checks = agent("", "--offline", url="http://127.0.0.1:1")
    assert checks["provider"]["state"] == "skip"
    assert checks["window"]["state"] == "ok"


def test_an_unknown_model_is_assumed_something_of_and_that_is_said(agent, simulator):
    url = f"{simulator.url}/v1"
    unknown = f'model: {{name: house-model, provider: vllm, base_url: "{url}"%s}}\n'
    checks = agent(unknown % "", OPENAI_API_KEY=KEY)
    assert checks["catalog"]["state"] == "warn"
    assert "assumed: window 128,000 tokens" in checks["catalog"]["text"]
    assert "model.context_window" in checks["catalog"]["next"]
    told = agent(unknown % ", context_window: 32000", OPENAI_API_KEY=KEY)
    assert told["catalog"]["state"] == "ok"


def test_a_misspelt_model_is_answered_with_the_one_that_was_meant(agent, simulator):
    checks = agent("model: {name: claude-sonet-5-5}\n", "--offline")
    assert checks["catalog"]["state"] == "warn"
    assert checks["catalog"]["text"].startswith("claude-sonet-5-5 is not in the catalog; assumed:")
    assert checks["catalog"]["next"] == "did you mean claude-sonnet-5-5? Set model.name"
    sized = agent("model: {name: claude-sonet-5-5, context_window: 32000}\n", "--offline")
    assert sized["catalog"]["next"] == "did you mean claude-sonnet-5-5? Set model.name"
    # A server of one's own may call its models what it likes.
    own = f'model: {{name: claude-sonet-5-5, context_window: 32000, base_url: "{simulator.url}"}}'
    assert agent(own, "--offline")["catalog"]["state"] == "ok"


def test_no_more_output_is_told_than_the_window_has(agent):
    checks = agent("model: {name: claude-sonnet-5-5, context_window: 32000}\n", "--offline")
    assert "window 32,000 tokens, output up to 32,000 tokens, $" in checks["catalog"]["text"]


def test_the_window_is_told_term_by_term_and_adds_up(agent):
    told = agent("tools: {sh: {kind: shell}}\n", "--offline")["window"]["text"]
    whole = re.fullmatch(
        r"1,000,000 tokens: ([\d,]+) sent with every call \((.*)\), (8,192 for the reply, .*)", told
    )
    assert whole is not None
    every, terms, rest = whole.groups()
    names = ["system prompt", "tools", "recall tools", "provider overhead for tools", "margin"]
    figures = re.findall(r"([\d,]+) ([a-z' ]+?)(?:, | and |$)", terms)
    assert [name for _, name in figures] == names
    sizes = [int(figure.replace(",", "")) for figure in (*(size for size, _ in figures), every)]
    assert sum(sizes[:-1]) == sizes[-1]
    assert rest.endswith(" for the conversation")


BROAD = {
    "*": ("names no program", '"ls *"'),
    "ls*": ("means 'ls *'", 'write "ls *"'),
    "git diff*": ("means 'git diff *'", 'write "git diff *"'),
    "git *": ("git commands that are known to be read-only", '"git status *"'),
    "git push *": ("allows nothing: git push is not known to be read-only", "in full"),
    "find *": ("allows searching only", '"find . -name *.py"'),
    "python *": ("allows nothing: python runs other programs", '"python manage.py check"'),
    "python3.12 *": ("allows nothing: python3.12 runs other programs", "`kind: command`"),
    "python scripts/*": ("python runs other programs that it is given, and", "`kind: command`"),
    "make *": ("allows nothing: make runs other programs", '"make test"'),
    "xargs *": ("allows nothing: xargs runs other programs", "`kind: command`"),
    "sudo *": ("allows nothing: sudo runs other programs", "`kind: command`"),
    "tee *": ("allows nothing: tee writes or removes files", "`kind: command`"),
    "rm ./*.pyc": ("rm writes or removes files", "in full"),
    "helm list *": ("helm is not known to be read-only", "in full"),
    "pytest *": ("runs the code of all tests", "remove it"),
}


def test_a_pattern_that_means_more_or_less_than_it_seems_is_said_with_what_to_write(agent):
    patterns = json.dumps([*BROAD, "ls *", "cat src/*", "git diff --stat *", "make test"])
    checks = agent(f"tools: {{sh: {{kind: shell, allow: {patterns}}}}}\n", "--offline", every=True)
    told = [each for each in checks if each["about"] == "tools.sh"]
    assert [each["state"] for each in told] == ["ok", *("warn" for _ in BROAD)]
    for each, (text, to_do) in zip(told[1:], BROAD.values(), strict=True):
        assert text in each["text"]
        assert to_do in each["next"]


def test_a_shell_that_runs_beside_the_keys_of_others_is_said(agent, tmp_path):
    def told(block: str) -> list[str]:
        (tmp_path / "work").mkdir(exist_ok=True)
        checks = agent(f"tools: {{sh: {{kind: shell{block}}}}}\n{KEYS}", "--offline", every=True)
        return [
            each["text"]
            for each in checks
            if (each["about"], each["state"]) == ("tools.sh", "warn")
        ]

    (said,) = told("")
    assert said.startswith("it runs in a folder that contains the sessions of all tenants")
    assert told(", cwd: work") == []


def test_a_terminal_is_shown_whole_words(tmp_path):
    (tmp_path / "agent.yaml").write_text("model: {name: gpt-5.1}\n", encoding="utf-8")
    child, terminal = pty.openpty()
    told = [*TRIMTAB, "doctor", "--offline"]
    own = environ(tmp_path, COLUMNS="60", TERM="xterm", OPENAI_API_KEY="k")
    with warm.Popen(told, cwd=tmp_path, env=own, stdin=terminal, stdout=terminal) as done:
        os.close(terminal)
        seen = b""
        with suppress(OSError):  # how a terminal says that nobody writes to it any more
            while chunk := os.read(child, 65_536):
                seen += chunk
        os.close(child)
        done.wait(60)
    shown = re.sub(r"\x1b\[[0-9;]*m|\r", "", seen.decode())
    piped = trimtab("doctor", "--offline", cwd=tmp_path, OPENAI_API_KEY="k").out
    free = re.compile(r"[\d.,]+ GB")
    assert free.sub("", shown).split() == free.sub("", piped).split()
    lines = shown.split("\n")
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 60
    at = next(number for number, line in enumerate(lines) if line.startswith("✓ window"))
    assert lines[at + 1].startswith(" " * 21)


def test_a_model_that_its_maker_retires_is_warned_of(agent):
    checks = agent("model: {name: claude-opus-4-0}\n", "--offline")
    assert checks["model"]["state"] == "warn"
    assert checks["model"]["text"] == "claude-opus-4-0: its maker retired it on 2026-06-15"
    assert checks["model"]["next"] == "set model.name to a newer model"
    served = "model: {name: claude-opus-4-0, base_url: 'http://127.0.0.1:1'}\n"
    assert "model" not in agent(served, "--offline")


def test_a_deployment_is_told_with_the_model_that_it_is(agent):
    own = "{name: prod-eu, base_url: 'http://127.0.0.1:1/v1', model_info: gpt-5.2}"
    checks = agent(f"model: {own}\n", "--offline")
    assert checks["catalog"]["state"] == "ok"
    assert checks["catalog"]["text"].startswith("prod-eu is gpt-5.2: window 400,000 tokens")


def test_a_window_that_the_system_prompt_fills_is_said_with_the_numbers(agent, tmp_path):
    long = tmp_path / "long.md"
    long.write_text("Be very careful about everything. " * 2_000, encoding="utf-8")
    small = "{name: claude-sonnet-4-6, context_window: 8000, max_output_tokens: 1000}"
    checks = agent(f"model: {small}\nsystem: long.md\n", "--offline")
    assert checks["window"]["state"] == "bad"
    assert "tokens before the first message, but the window has 8,000" in checks["window"]["text"]
    assert "shorten the system prompt" in checks["window"]["next"]


def test_a_folder_that_is_a_file_is_no_store(agent, tmp_path):
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    checks = agent("session: {store: taken}\n", "--offline")
    assert checks["store"]["text"].endswith("taken is not a folder")
    assert checks["store"]["next"] == "set session.store to another place"


def test_a_database_that_is_down_is_said_without_its_password(agent):
    url = "postgresql://ship:hush@127.0.0.1:1/ships"
    checks = agent("session: {store: '${DATABASE_URL}'}\n", "--offline", DATABASE_URL=url)
    assert checks["store"]["state"] == "bad"
    assert "127.0.0.1:1 cannot be reached" in checks["store"]["text"]
    assert "hush" not in json.dumps(checks)


@pytest.mark.anyio
async def test_a_database_of_a_newer_release_needs_that_release(monkeypatch):
    async def open_newer(_: str) -> None:
        raise DatabaseSchemaTooNew("ships is at version 9; upgrade trimtab")

    monkeypatch.setattr(checking, "open_store", open_newer)
    finding = await checking.check_store("postgresql://ship@db.example/ships")
    assert finding.state == "bad"
    assert finding.next == "install the release of trimtab that migrated it"


def test_an_address_that_is_no_store_is_said_without_its_password(tmp_path):
    url = "postgresql+psycopg://ship:hush@db.example/ships"
    (tmp_path / "agent.yaml").write_text(
        "model: {name: gpt-4o}\nsession: {store: '${DATABASE_URL}'}\n", encoding="utf-8"
    )
    done = trimtab("doctor", "--offline", cwd=tmp_path, DATABASE_URL=url)
    assert done.code == 1
    assert "write postgresql:// instead" in " ".join(done.out.split())
    assert "hush" not in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["agent.yaml"]


def test_each_tool_is_made_ready_and_measured(agent, tmp_path):
    (tmp_path / "own.py").write_text(
        'def add(a: int, b: int) -> int:\n    """Add two numbers."""\n    return a + b\n',
        encoding="utf-8",
    )
    blocks = (
        "tools:\n"
        "  add: {kind: python, function: 'own.py:add'}\n"
        "  lost: {kind: python, function: 'own.py:subtract'}\n"
        "  sh: {kind: shell}\n"
        "  gone: {kind: command, description: x, command: [no-such-program-here]}\n"
    )
    checks = agent(blocks, "--offline")
    assert checks["tools.add"]["text"].startswith("ready, ")
    assert states(checks)["tools.sh"] == "ok"
    assert states(checks)["tools.lost"] == "bad"
    assert "subtract" in checks["tools.lost"]["text"]
    assert states(checks)["tools.gone"] == "bad"
    assert "no-such-program-here" in checks["tools.gone"]["text"]


def test_an_mcp_server_that_never_speaks_is_given_up(agent, monkeypatch):
    monkeypatch.setattr(tooling, "TOOL_START_TIMEOUT_S", 1.0)
    checks = agent("tools: {mute: {kind: mcp, command: [sleep, '60']}}\n", "--offline")
    assert checks["tools.mute"]["state"] == "bad"


class _Listing(BaseHTTPRequestHandler):
    """A server that has a list of models and nothing else."""

    def do_GET(self):
        body = json.dumps({"object": "list", "data": [_model("qwen3:8b"), _model("llama3")]})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format, *args):  # noqa: A002 - the base class names it
        pass


def _model(name):
    return {"id": name, "object": "model", "created": 0, "owned_by": "me"}


@pytest.fixture
def listing():
    with HTTPServer(("127.0.0.1", 0), _Listing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        ("qwen3:8b", "ok", "the provider lists qwen3:8b, among 2 models"),
        ("qwen3:80b", "warn", "qwen3:80b is not among the provider's 2 models"),
    ],
)
def test_a_provider_with_a_list_is_asked_for_it_and_nothing_else(
    agent, listing, model, state, words
):
    checks = agent(f'model: {{name: "{model}", provider: ollama, base_url: "{listing}"}}\n')
    assert checks["provider"]["text"] == "it answers"
    assert (checks["model"]["state"], checks["model"]["text"]) == (state, words)
    if state == "warn":
        assert checks["model"]["next"].endswith("one of these: qwen3:8b")


def test_the_folder_of_the_agent_is_looked_at_wherever_one_stands(agent, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    checks = agent("", "--offline")
    assert str(tmp_path / "sessions") in checks["store"]["text"]
    assert not Path("sessions").exists()


linux = pytest.mark.skipif(sys.platform != "linux", reason="keys are out of reach on Linux alone")
TOOLS = "tools: {shell: {kind: shell}}\n"


@linux
def test_as_a_process_it_says_that_tools_cannot_read_its_keys(tmp_path):
    (tmp_path / "agent.yaml").write_text(
        f"model: {{name: claude-sonnet-4-6}}\nsystem: Be careful, please.\n{TOOLS}", "utf-8"
    )
    done = trimtab("doctor", "--offline", cwd=tmp_path, ANTHROPIC_API_KEY=KEY, DATABASE_URL="d")
    told = "tools cannot read the memory of this process; Trimtab hides 2 variables from them"
    assert f"✓ secrets            {told}\n" in done.out


@linux
def test_keys_that_tools_can_read_are_warned_of(agent, monkeypatch):
    """Here the doctor runs within the tests, which keep nothing from anybody."""

    async def opens(opened: bool) -> bool:
        return opened

    monkeypatch.setattr(reaching, "_memory_is_open", lambda: opens(True))
    secrets = agent(TOOLS, "--offline")["secrets"]
    assert secrets["state"] == "warn"
    assert "tools can read the memory of this process" in secrets["text"]
    monkeypatch.setattr(reaching, "_memory_is_open", lambda: opens(False))
    with subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, env={"ANTHROPIC_API_KEY": KEY}
    ) as above:
        monkeypatch.setattr(reaching, "_parents", lambda: iter([above.pid]))
        secrets = agent(TOOLS, "--offline")["secrets"]
        assert above.stdin is not None
        above.stdin.close()
    assert secrets["state"] == "warn"
    assert f"ANTHROPIC_API_KEY in the environment of cat (process {above.pid})" in secrets["text"]
    monkeypatch.setattr(reaching, "_parents", lambda: iter([os.getpid()]))
    assert agent(TOOLS, "--offline")["secrets"]["state"] == "ok"


def test_the_hook_of_claude_code_is_looked_at_if_it_is_installed(tmp_path):
    known = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    path = tmp_path / "settings.json"
    assert checking.check_claude_hook(known) == []
    path.write_text("{ broken")
    assert checking.check_claude_hook(known) == []
    folder = str(tmp_path / "trimtab" / "claude-code")
    settings = add_hook({}, folder, 2_000)
    path.write_text(json.dumps(settings))
    (finding,) = checking.check_claude_hook(known)
    assert (finding.about, finding.state) == ("Claude Code", "ok")
    path.write_text(json.dumps({**settings, "permissions": {}}))
    (finding,) = checking.check_claude_hook(known)
    assert finding.state == "warn"
    assert "run `trimtab hook claude` again" in finding.text
