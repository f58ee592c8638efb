import copy
import json

import pytest

from tests.dialects.rounds import prompt, rendered
from trimtab import Context, check, fit
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.engine.log.message import (
    Media,
    Message,
    OpaqueBlock,
    Text,
    ToolCall,
    ToolResult,
    make_text_message,
)
from trimtab.engine.prompt.render import PromptBlock

anthropic, chat, responses = map(get_dialect, DIALECT_NAMES)
EPHEMERAL = {"type": "ephemeral"}
BREAKPOINT = {"mode": "explicit"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def talk(spoken, *texts):
    roles = ("user", "assistant")
    return rendered(spoken, [make_text_message(roles[i % 2], t) for i, t in enumerate(texts)])


def marked(request):
    """Where an Anthropic request carries marks: part and text or name."""
    out = [f"tool {tool['name']}" for tool in request.get("tools", ()) if "cache_control" in tool]
    if isinstance(request.get("system"), list):
        out += [f"system {b['text']}" for b in request["system"] if "cache_control" in b]
    for message in request["messages"]:
        out += [b.get("text", b["type"]) for b in message["content"] if "cache_control" in b]
    return out


def test_an_anthropic_request_is_whole():
    said = anthropic.build_request_kwargs(
        prompt(
            anthropic,
            talk(anthropic, "one", "two", "three"),
            system=anthropic.parse_system_messages("be brief"),
            tools=[TOOL],
            params={"temperature": 0.5, "messages": "mine"},
            stream=True,
            volatile="it is noon",
        )
    )
    assert said == {
        "model": "some-model",
        "max_tokens": 100,
        "temperature": 0.5,
        "system": "be brief",
        "tools": [TOOL],
        "stream": True,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "three"},
                    {"type": "text", "text": "it is noon"},
                ],
            },
        ],
    }


def test_a_chat_request_is_whole():
    said = chat.build_request_kwargs(
        prompt(
            chat,
            talk(chat, "one", "two"),
            system=chat.parse_system_messages("be brief"),
            tools=chat.render_tools([TOOL]),
            params={"max_tokens": 5, "messages": "mine", "seed": 1},
            stream=True,
            volatile="it is noon",
        )
    )
    assert said == {
        "model": "some-model",
        "max_completion_tokens": 100,
        "seed": 1,
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "it is noon"},
        ],
    }


def test_a_responses_request_is_whole():
    said = responses.build_request_kwargs(
        prompt(
            responses,
            talk(responses, "one", "two"),
            system=responses.parse_system_messages("be brief"),
            model="o3",
            params={"include": ["file_search_call.results"], "input": "mine"},
            marks=(-1, 0),
        )
    )
    assert said == {
        "model": "o3",
        "max_output_tokens": 100,
        "store": False,
        "include": ["file_search_call.results", "reasoning.encrypted_content"],
        "instructions": "be brief",
        "input": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
    }


def test_a_system_prompt_of_several_messages_leads_the_input():
    system = responses.parse_system_messages(
        [
            {"role": "developer", "content": "be brief"},
            {"role": "system", "content": "be kind"},
        ]
    )
    said = responses.build_request_kwargs(prompt(responses, talk(responses, "one"), system=system))
    assert "instructions" not in said
    assert [item["role"] for item in said["input"]] == ["developer", "system", "user"]


def test_a_conversation_that_an_assistant_begins_gets_a_user_first():
    blocks = anthropic.render_round_blocks([make_text_message("assistant", "hello")])
    said = anthropic.build_request_kwargs(prompt(anthropic, blocks))
    first = {"role": "user", "content": [{"type": "text", "text": "(conversation start)"}]}
    assert said["messages"][0] == first
    assert anthropic.find_request_errors(said) == []


def test_a_reply_to_be_continued_loses_its_trailing_space():
    blocks = talk(anthropic, "say it", "so \n")
    said = anthropic.build_request_kwargs(prompt(anthropic, blocks))
    assert said["messages"][-1]["content"] == [{"type": "text", "text": "so"}]
    assert blocks[-1].body["text"] == "so \n"


