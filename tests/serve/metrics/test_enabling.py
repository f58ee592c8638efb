"""Who watches, and what it costs where nobody does."""

import json
import logging
import subprocess
import sys
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serve.process.processes import free_port, serving, write_agent
from tests.serve.service.served_agents import agent
from tests.session.turns.sessions import Hand, create, say
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.observe import instrument
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio


def ran(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.process
def test_where_nobody_watches_nothing_is_loaded_and_nothing_is_in_between():
    code = (
        "import sys; from trimtab.observe import instrument; tell = print;"
        "assert instrument(tell, agent='a') is tell;"
        "print([n for n in ('prometheus_client', 'opentelemetry') if n in sys.modules])"
    )
    assert ran(code) == "[]"


@pytest.mark.process
def test_an_opentelemetry_that_nobody_has_set_up_hears_nothing():
    code = (
        "import opentelemetry.trace, opentelemetry.metrics;"
        "from trimtab.observe import instrument; print(instrument(print) "
        "is print)"
    )
    assert ran(code) == "True"


@pytest.mark.process
def test_one_that_is_set_up_hears_turns_by_itself():
    code = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
from trimtab.observe import instrument
print([type(each).__name__ for each in instrument(print)._watchers])
"""
    assert ran(code) == "['TurnSpans']"


@pytest.mark.process
def test_measurements_alone_are_enough():
    code = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
metrics.set_meter_provider(MeterProvider())
from trimtab.observe import instrument
print([type(each).__name__ for each in instrument(print)._watchers])
"""
    assert ran(code) == "['TurnSpans']"


@pytest.mark.process
@pytest.mark.parametrize("missing", ["prometheus_client", "opentelemetry"])
def test_turns_and_channels_run_where_a_library_is_not_installed(missing):
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import asyncio
from trimtab.observe import instrument
from trimtab_serve.metrics import recording
from trimtab.session import Session
from trimtab.session.turn import run_turn
from trimtab.testing import MemoryStore, ScriptedProvider
async def main():
    session = await Session.create(MemoryStore(), "s", model="claude-sonnet-4-5")
    message = {{"role": "user", "content": "Go."}}
    provider = ScriptedProvider("anthropic", ["Hm."])
    return await run_turn(session, provider, message=message, on_event=instrument())
recording.count_inbound_message("default")
with recording.track_open_stream():
    print(asyncio.run(main()).reason)
"""
    assert ran(code) == "done"


@pytest.mark.process
def test_metrics_without_their_library_say_what_to_install():
    code = """
import sys
sys.modules["prometheus_client"] = None
try:
    import trimtab_serve.metrics.prometheus
except ImportError as error:
    print(error)
"""
    assert ran(code) == "metrics need prometheus_client: pip install 'trimtab[serve]'"


@pytest.mark.process
def test_importing_the_metrics_turns_them_on():
    code = """
from trimtab.observe import instrument
from trimtab_serve.metrics import render_metrics
print([type(each).__name__ for each in instrument(print)._watchers])
"""
    assert ran(code) == "['TurnMetrics']"


@pytest.mark.process
def test_a_process_without_http_shows_its_metrics_at_a_port_of_their_own(tmp_path):
    write_agent(tmp_path, "http://127.0.0.1:9")
    port = free_port()
    with serving(tmp_path, "--no-http", "--metrics-port", str(port)) as process:
        assert process.heard[-1]["metrics"] == f"http://127.0.0.1:{port}/metrics"
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            told = answer.read().decode()
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok"}
        assert {"trimtab_queued_messages", "process_open_fds"} <= {
            family.name for family in text_string_to_metric_families(told)
        }
        assert process.end() == 0


async def test_an_agent_is_observed_by_itself_under_its_name(memory, counted):
    helper = agent(ScriptedProvider("anthropic", ["Hm."]), memory)
    session = await helper.open_session("default/helper/one")
    await helper.run_turn(session, say())
    assert counted("trimtab_turns_total", agent="helper", outcome="done") == 1


async def test_a_turn_that_failed_is_a_log_line_that_says_so(memory, caplog):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", [ProviderFailureDetails(kind="auth", message="no")])
    with caplog.at_level(logging.INFO, "trimtab.calls"), pytest.raises(ProviderError):
        await run_turn(session, provider, message=say(), on_event=instrument(agent="helper"))
    assert caplog.records[-1].getMessage().startswith("Turn failed (auth) in ")
    assert vars(caplog.records[-1])["outcome"] == "auth"
    assert caplog.records[-1].levelname == "ERROR"


async def test_calls_tools_and_turns_are_log_lines_with_flat_fields(memory, caplog):
    session = await create(memory)
    provider = ScriptedProvider("anthropic", [ScriptedCall(name="read"), "Zanzibar."])
    with caplog.at_level(logging.INFO, "trimtab.calls"):
        tell = instrument(agent="helper")
        await run_turn(session, provider, [Hand().tool], message=say("Zanzibar?"), on_event=tell)
    records = [each for each in caplog.records if each.name == "trimtab.calls"]
    assert [each.getMessage().partition(":")[0] for each in records] == [
        *("Call of claude-sonnet-4-5", "Tool read", "Call of claude-sonnet-4-5"),
        records[-1].getMessage(),
    ]
    assert records[-1].getMessage().startswith("Turn done in ")
    assert {(each.session, each.agent) for each in records} == {("s", "helper")}
    call = vars(records[0])
    assert call["input_tokens"] > 0
    assert (call["model"], call["outcome"]) == ("claude-sonnet-4-5", "ok")
    assert (vars(records[1])["tool"], vars(records[3])["calls"]) == ("read", 2)
    flat = (str, int, float, type(None))
    own = (
        "session",
        "agent",
        "model",
        "outcome",
        "duration_s",
        "budget_ratio",
        "cost_usd",
        "input_tokens",
    )
    assert all(isinstance(vars(each).get(name), flat) for each in records for name in own)
    assert not [each for each in records if "zanzibar" in str(vars(each)).lower()]
