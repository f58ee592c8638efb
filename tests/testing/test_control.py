"""Scripts, records and control from within and from another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lazy import openai
from tests.testing.requests import CLAUDE, GPT, TOOLS, user
from trimtab.testing import serve_simulated_provider
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider
from trimtab.testing.server.script import parse_script_steps

HELLO = {"messages": [user("hello")]}


def chat(client, **more):
    return client.chat.completions.create(**{"model": GPT, **HELLO, **more}).choices[0].message


def test_what_was_received_is_kept_byte_for_byte(served, gpt, claude):
    chat(gpt, messages=[user("naïve 👍")])
    claude.messages.create(model=CLAUDE, max_tokens=10, **HELLO)
    first, second = served.simulator.records.requests
    assert first.body == {"messages": [user("naïve 👍")], "model": GPT}
    assert second.body == {"max_tokens": 10, **HELLO, "model": CLAUDE}
    assert (first.dialect, second.dialect) == ("openai_chat", "anthropic")
    remote = RemoteSimulator(url=served.url)
    assert [each["body"] for each in remote.list_requests()] == [first.body, second.body]
    assert remote.list_requests(after_number=first.number)[0]["body"] == second.body
    assert json.loads(first.raw) == first.body


def test_a_refused_request_is_recorded_with_the_reason(gpt, simulator):
    with pytest.raises(openai.BadRequestError):
        chat(gpt, messages=[{"role": "tool", "tool_call_id": "a", "content": "b"}])
    record = simulator.records.requests[-1]
    assert (record.fate, record.status) == ("violation", 400)
    assert "must be a response" in record.message


def test_a_plan_is_calls_and_then_a_text(gpt, simulator):
    simulator.script.set_replies([{"tool_calls": 2, "parallel": 3, "then": "Done."}])
    replies = [chat(gpt, tools=TOOLS["openai_chat"]) for _ in range(3)]
    assert [len(reply.tool_calls or ()) for reply in replies] == [3, 3, 0]
    assert replies[-1].content == "Done."


def test_the_users_word_scripts_its_turn(gpt):
    turn = user('simulate: {"tool_calls": 1, "then": "Done."}\nand now the rest')
    replies = [chat(gpt, messages=[turn], tools=TOOLS["openai_chat"]) for _ in range(3)]
    assert [bool(reply.tool_calls) for reply in replies] == [True, False, True]


def test_a_header_scripts_its_own_request(gpt, simulator):
    simulator.script.set_replies(["queued"])
    header = {"x-simulate": json.dumps({"text": "mine"})}
    assert chat(gpt, extra_headers=header).content == "mine"
    assert chat(gpt).content == "queued"


def test_keys_have_scripts_of_their_own(served, gpt):
    served.simulator.script.set_replies(["for all"], repeat=True)
    served.simulator.script.set_replies(["for one"], key="one", repeat=True)
    with openai.OpenAI(base_url=served.openai_url, api_key="one") as other:
        assert chat(other).content == "for one"
    assert [chat(gpt).content for _ in range(2)] == ["for all"] * 2


def test_a_refused_request_takes_no_step(gpt, simulator):
    simulator.script.set_replies(["kept"])
    with pytest.raises(openai.BadRequestError):
        chat(gpt, messages=[{"role": "tool", "tool_call_id": "a", "content": "b"}])
    assert chat(gpt).content == "kept"


@pytest.mark.parametrize(
    "wrong",
    [
        {"txt": "a"},
        {"fault": "none"},
        None,
        {"then": "a", "rounds": 3},
        {"tool": "read"},
        {"calls": "read"},
        {"calls": [{"tool": "read"}]},
    ],
    ids=str,
)
def test_a_step_that_makes_no_sense_is_refused_at_once(wrong, served):
    with pytest.raises(ValueError, match=r"^a step|unknown (in a step|fault|in a plan)"):
        parse_script_steps(wrong)
    with pytest.raises(ValueError, match="the simulator refused POST script"):
        RemoteSimulator(url=served.url).set_replies([wrong])


def test_an_unknown_fault_is_answered_with_those_that_there_are():
    with pytest.raises(
        ValueError, match=r"'auth'; the faults are anthropic, .*, auth_token, forbidden,"
    ):
        parse_script_steps({"fault": "auth"})


def test_options_and_the_clock_are_set_from_outside(served, simulator):
    remote = RemoteSimulator(url=served.url)
    remote.configure(window=1_234, api_keys=["a"])
    assert (simulator.options.window, simulator.options.api_keys) == (1_234, ("a",))
    before = simulator.now()
    remote.advance_clock(1_000)
    assert simulator.now() >= before + 1_000
    with pytest.raises(ValueError, match="unknown option windows"):
        remote.configure(windows=1)


@pytest.mark.process
def test_a_process_of_its_own_is_started_controlled_and_ended():
    with spawn_simulated_provider(window=2_000, seed="x") as remote:
        remote.set_replies(["Good morning."])
        with openai.OpenAI(base_url=remote.openai_url, api_key="k", max_retries=0) as client:
            assert chat(client).content == "Good morning."
            with pytest.raises(openai.BadRequestError, match="length is 2000 tokens"):
                chat(client, max_tokens=2_000)
        assert remote.stats()["overflow"] == 1
        assert remote.call_control("GET", "faults")["anthropic"] == "overflow"
        remote.reset()
        assert remote.stats()["requests"] == 0


@pytest.mark.parametrize("whole", ["Good morning.", {"text": "Good morning."}, 5], ids=str)
def test_a_script_is_a_list_and_nothing_else(whole, simulator):
    for take in (simulator.script.set_replies, simulator.script.add_replies):
        with pytest.raises(ValueError, match="a script must be a list of steps"):
            take(whole)


def run(*arguments, without=""):
    """The command in a process of its own, as if a package were not installed."""
    code = f"import sys, runpy\nsys.modules[{without!r}] = None\nsys.argv[1:] = {arguments!r}\n"
    code += "runpy.run_module('trimtab.testing.server', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["--script", '"hello"'],
            "a script must be a list of steps, not 'hello'; write [ … ] around",
        ),
        (["--script", "hello"], "--script is not JSON: Expecting value"),
        (["--script", '[{"tool": "x"}]'], "a step with the tool 'x' calls nothing; add"),
        (["--script", '[{"says": "x"}]'], "unknown in a step: says; use calls, "),
        (["--set", "window=big"], "--set window is not JSON"),
    ],
)
def test_the_command_refuses_a_wrong_option_in_one_line(arguments, why):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"trimtab.testing.server: {why}")
    assert done.stderr.count("\n") == 1


@pytest.mark.process
@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_without_its_extra_the_command_says_what_to_install(package):
    done = run(without=package)
    why = f"{package} not installed; run: pip install 'trimtab[testing]'"
    assert (done.returncode, done.stderr) == (2, f"trimtab.testing.server: {why}\n")


@pytest.mark.process
def test_the_help_of_the_command_says_how_a_script_is_written():
    told = run("--help").stdout
    for word in ("--script", "`calls`", "`fault`", "for example:", '{"tool_calls": 3'):
        assert word in told


def test_a_missing_package_is_named_with_the_extra_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ModuleNotFoundError) as error, serve_simulated_provider():
        pass
    assert "pip install 'trimtab[testing]'" in str(error.value)


def test_every_key_of_a_step_is_in_the_error_and_on_the_page():
    with pytest.raises(ValueError, match="unknown in a step: says; use ") as caught:
        parse_script_steps({"says": "x"})
    names = str(caught.value).partition("; use ")[2].split(", ")
    assert {"repeat", "tool_calls", "parallel", "then", "truncate"} <= set(names)
    page = (Path(__file__).parents[2] / "docs/cookbook/testing-your-agent.md").read_text(
        encoding="utf-8"
    )
    table = page.partition("| key | meaning |")[2]
    assert [name for name in names if f"`{name}`" not in table] == []