def test_marks_are_put_on_copies_of_the_marked_blocks():
    blocks = talk(anthropic, "one", "two", "three")
    before = copy.deepcopy(blocks)
    said = anthropic.build_request_kwargs(
        prompt(
            anthropic,
            blocks,
            system=anthropic.parse_system_messages("be brief"),
            tools=[TOOL],
            marks=(-1, 0, 2),
            volatile="it is noon",
        )
    )
    assert marked(said) == ["system be brief", "one", "three"]
    assert blocks == before
    assert "cache_control" not in TOOL


def test_without_a_system_prompt_the_head_s_mark_is_on_the_last_tool():
    said = anthropic.build_request_kwargs(
        prompt(anthropic, talk(anthropic, "one"), tools=[TOOL], marks=(-1,))
    )
    assert marked(said) == ["tool f"]


def test_without_system_and_tools_the_head_s_mark_is_left_out():
    said = anthropic.build_request_kwargs(prompt(anthropic, talk(anthropic, "one"), marks=(-1, 7)))
    assert marked(said) == []


def test_a_mark_on_thinking_moves_to_the_block_before_it():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [*talk(anthropic, "one"), PromptBlock(role="assistant", body=thinking)]
    said = anthropic.build_request_kwargs(prompt(anthropic, blocks, marks=(1,)))
    assert marked(said) == ["one"]


def test_of_more_than_four_marks_the_head_s_and_the_latest_stay_and_the_caller_s_own_count():
    own = {"type": "text", "text": "own", "cache_control": EPHEMERAL}
    inner = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "text", "text": "inner", "cache_control": EPHEMERAL}],
    }
    blocks = [
        PromptBlock(role="user", body=own),
        *talk(anthropic, "one", "two", "three"),
        PromptBlock(role="user", body=inner),
    ]
    system = anthropic.parse_system_messages(
        [{"type": "text", "text": "s", "cache_control": EPHEMERAL}]
    )
    said = anthropic.build_request_kwargs(prompt(anthropic, blocks, system=system, marks=(1, 2, 3)))
    assert marked(said) == ["system s", "two", "three"]
    assert said["messages"][-1]["content"][-1] == inner
    assert not any("A maximum of 4 blocks" in each for each in anthropic.find_request_errors(said))
    assert own["cache_control"] == EPHEMERAL
    crowded = prompt(anthropic, [blocks[-1]] * 5, marks=())
    stripped = anthropic.build_request_kwargs(crowded)["messages"][0]["content"]
    assert stripped[0]["content"] == [{"type": "text", "text": "inner"}]
    assert stripped[1:] == [inner] * 4


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((-1, 2), ["tool b", "system s", "three"]),
        ((-1, 1, 2), ["tool b", "system s", "two", "three"]),
        ((-1, 0, 1, 2), ["tool b", "one", "two", "three"]),
        ((0, 1, 2, 3), ["tool b", "two", "three", "four"]),
    ],
)
def test_one_mark_is_the_standard_tools_where_others_are_selected_for_a_turn(marks, expected):
    tools = [{**TOOL, "name": name} for name in ("a", "b", "c", "d")]
    said = anthropic.build_request_kwargs(
        prompt(
            anthropic,
            talk(anthropic, "one", "two", "three", "four"),
            system=anthropic.parse_system_messages("s"),
            tools=tools,
            selected_tools=2,
            marks=marks,
        )
    )
    assert marked(said) == expected
    assert anthropic.find_request_errors(said) == []


def test_without_standard_tools_none_of_the_selected_is_marked():
    said = anthropic.build_request_kwargs(
        prompt(
            anthropic,
            talk(anthropic, "one"),
            system=anthropic.parse_system_messages("s"),
            tools=[TOOL],
            selected_tools=1,
            marks=(-1, 0),
        )
    )
    assert marked(said) == ["system s", "one"]


