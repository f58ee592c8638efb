"""What today's agents send, and what they get."""

from __future__ import annotations

import pytest

from tests.lazy import anthropic, openai
from tests.testing.requests import CLAUDE, GPT, TOOLS, user
from trimtab.testing.server import ProviderSimulator

THREADS = {"anthropic-beta": "message-threads-2026-08-12"}
CREATE = {"thread": {"type": "create"}}
CALL = {"calls": [{"name": "read", "arguments": {"path": "a"}}]}


def continue_from(reply):
    return {"thread": {"type": "continue", "previous_message_id": reply.id}}


def ask(claude, *messages, body, **more):
    return claude.messages.create(
        model=CLAUDE,
        max_tokens=100,
        messages=list(messages),
        extra_headers=THREADS,
        extra_body=body,
        **more,
    )


def refusal_of(caught):
    return caught.value.body["error"].get("details") or {}


def test_a_thread_holds_the_conversation_and_its_head(
    claude: anthropic.Anthropic, simulator: ProviderSimulator
):
    simulator.script.set_replies(["Hello, Ann.", {"calls": 1}])
    first = ask(claude, user("I am Ann."), body=CREATE, tools=TOOLS["anthropic"], system="Read.")
    second = ask(claude, user("Read."), body=continue_from(first))
    assert second.content[0].name == "read"
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_reply_is_continued_only_once(claude: anthropic.Anthropic):
    first = ask(claude, user("one"), body=CREATE)
    ask(claude, user("two"), body=continue_from(first))
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, user("again"), body=continue_from(first))
    assert refusal_of(caught) == {"error_code": "thread_already_continued"}


def test_an_unknown_thread_is_not_found(claude: anthropic.Anthropic):
    body = {"thread": {"type": "continue", "previous_message_id": "msg_gone"}}
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(claude, user("two"), body=body)
    assert refusal_of(caught) == {"error_code": "thread_not_found"}


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("cache_control", {"type": "ephemeral"}),
        ("context_management", {"edits": []}),
        ("thinking", {"type": "adaptive"}),
    ],
)
def test_what_threads_do_not_support_is_named(claude: anthropic.Anthropic, name, parameter):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, user("one"), body={**CREATE, name: parameter})
    assert refusal_of(caught) == {
        "error_code": "thread_unsupported_request",
        "unsupported": [name],
    }


def test_a_mark_on_a_block_is_a_cache_control_too(claude: anthropic.Anthropic):
    marked = {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, user([marked]), body=CREATE)
    assert refusal_of(caught)["unsupported"] == ["cache_control"]


def test_a_continued_thread_takes_no_system_prompt(claude: anthropic.Anthropic):
    first = ask(claude, user("one"), body=CREATE)
    with pytest.raises(anthropic.BadRequestError, match="system: a request that continues"):
        ask(claude, user("two"), body=continue_from(first), system="Read.")


def test_without_its_beta_a_thread_is_an_unknown_parameter(claude: anthropic.Anthropic):
    with pytest.raises(anthropic.BadRequestError, match="thread: Extra inputs"):
        claude.messages.create(
            model=CLAUDE, max_tokens=9, messages=[user("one")], extra_body=CREATE
        )


def test_responses_takes_the_metadata_of_a_client(gpt: openai.OpenAI):
    metadata = {"client_metadata": {"session_id": "s"}}
    assert gpt.responses.create(model=GPT, input="hello", extra_body=metadata).output_text


def test_chat_does_not_know_the_metadata_of_a_client(gpt: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'client_metadata'"):
        gpt.chat.completions.create(
            model=GPT, messages=[user("hello")], extra_body={"client_metadata": {}}
        )


def test_a_tool_of_a_namespace_is_called_with_it(gpt: openai.OpenAI, simulator: ProviderSimulator):
    simulator.script.set_replies([{"calls": 1}, "done"])
    tools = [
        {
            "type": "namespace",
            "name": "crm",
            "description": "CRM.",
            "tools": TOOLS["openai_responses"],
        }
    ]
    first = gpt.responses.create(model=GPT, input=[user("read")], tools=tools)
    call = first.output[0]
    assert (call.namespace, call.name) == ("crm", "read")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
    items = [user("read"), call.to_dict(), output]
    assert gpt.responses.create(model=GPT, input=items, tools=tools).output_text == "done"


def test_a_deferred_tool_is_called_only_after_something_loaded_it(
    gpt: openai.OpenAI, simulator: ProviderSimulator
):
    simulator.script.set_replies([{"calls": 1}, {"calls": 1}])
    deferred = {**TOOLS["openai_responses"][0], "defer_loading": True}
    tools = [{"type": "tool_search", "execution": "client"}, deferred]
    before = gpt.responses.create(model=GPT, input="read", tools=tools)
    assert [item.type for item in before.output] == ["message"]
    search = {"type": "tool_search_call", "call_id": "s", "arguments": {}, "execution": "client"}
    loaded = {"type": "tool_search_output", "call_id": "s", "tools": [deferred]}
    after = gpt.responses.create(
        model=GPT, input=[user("read"), search, {**loaded, "execution": "client"}], tools=tools
    )
    assert [item.type for item in after.output] == ["function_call"]


@pytest.mark.parametrize(
    "instruction",
    [
        "Your task is to create a detailed summary of the conversation so far.",
        "You are performing a context checkpoint. Create a handoff summary for another LLM.",
        "The messages above are a conversation to summarize. Create a checkpoint summary.",
        "You are a summarization agent creating a context checkpoint. Turns follow.",
    ],
)
def test_a_request_for_a_summary_gets_one_and_the_script_goes_on_after_it(
    claude: anthropic.Anthropic, simulator: ProviderSimulator, instruction
):
    simulator.script.set_replies([CALL])
    history = [user("Count the files."), {"role": "assistant", "content": "Yes."}]
    tools = {"model": CLAUDE, "max_tokens": 200, "tools": TOOLS["anthropic"]}
    summary = claude.messages.create(messages=[*history, user(instruction)], **tools)
    assert "Count the files." in summary.content[0].text
    assert simulator.script.steps_left() == 1
    reply = claude.messages.create(messages=[*history, user("go on")], **tools)
    assert reply.content[0].type == "tool_use"


def test_a_task_about_a_summary_takes_the_next_step(
    claude: anthropic.Anthropic, simulator: ProviderSimulator
):
    simulator.script.set_replies([CALL])
    reply = claude.messages.create(
        model=CLAUDE,
        max_tokens=100,
        messages=[user("Write a summary of report.txt.")],
        tools=TOOLS["anthropic"],
    )
    assert reply.content[0].type == "tool_use"


def test_a_scripted_summary_is_taken_as_it_is(
    claude: anthropic.Anthropic, simulator: ProviderSimulator
):
    simulator.script.set_replies(["All about Ann."])
    text = "Write a summary of the conversation."
    reply = claude.messages.create(model=CLAUDE, max_tokens=100, messages=[user(text)])
    assert reply.content[0].text == "All about Ann."
