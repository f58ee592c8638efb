"""The plugin for Hermes, in a host that calls it as Hermes does.

Hermes pins older versions of what the other tests need, so it cannot be installed beside them. The
last test runs the real one, in its own environment.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
import sys
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.doors.agents import AGENTS
from benchmarks.doors.life import Life, study
from benchmarks.frameworks.environments import Absent
from tests.conversations import prose
from trimtab.errors import ProviderError, ProviderFailureDetails

SESSION = {"session_id": "s-1", "model": "gpt-4o", "api_mode": "chat_completions"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read_file", "recall")
]


class ContextEngine:
    """What the plugin's engine inherits in Hermes."""

    context_length = 0

    def update_model(self, model: str, context_length: int, **_: Any) -> None:
        self.context_length = context_length


class Host:
    """Hermes: the registrations, and calls of them."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.engine: Any = None
        self.middleware: dict[str, Any] = {}
        module.register(self)

    def register_context_engine(self, engine: Any) -> None:
        self.engine = engine

    def register_middleware(self, kind: str, function: Any) -> None:
        self.middleware[kind] = function

    def start(self, session_id: str = "s-1", window: int = 16_000) -> Any:
        engine = copy.deepcopy(self.engine)
        engine.update_model(model="gpt-4o", context_length=window, base_url="")
        engine.on_session_start(session_id, platform="cli")
        return engine

    def fit(self, messages: list[Any], **changes: Any) -> list[Any]:
        request = {"model": "gpt-4o", "messages": messages, "tools": TOOLS, "max_tokens": 1_000}
        call = {**SESSION, **changes}
        answer = self.middleware["llm_request"](request=request, turn_id="t", **call)
        return messages if answer is None else answer["request"]["messages"]

    def call(self, outcome: Any = "reply", **changes: Any) -> Any:
        def next_call(_: Any) -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        watch = self.middleware["llm_execution"]
        return watch(request={}, next_call=next_call, **{**SESSION, **changes})


@pytest.fixture
def configuration() -> dict[str, Any]:
    return {}


@pytest.fixture
def module(monkeypatch, configuration) -> Any:
    """The plugin's module, as Hermes imports it."""
    hosts = {"agent": {}, "agent.context_engine": {"ContextEngine": ContextEngine}}
    hosts |= {"hermes_cli": {}, "hermes_cli.config": {"load_config": lambda: configuration}}
    for name, names in hosts.items():
        host: Any = ModuleType(name)
        vars(host).update(names)
        monkeypatch.setitem(sys.modules, name, host)
    monkeypatch.delitem(sys.modules, "trimtab.integrations.hermes", raising=False)
    imported = importlib.import_module("trimtab.integrations.hermes")
    monkeypatch.delitem(sys.modules, "trimtab.integrations.hermes")
    return imported


@pytest.fixture
def host(module) -> Host:
    return Host(module)