def test_the_callers_own_mark_on_the_standard_tools_is_the_one_that_is_kept():
    own = {**TOOL, "name": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    said = anthropic.build_request_kwargs(
        prompt(
            anthropic,
            talk(anthropic, "one", "two", "three", "four"),
            system=anthropic.parse_system_messages("s"),
            tools=[own, TOOL],
            selected_tools=1,
            marks=(-1, 0, 1, 2, 3),
        )
    )
    assert marked(said) == ["tool a", "two", "three", "four"]
    assert said["tools"][0] == own


def test_a_mark_before_one_of_an_hour_is_of_an_hour():
    hour = {"type": "ephemeral", "ttl": "1h"}
    own = {"type": "text", "text": "own", "cache_control": hour}
    blocks = [*talk(anthropic, "one"), PromptBlock(role="user", body=own), *talk(anthropic, "two")]
    said = anthropic.build_request_kwargs(prompt(anthropic, blocks, marks=(0, 2)))
    controls = [block.get("cache_control") for block in said["messages"][0]["content"]]
    assert controls == [hour, hour, EPHEMERAL]


@pytest.mark.parametrize("place", ["system", "tools", "message"])
def test_an_hour_for_all_marks_includes_the_callers_own(place):
    own = {"type": "text", "text": "own", "cache_control": EPHEMERAL}
    context = Context(
        "claude-sonnet-5-5",
        cache="1h",
        system=[own] if place == "system" else "s",
        tools=[{**TOOL, "cache_control": EPHEMERAL}] if place == "tools" else [],
    )
    context.add({"role": "user", "content": [own] if place == "message" else "hi"})
    context.add({"role": "assistant", "content": "hello"})
    context.add({"role": "user", "content": "more"})
    said = context.request()
    assert check(said) == []
    assert '"ephemeral"}' not in json.dumps(said)


def test_the_callers_mark_of_an_hour_changes_his_marks_before_it():
    hour = {"type": "ephemeral", "ttl": "1h"}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    messages[0]["content"][0]["cache_control"] = EPHEMERAL
    context = Context("claude-sonnet-4-5")
    context.sync(messages)
    context.request()
    # The caller moves the mark, and asks for an hour.
    del messages[0]["content"][0]["cache_control"]
    moved = {"type": "text", "text": "b", "cache_control": hour}
    messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": [moved]}]
    context.sync(messages)
    said = context.request()
    assert check(said) == []
    assert said["messages"][-1]["content"][0]["cache_control"] == hour


def test_texts_of_the_other_apis_become_texts_of_the_responses_api():
    def said(text):
        return [{"type": "text", "text": text}]

    picture = {"type": "input_image", "image_url": "https://example.org/a.png"}
    messages = [
        {"role": "user", "content": [*said("a"), picture]},
        {"role": "assistant", "content": [*said("b"), {"type": "refusal", "refusal": "no"}]},
        {"role": "system", "content": said("c")},
        {"role": "user", "content": [{"type": "output_text", "text": "d", "annotations": []}]},
        {"role": "assistant", "content": [{"type": "input_text", "text": "e"}]},
        {"role": "user", "content": "f"},
    ]
    request = fit(messages, model="gpt-5.2", dialect="openai_responses").request
    assert check(request) == []
    assert [
        content
        if isinstance(content := item["content"], str)
        else [part["type"] for part in content]
        for item in request["input"]
    ] == [
        ["input_text", "input_image"],
        ["output_text", "refusal"],
        ["input_text"],
        ["input_text"],
        ["output_text"],
        "f",
    ]


def test_openai_gets_no_marks_where_the_model_is_not_known_to_take_them():
    for spoken in (chat, responses):
        for model in ("gpt-5.5", "gpt-4o", "gpt-5", "gpt-4.1-mini", "openai/gpt-5.6", "llama"):
            blocks = talk(spoken, "one", "two")
            plain = spoken.build_request_kwargs(prompt(spoken, blocks, model=model))
            assert (
                spoken.build_request_kwargs(prompt(spoken, blocks, model=model, marks=(0, 1)))
                == plain
            )


@pytest.mark.parametrize("model", ["gpt-5.6", "gpt-5.6-mini", "gpt-5.10", "gpt-6"])
def test_openai_gets_breakpoints_from_gpt_5_6_on(model):
    system = chat.parse_system_messages("be brief")
    said = chat.build_request_kwargs(
        prompt(chat, talk(chat, "1", "2"), model=model, system=system, marks=(-1, 1))
    )
    assert [message["content"] for message in said["messages"]] == [
        [{"type": "text", "text": "be brief", "prompt_cache_breakpoint": BREAKPOINT}],
        "1",
        [{"type": "text", "text": "2", "prompt_cache_breakpoint": BREAKPOINT}],
    ]
    # An assistant's item cannot carry one: it moves to the user's before it.
    blocks = talk(responses, "1", "2")
    system = responses.parse_system_messages("be brief")
    said = responses.build_request_kwargs(
        prompt(responses, blocks, model=model, system=system, marks=(-1, 1))
    )
    assert "instructions" not in said
    assert [item["content"] for item in said["input"]] == [
        [{"type": "input_text", "text": "be brief", "prompt_cache_breakpoint": BREAKPOINT}],
        [{"type": "input_text", "text": "1", "prompt_cache_breakpoint": BREAKPOINT}],
        "2",
    ]


def round_of_two():
    return [
        Message(
            role="assistant",
            parts=(
                Text(text="I look."),
                ToolCall(id="a:1", name="ns.read", arguments='{"p": "x"}'),
                ToolCall(id="b", name="run", arguments="not json"),
            ),
        ),
        Message(role="tool", parts=(ToolResult(call_id="a:1", content=(Text(text="A"),)),)),
        Message(
            role="tool",
            parts=(
                ToolResult(
                    call_id="b",
                    content=(Text(text="B"), Media(kind="image", mime="image/png", data="AAAA")),
                    plain=False,
                    is_error=True,
                ),
            ),
        ),
        make_text_message("user", "hurry"),
        make_text_message("system", "notice"),
    ]


def test_a_round_made_by_hand_renders_to_anthropic():
    blocks = anthropic.render_round_blocks(round_of_two())
    mapped = blocks[1].body["id"]
    assert mapped.startswith("call_")
    assert [(block.role, block.body) for block in blocks] == [
        ("assistant", {"type": "text", "text": "I look."}),
        (
            "assistant",
            {"type": "tool_use", "id": mapped, "name": "ns_read", "input": {"p": "x"}},
        ),
        (
            "assistant",
            {"type": "tool_use", "id": "b", "name": "run", "input": {"arguments": "not json"}},
        ),
        ("user", {"type": "tool_result", "tool_use_id": mapped, "content": "A"}),
        (
            "user",
            {
                "type": "tool_result",
                "tool_use_id": "b",
                "content": [
                    {"type": "text", "text": "Error: B"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                    },
                ],
            },
        ),
        ("user", {"type": "text", "text": "hurry"}),
        ("system", {"type": "text", "text": "notice"}),
    ]


def test_a_round_made_by_hand_renders_to_chat():
    assert [block.body for block in chat.render_round_blocks(round_of_two())] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "a:1",
                    "type": "function",
                    "function": {"name": "ns_read", "arguments": '{"p": "x"}'},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "run", "arguments": '{"arguments":"not json"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "a:1", "content": "A"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "Error: B\n[image omitted: not supported here]",
        },
        {"role": "user", "content": "hurry"},
        {"role": "system", "content": "notice"},
    ]


