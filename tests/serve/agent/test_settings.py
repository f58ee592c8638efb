"""What stands in `agent.yaml` is what the context is managed by."""

from pathlib import Path

import pytest

from tests.serve.agent.config_files import DOCUMENT_0, ENVIRON, GOOD, LEAST, folder
from trimtab import Context
from trimtab.engine.policy.config import (
    PerToolResultConfig,
    PolicyConfig,
    SummaryConfig,
    ThresholdsPresetConfig,
    parse_policy_config,
)
from trimtab.providers.factory import create_provider
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.session.turn import MAX_TOOL_ITERATIONS
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider
from trimtab_serve.agent.agent import (
    Agent,
    build_context_options,
    build_policy_settings,
    find_summary_writing_model,
)
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.config.problems import AgentFileError
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.cli.doctor.checks import find_model_dialect

__all__ = ["folder"]


def read(text: str) -> AgentSpec:
    Path("agent.yaml").write_text(text, encoding="utf-8")
    return load_agent_spec(Path("agent.yaml"), ENVIRON)


def test_the_example_of_document_0_sets_the_model_and_the_context(folder):
    spec = read(DOCUMENT_0)
    options = build_context_options(spec, "", "anthropic")
    assert {name: options[name] for name in ("model", "max_input_tokens", "max_output_tokens")} == {
        "model": "claude-sonnet-4-20250514",
        "max_input_tokens": 150_000,
        "max_output_tokens": 8192,
    }
    assert options["limits"] == {
        "max_history_tokens": 20_000,
        "max_tool_result_tokens": 8000,
        "tool_result_truncation": "head",
        "tool_result_keep_first": 2,
        "tool_result_keep_last": 5,
    }
    assert (spec.session.max_tool_iterations, spec.session.on_disconnect) == (25, "pause")


@pytest.mark.parametrize(
    ("more", "entry"),
    [
        ("", {}),
        ("  base_url: http://127.0.0.1:8000/v1\n", {"max_output": 50_000}),
        ("  base_url: http://127.0.0.1:8000/v1\n  max_output_tokens: 900\n", {}),
    ],
)
def test_a_server_of_ones_own_may_write_more_than_the_name_tells(folder, more, entry):
    asked = "" if "max_output_tokens" in more else "  max_output_tokens: 50000\n"
    options = build_context_options(
        read(f"model:\n  name: gpt-4o\n{asked}{more}"), "", "openai_chat"
    )
    assert options["model_info"] == entry


def test_a_file_that_says_nothing_of_the_session_has_the_defaults(folder):
    spec = read(LEAST)
    assert build_policy_settings(spec) == {}
    assert spec.session.max_tool_iterations == MAX_TOOL_ITERATIONS == 25
    assert spec.session.on_disconnect == "pause"


def test_every_knob_of_the_file_reaches_the_policy(folder):
    text = GOOD["settings of every policy"].replace("keep: 2}", "keep: 2}\n  policy: rolling", 1)
    assert parse_policy_config(build_policy_settings(read(text))) == PolicyConfig(
        tools={"shell": PerToolResultConfig(exempt=True), "grep": PerToolResultConfig()},
        summary=SummaryConfig(window=4, keep=2, forced=4, max_tokens=60, price=0.0333),
        thresholds=ThresholdsPresetConfig(summarise=0.1, trim=1, keep=2),
    )


@pytest.mark.parametrize("name", GOOD)
def test_whatever_is_read_can_be_set(name, folder):
    options = build_context_options(read(GOOD[name]), "Be brief.", "openai_chat")
    assert Context(**options).window.settings.model == options["model"]


@pytest.mark.parametrize(
    ("given", "limit"),
    [("", 200_000), ("  context_window: 50000\n", 50_000), ("  context_window: 0\n", 200_000)],
)
def test_the_window_is_the_files_or_the_catalogs(given, limit, folder):
    options = build_context_options(
        read("model:\n  name: claude-sonnet-4-5\n" + given), "", "anthropic"
    )
    assert Context(**options).budget().limit == limit