def history(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are Hermes."},
        {"role": "user", "content": "Read all files."},
    ]
    for number in range(steps):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"/f{number}"})}
        calls = [{"id": f"call_{number}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        text = prose(3_000, f"file {number}")
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
    return messages


def live(host: Host, engine: Any, steps: int, **changes: Any) -> list[Any]:
    """A life; what its last call sent."""
    sent: list[Any] = []
    for count in range(steps + 1):
        sent = host.fit(history(count), **changes)
        host.call(**changes)
        engine.update_from_response({"prompt_tokens": 100, "completion_tokens": 9})
    return sent


def refusal() -> Exception:
    details = ProviderFailureDetails(kind="overflow", limit=8_000, input=9_000, message="too long")
    return ProviderError(details)


def test_hermes_finds_the_plugin_by_its_entry_point():
    (plugin,) = entry_points(group="hermes_agent.plugins", name="trimtab")
    assert plugin.value == "trimtab.integrations.hermes"


def test_a_plugin_that_is_not_chosen_as_engine_changes_nothing(host):
    messages = history(30)
    assert host.fit(messages) is messages
    assert host.call("reply") == "reply"
    assert host.engine.on_session_end("s-1", messages) is None


def test_a_long_session_fits_and_hidden_text_comes_back_byte_for_byte(host):
    engine = host.start()
    sent = live(host, engine, 30)
    assert sum(len(str(each["content"])) for each in sent) < 16_000 * 4
    assert sent[0] == {"role": "system", "content": "You are Hermes."}
    masked = [each for each in sent if each["role"] == "tool" and "recall m" in each["content"]]
    handle = masked[0]["content"].partition("recall ")[2].rstrip("]").split()[0]
    texts = {each["content"] for each in history(30) if each["role"] == "tool"}
    assert engine.handle_tool_call("recall", {"handle": handle}, messages=[]) in texts


def test_messages_that_are_not_edited_are_hermes_own(host):
    engine = host.start()
    live(host, engine, 30)
    messages = history(30)
    own = {id(each) for each in messages}
    sent = host.fit(messages)
    assert messages == history(30)
    assert sum(id(each) in own for each in sent) >= 4


def test_the_engine_offers_both_recall_tools_and_never_compresses(host):
    engine = host.start()
    schemas = engine.get_tool_schemas()
    assert [each["name"] for each in schemas] == ["recall", "search_history"]
    assert all(each["parameters"]["type"] == "object" for each in schemas)
    messages = history(3)
    assert not engine.should_compress(10**9)
    assert not engine.has_content_to_compress(messages)
    assert engine.compress(messages, current_tokens=10**9, force=True) is messages


def test_after_a_refusal_hermes_sends_a_smaller_request(host, module):
    engine = host.start(window=200_000)
    before = live(host, engine, 12)
    host.fit(history(12))
    with pytest.raises(module.SmallerRequestFollows) as caught:
        host.call(refusal())
    # Hermes looks for a refusal in both, and would compress.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    after = host.fit(history(12))
    assert len(json.dumps(after)) < len(json.dumps(before)) / 2


def test_another_error_is_hermes_own(host):
    engine = host.start()
    live(host, engine, 1)
    error = TimeoutError("slow")
    with pytest.raises(TimeoutError) as caught:
        host.call(error)
    assert caught.value is error


def test_a_refusal_of_what_cannot_be_smaller_is_hermes_own(host):
    host.start()
    host.fit([{"role": "user", "content": "Hello."}])
    error = refusal()
    with pytest.raises(ProviderError) as caught:
        host.call(error)
    assert caught.value is error


@pytest.mark.parametrize("messages", [[{"role": "nobody"}], "text"])
def test_a_request_that_cannot_be_read_passes(host, messages, caplog):
    host.start()
    assert host.fit(messages) is messages
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_api_that_is_not_known_passes(host):
    host.start()
    messages = history(30)
    assert host.fit(messages, api_mode="bedrock_converse") is messages


def test_a_sub_agent_has_a_conversation_of_its_own(host, capsys):
    parent, child = host.start("parent"), host.start("child")
    sent = live(host, parent, 30, session_id="parent")
    live(host, child, 3, session_id="child")
    assert host.fit(history(30), session_id="parent") == sent
    child.on_session_end("child", [])
    parent.on_session_end("parent", [])
    first, second = capsys.readouterr().err.splitlines()
    assert first == "trimtab: 4 calls, 0 refused, 0 tokens hidden, all readable"
    assert second.startswith("trimtab: 31 calls, 0 refused, ")
    assert second.endswith("k tokens hidden, all readable")


def test_a_session_without_a_call_ends_without_a_line(host, capsys):
    host.start().on_session_end("s-1", [])
    assert capsys.readouterr().err == ""


def test_options_are_those_of_the_configuration(module, configuration):
    options = {"max_input_tokens": 6_000}
    entry = {"allow_tool_override": False, "options": options}
    configuration["plugins"] = {"entries": {"trimtab": entry}}
    host = Host(module)
    sent = live(host, host.start(window=200_000), 20)
    assert sum(len(str(each["content"])) for each in sent) < 6_000 * 4


def test_an_unknown_option_is_an_error_that_the_user_reads(module, configuration, capsys):
    configuration["plugins"] = {"entries": {"trimtab": {"options": {"goals": "cost"}}}}
    with pytest.raises(TypeError, match="goals"):
        module.register(SimpleNamespace())
    assert capsys.readouterr().err.startswith("trimtab: off, and Hermes compresses: ")


def test_after_a_restart_an_old_handle_names_no_other_text(module):
    handles: list[str] = []
    for _ in range(2):
        host = Host(module)
        engine = host.start()
        sent = host.fit(history(30))
        for handle in handles:
            answer = engine.handle_tool_call("recall", {"handle": handle}, messages=[])
            assert answer.startswith(f"[there is no {handle}")
        handles += re.findall(r"recall (m[\d.]+(?:~\w+)?)", str(sent))
    assert len(handles) == len(set(handles)) > 2


@pytest.mark.process
@pytest.mark.soak
def test_the_real_hermes_goes_on_after_a_refusal():
    (agent,) = (each for each in AGENTS if each.name == "hermes")
    try:
        agent.find()
    except Absent as absent:
        pytest.skip(str(absent))
    life = Life(files=24, window=64_000, believed=200_000)
    run = agent.run(life, with_trimtab=True)
    figures = study(run.recorded.requests)
    assert (figures["calls"], figures["refused"]) == (25, 1), run.output
    assert "trimtab: 26 calls, 1 refused" in run.output