def test_a_round_made_by_hand_renders_to_responses():
    assert [block.body for block in responses.render_round_blocks(round_of_two())] == [
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a:1", "name": "ns_read", "arguments": '{"p": "x"}'},
        {
            "type": "function_call",
            "call_id": "b",
            "name": "run",
            "arguments": '{"arguments":"not json"}',
        },
        {"type": "function_call_output", "call_id": "a:1", "output": "A"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [
                {"type": "input_text", "text": "Error: B"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,AAAA",
                    "detail": "auto",
                },
            ],
        },
        {"role": "user", "content": "hurry"},
        {"role": "system", "content": "notice"},
    ]


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_call_and_its_result_agree_on_an_id_that_no_wire_takes(name):
    long = "é" * 100
    blocks = get_dialect(name).render_round_blocks(
        [
            Message(role="assistant", parts=(ToolCall(id=long, name="f", arguments=""),)),
            Message(role="tool", parts=(ToolResult(call_id=long, content=()),)),
        ]
    )
    spoken = get_dialect(name)
    said = spoken.build_request_kwargs(prompt(spoken, blocks))
    assert spoken.find_request_errors(said) == []
    assert "é" not in str(said)


def test_media_that_a_wire_cannot_carry_are_named():
    video = Message(role="user", parts=(Media(kind="video", url="https://example.org/v"),))
    for spoken in (anthropic, chat, responses):
        assert "[video omitted: not supported here]" in str(
            spoken.render_round_blocks([video])[0].body
        )