@pytest.mark.anyio
@pytest.mark.parametrize("most", [2, 5])
async def test_a_turn_has_as_many_iterations_as_the_file_says(most, folder):
    async def read_it(asked: ToolInvocation) -> str:
        return "nothing yet"

    look = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="look", arguments={})] * 9)
    agent = Agent(
        spec=read(LEAST + f"session:\n  max_tool_iterations: {most}\n"),
        system="",
        store=MemoryStore(),
        provider=provider,
        tools=[Tool(definition=look, run=read_it)],
        environ={},
    )
    session = await agent.open_session("a")
    ended = await agent.run_turn(session, {"role": "user", "content": "Look until you see it."})
    assert (ended.reason, ended.calls) == ("iterations", most)


def test_a_window_of_messages_is_as_the_file_says(folder):
    spec = read(
        LEAST + "session:\n  policy: rolling\n  summary: {window: 4, keep: 2, by: extract}\n"
    )
    context = Context(**build_context_options(spec, "", "anthropic"))
    for number in range(4):
        context.add({"role": "user", "content": f"question {number} " * 40})
        context.add({"role": "assistant", "content": f"answer {number} " * 40})
    context.add({"role": "user", "content": "and now?"})
    context.request()
    assert context.window.summary is not None
    assert context.window.visible_messages <= 4


@pytest.mark.parametrize(
    ("written", "marks"), [("", {None}), ("5m", {None}), ("1h", {"1h"}), ("off", set())]
)
def test_the_file_says_how_long_the_provider_caches(folder, written, marks):
    """`off` is written without quotes, though YAML takes it for false."""
    line = f"  cache: {written}\n" if written else ""
    spec = read(f"model:\n  name: claude-sonnet-4-5\n{line}")
    context = Context(**build_context_options(spec, "You are careful.", "anthropic"))
    context.add({"role": "user", "content": "Hello"})
    request = context.request()
    blocks = [*request["system"], *request["messages"][0]["content"]]
    found = {
        block["cache_control"].get("ttl")
        for block in blocks
        if isinstance(block, dict) and "cache_control" in block
    }
    assert found == marks


DEPLOYMENT = """\
model:
  name: prod-eu
  base_url: http://127.0.0.1:8000/v1
  model_info: {info}
session:
  policy: rolling
"""


def test_a_deployment_takes_the_rules_of_the_model_that_the_file_names(folder):
    spec = read(DEPLOYMENT.format(info="gpt-5.2"))
    options = build_context_options(spec, "", find_model_dialect(spec.model))
    assert options["model_info"] == {"base_model": "gpt-5.2"}
    context = Context(**options)
    context.add({"role": "user", "content": "hello"})
    request = context.request()
    assert (request["model"], request["max_completion_tokens"]) == ("prod-eu", 8_192)
    assert find_summary_writing_model(spec) == "prod-eu"
    assert build_policy_settings(spec)["summary"]["price"] == 1.0


def test_a_deployment_of_a_model_that_only_responses_serves_is_called_there(folder):
    spec = read(DEPLOYMENT.format(info="gpt-5.2-codex"))
    made = create_provider(
        spec.model.name, model_info=spec.model.model_info, base_url=spec.model.base_url, environ={}
    )
    assert made.dialect == "openai_responses"


def test_a_file_may_give_values_of_its_own_for_the_model(folder):
    spec = read(DEPLOYMENT.format(info="{base_model: gpt-5.2, max_output: 9000}"))
    options = build_context_options(spec, "", "openai_chat")
    assert options["model_info"] == {"base_model": "gpt-5.2", "max_output": 9000}


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("gpt-52", "model_info names 'gpt-52', which is not in the catalog; did you mean gpt-5"),
        ("{windows: 1}", "model.model_info: unknown in model_info: windows"),
        ("{context_window: big}", "model.model_info: context_window is 'big'; it must be a number"),
    ],
)
def test_a_model_info_that_is_wrong_is_refused_in_words(folder, info, message):
    with pytest.raises(AgentFileError, match=message):
        read(DEPLOYMENT.format(info=info))
