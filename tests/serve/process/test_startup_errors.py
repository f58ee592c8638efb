"""What an operator is told before anything runs: what is wrong, and what to do about it."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.serve.process.processes import write_agent
from tests.snapshots import snapshot
from trimtab.cli.app import app
from trimtab_serve.agent.config.spec import ServeSpec
from trimtab_serve.api_keys.requirement import requires_api_keys
from trimtab_serve.process.banner import render_startup_banner
from trimtab_serve.process.loading import load_agent_set

RUN = CliRunner()
NOWHERE = "http://127.0.0.1:1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound to it


def refused(*command: str) -> str:
    done = RUN.invoke(app, ["serve", *command])
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_file_it_says_which():
    assert "agent.yaml" in refused()


def test_a_port_that_is_taken_is_named(folder):
    write_agent(folder, NOWHERE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use" in refused("--port", port)


@pytest.mark.parametrize(
    ("serve", "required"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "::1"}, False),
        ({"keys": True}, True),
        ({"host": EVERYWHERE}, True),
        ({"host": "::", "keys": False}, True),
        ({"host": "192.0.2.7"}, True),
        ({"host": "127.0.0.1.example.com"}, True),
    ],
)
def test_others_are_let_in_with_keys_alone(serve, required):
    assert requires_api_keys(ServeSpec.model_validate(serve)) is required


def test_a_file_of_keys_is_refused_with_the_setting_that_replaced_it(folder):
    write_agent(folder, NOWHERE, serve={"keys": "keys.json"})
    assert "serve.keys" in refused()


def test_several_processes_on_files_are_refused(folder):
    write_agent(folder, NOWHERE)
    for option in ("--no-turns", "--workers-only"):
        assert "with a store of files, one process does everything" in " ".join(
            refused(option).split()
        )


def test_agents_that_cannot_be_served_together_are_named(folder):
    one, two = folder / "one", folder / "two"
    for each in (one, two):
        each.mkdir()
        write_agent(each, NOWHERE)
    files = [str(each / "agent.yaml") for each in (one, two)]
    assert "both describe an agent called helper" in refused(*files)
    write_agent(two, NOWHERE, name="other")
    assert "different stores" in refused(*files)
    store = {"store": str(folder / "sessions")}
    write_agent(one, NOWHERE, session=store)
    write_agent(two, NOWHERE, name="other", session=store, serve={"requests_per_minute": 7})
    assert "differ in serve.requests_per_minute" in refused(*files)
    write_agent(two, NOWHERE, name="my helper", session=store)
    assert "invalid name 'my helper' for a served agent" in refused(*files)


def test_the_banner_says_where_it_is_who_answers_and_what_to_try(folder):
    agent_set = load_agent_set([write_agent(folder, NOWHERE)])
    told = render_startup_banner(
        agent_set,
        url="http://127.0.0.1:8080",
        requires_keys=False,
        channels=(),
        runs_turns=True,
        resumed_sessions=2,
    ).replace(agent_set.store_location, "SESSIONS")
    assert told == snapshot("""\
Trimtab is serving. Ctrl-C stops it after running turns have finished.

  HTTP     http://127.0.0.1:8080   (API description: http://127.0.0.1:8080/docs)
  agents   helper (claude-sonnet-5-5)
  store    SESSIONS
  keys     not required: only this machine has access; for others, set `serve.host`
  turns    64 at the same time, 32 of them for one tenant
  resumed  2 sessions with messages from a previous run

Try:
  curl -N http://127.0.0.1:8080/v1/agents/helper/sessions/first/messages \\
    -H 'Accept: text/event-stream' \\
    --json '{"text": "Good morning!"}'\
""")


def test_the_banner_says_which_tools_are_refused_for_nobody_can_be_asked(folder):
    tools = {
        "shell": {"kind": "shell", "allow": ["ls*"]},
        "search": {"kind": "command", "description": "d", "command": ["ls"], "ask": ["*"]},
        "date": {"kind": "command", "description": "d", "command": ["date"]},
    }
    agent_set = load_agent_set([write_agent(folder, NOWHERE, tools=tools)])

    def told(*, turns: bool) -> str:
        return render_startup_banner(
            agent_set,
            url=None,
            requires_keys=False,
            channels=(),
            runs_turns=turns,
            resumed_sessions=0,
        )

    refused = "search, if `ask` matches; shell, unless `allow` matches"
    assert (
        f"  denied  {refused}: nobody can approve calls while serving"
        in told(turns=True).splitlines()
    )
    assert "denied" not in told(turns=False)


def test_the_banner_says_that_auto_decides_on_masks_in_a_file_that_only_sets_which_stay(folder):
    keeps = {"context": {"tool_result_keep_first": 2, "tool_result_keep_last": 5}}

    def told(**session: Any) -> str:
        agent_set = load_agent_set([write_agent(folder, NOWHERE, session=session)])
        return render_startup_banner(
            agent_set,
            url=None,
            requires_keys=False,
            channels=(),
            runs_turns=True,
            resumed_sessions=0,
        )

    [note] = [line for line in told(**keeps).splitlines() if line.startswith("  note ")]
    assert "helper: tool_result_keep_first and tool_result_keep_last are set" in note
    assert "`policy: layered`" in note
    assert "  note " not in told(**keeps, policy="layered")


def test_the_banner_says_where_the_metrics_are(folder):
    agent_set = load_agent_set([write_agent(folder, NOWHERE)])
    place = "http://127.0.0.1:9464/metrics"
    told = render_startup_banner(
        agent_set,
        url=None,
        requires_keys=False,
        channels=(),
        runs_turns=True,
        resumed_sessions=0,
        metrics_url=place,
    )
    assert f"  metrics  {place}" in told.splitlines()


def test_the_banner_says_how_to_make_a_key_and_no_password(folder):
    place = "postgresql://ann:secret@db/agents"
    file = write_agent(folder, NOWHERE, session={"store": place})
    agent_set = load_agent_set([file])
    told = render_startup_banner(
        agent_set,
        url="http://127.0.0.1:8080",
        requires_keys=True,
        channels=(),
        runs_turns=False,
        resumed_sessions=0,
    )
    assert "secret" not in told
    assert "PostgreSQL, shared with other processes" in told
    assert "required; `trimtab keys create NAME` creates one" in told
    assert "none in this process; other processes run them" in told
    assert 'Authorization: Bearer $TRIMTAB_KEY"' in told