def test_an_assistant_left_with_nothing_says_so():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    silent = anthropic.parse_message({"role": "assistant", "content": [thinking]})
    assert chat.render_round_blocks([silent])[0].body == {
        "role": "assistant",
        "content": "(no content)",
    }
    assert responses.render_round_blocks([silent])[0].body["content"] == "(no content)"
    empty = chat.parse_message({"role": "assistant", "content": ""})
    assert anthropic.render_round_blocks([empty])[0].body == {
        "type": "text",
        "text": "(no content)",
    }


def test_reasoning_that_led_to_nothing_is_not_sent():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    message = responses.parse_message(reasoning)
    assert responses.serialize_history([message]) == [reasoning]
    assert responses.render_round_blocks([message])[0].body == {
        "role": "assistant",
        "content": "(no content)",
    }


def test_assistant_messages_of_one_round_are_one_chat_message():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        chat.parse_message({"role": "assistant", "content": "first"}),
        chat.parse_message({"role": "assistant", "content": None, "tool_calls": [call]}),
        chat.parse_message({"role": "assistant", "content": [{"type": "text", "text": "then"}]}),
    ]
    assert [block.body for block in chat.render_round_blocks(said[:2])] == [
        {"role": "assistant", "content": "first", "tool_calls": [call]}
    ]
    assert chat.render_round_blocks(said)[0].body["content"] == [
        {"type": "text", "text": "first"},
        {"type": "text", "text": "then"},
    ]


def test_a_system_message_among_anthropic_s_own_keeps_its_role():
    wire = {"role": "system", "content": "from now on"}
    (block,) = anthropic.render_round_blocks([anthropic.parse_message(wire)])
    assert (block.role, block.body) == ("system", {"type": "text", "text": "from now on"})


def test_a_plain_text_document_is_text_to_the_others():
    source = {"type": "text", "media_type": "text/plain", "data": "all of it"}
    wire = {"role": "user", "content": [{"type": "document", "source": source, "title": "t"}]}
    message = anthropic.parse_message(wire)
    assert anthropic.render_round_blocks([message])[0].body == wire["content"][0]
    assert chat.render_round_blocks([message])[0].body == {"role": "user", "content": "all of it"}


def test_reasoning_of_a_chat_server_is_one_part_and_held_nowhere_else():
    wire = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    message = chat.parse_message(wire)
    assert message.extra is None
    assert message.parts[0] == OpaqueBlock(data={"reasoning_content": "hm"}, thinking=True)
    assert chat.render_round_blocks([message])[0].body == wire


def test_a_result_of_empty_texts_is_sent_without_content():
    empty = ToolResult(call_id="c", content=(Text(text=""), Text(text=" ")), plain=False)
    (block,) = anthropic.render_round_blocks([Message(role="tool", parts=(empty,))])
    assert block.body == {"type": "tool_result", "tool_use_id": "c"}
