"""What the real APIs refuse is refused, and the SDKs raise what they raise there."""

from __future__ import annotations

import json

import pytest

from tests.lazy import anthropic, openai
from tests.pictures import BROKEN_INSIDE, PNG_TEXT, jpeg, png
from tests.pictures import text as base64_of
from tests.testing.requests import (
    CLAUDE,
    GPT,
    REASONER,
    THINKING,
    TOOLS,
    marked,
    results,
    told,
    user,
)
from trimtab.testing.server import ProviderSimulator


def use(*ids):
    blocks = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in ids]
    return {"role": "assistant", "content": blocks}


def calls(*ids):
    made = [
        {"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for each in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def tool(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": "found"}


def call_item(call_id):
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"}


def output_item(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


HELLO = user("hello")
FORGED = {"type": "thinking", "thinking": "Hm.", "signature": "AAAAAAAAAAAA"}

MESSAGES = {
    "a call without its result": (
        {"messages": [HELLO, use("a"), user("and?")]},
        "`tool_use` ids were found without `tool_result` blocks immediately after: a",
    ),
    "one of two results": (
        {"messages": [HELLO, use("a", "b"), results("a")]},
        "`tool_use` ids were found without `tool_result` blocks immediately after: b",
    ),
    "a result without its call": (
        {"messages": [results("a")]},
        "unexpected `tool_use_id` found in `tool_result` blocks: a",
    ),
    "an assistant that begins": (
        {"messages": [{"role": "assistant", "content": "Yes?"}, HELLO]},
        'first message must use the "user" role',
    ),
    "a prefill": (
        {"messages": [HELLO, {"role": "assistant", "content": "Yes"}]},
        "does not support assistant message prefill",
    ),
    "an unknown parameter": ({"extra_body": {"max_output": 1}}, "max_output: Extra inputs"),
    "an unknown key of a message": (
        {"messages": [{**HELLO, "name": "ann"}]},
        "messages.0.name: Extra inputs are not permitted",
    ),
    "a thought of somebody else": (
        {
            "messages": [
                HELLO,
                {"role": "assistant", "content": [FORGED, *use("a")["content"]]},
                results("a"),
            ]
        },
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "a thinking budget above the output": (
        {"thinking": THINKING, "max_tokens": 1_000},
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "five marks": (
        {"messages": [user([marked(str(number)) for number in range(5)])]},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "an hour behind five minutes": (
        {"messages": [user([marked("a"), marked("b", "1h")])]},
        "a ttl='1h' cache_control block must not come after a ttl='5m'",
    ),
    "more output than the model has": (
        {"max_tokens": 200_000, "stream": True},
        "max_tokens: 200000 > 128000, which is the maximum allowed",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_the_messages_api_refuses(claude, simulator, case):
    given, words = MESSAGES[case]
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(
            **{"model": CLAUDE, "max_tokens": 2_000, "messages": [HELLO], **given}
        )
    error = told(caught)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert words in error["error"]["message"]
    assert simulator.stats()["violations"] == 1


def picture(data, mime="image/png"):
    source = {"type": "base64", "media_type": mime, "data": base64_of(data)}
    return {"type": "image", "source": source}


def document(data, mime="application/pdf"):
    return {**picture(data, mime), "type": "document"}


def looked(*content):
    result = {"type": "tool_result", "tool_use_id": "a", "content": [*content]}
    return [HELLO, use("a"), user([result])]


HI = {"type": "text", "text": "hello"}
PICTURES = {
    "a type that it does not know": (
        [user([HI, picture(png(), "image/tiff")])],
        (
            "messages.0.content.1.image.source.base64.media_type: Input should be 'image/jpeg', "
            "'image/png', 'image/gif' or 'image/webp'"
        ),
    ),
    "another type than was told": (
        [user([HI, picture(jpeg())])],
        (
            "messages.0.content.1.image.source.base64: The image was specified using the image/png "
            "media type, but the image appears to be a image/jpeg image"
        ),
    ),
    "the same in a result": (
        looked(HI, picture(jpeg())),
        "messages.2.content.0.tool_result.content.1.image.source.base64: The image was specified",
    ),
    "two bytes": ([user([picture(b"AB")])], "Could not process image"),
    "a picture that is cut off": ([user([picture(png()[:30])])], "Could not process image"),
    "pixels that cannot be unpacked": ([user([picture(BROKEN_INSIDE)])], "Could not process image"),
    "a picture that is too wide": (
        [user([picture(png(8_001))])],
        "At least one of the image dimensions exceed max allowed size: 8000 pixels",
    ),
    "many pictures, of which one is wide": (
        [user([HI, picture(png(2_001)), *[picture(png())] * 20])],
        (
            "messages.0.content.1.image.source.base64.data: At least one of the image dimensions "
            "exceed max allowed size for many-image requests: 2000 pixels"
        ),
    ),
    "a picture that is too heavy": (
        [user([picture(png(weight=5_300_000))])],
        "image exceeds 5 MB maximum",
    ),
    "a document that is none": (
        [user([document(b"AB")])],
        "messages.0.content.0.document.source.base64.data: The PDF specified was not valid.",
    ),
}


@pytest.mark.parametrize("case", PICTURES)
def test_the_messages_api_refuses_pictures_and_documents(claude, simulator, case):
    messages, words = PICTURES[case]
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(model=CLAUDE, max_tokens=2_000, messages=messages)
    error = told(caught)
    assert error["error"]["type"] == "invalid_request_error"
    assert words in error["error"]["message"]
    assert simulator.stats()["violations"] == 1


def test_pictures_and_documents_that_are_sound_are_taken(claude):
    blocks = [picture(png(3, 2)), picture(jpeg(), "image/jpeg"), document(b"%PDF-1.4")]
    messages = [user([*blocks, *[picture(png(2_000))] * 20])]
    claude.messages.create(model=CLAUDE, max_tokens=2_000, messages=messages)


def test_what_a_policy_forbids_is_refused(claude, gpt, simulator):
    simulator.configure(forbidden="heron")
    bird = [user("A heron.")]
    with pytest.raises(anthropic.BadRequestError, match="blocked by content filtering policy"):
        claude.messages.create(model=CLAUDE, max_tokens=2_000, messages=bird)
    with pytest.raises(openai.BadRequestError, match="your prompt was flagged"):
        gpt.chat.completions.create(model=GPT, messages=bird)
    with pytest.raises(openai.BadRequestError, match="your prompt was flagged"):
        gpt.responses.create(model=REASONER, input="A heron.")
    claude.messages.create(model=CLAUDE, max_tokens=2_000, messages=[HELLO])


@pytest.mark.parametrize(
    ("data", "code"), [(b"AB", "invalid_image_format"), (BROKEN_INSIDE, "image_parse_error")]
)
def test_openais_apis_refuse_pictures_too(gpt, data, code):
    url = f"data:image/png;base64,{base64_of(data)}"
    sound = f"data:image/png;base64,{PNG_TEXT}"

    def ask(url):
        parts = [{"type": "image_url", "image_url": {"url": url}}]
        gpt.chat.completions.create(model=GPT, messages=[user(parts)])

    def respond(url):
        parts = [{"type": "input_image", "image_url": url, "detail": "auto"}]
        gpt.responses.create(model=REASONER, input=[user(parts)])

    for way in (ask, respond):
        way(sound)
        with pytest.raises(
            openai.BadRequestError, match="You uploaded an unsupported image"
        ) as got:
            way(url)
        assert got.value.code == code


def test_max_tokens_must_be_there(claude):
    with pytest.raises(anthropic.BadRequestError, match="max_tokens: Field required"):
        claude.post("/v1/messages", cast_to=object, body={"model": CLAUDE, "messages": [HELLO]})


CHAT = {
    "a call without its result": (
        {"messages": [HELLO, calls("a"), HELLO]},
        "must be followed by tool messages responding to each 'tool_call_id'",
    ),
    "a result without its call": (
        {"messages": [HELLO, tool("a")]},
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
    ),
    "an unknown parameter": ({"extra_body": {"max_output": 1}}, "Unknown parameter: 'max_output'."),
    "max_tokens of a reasoning model": (
        {"model": REASONER, "max_tokens": 100},
        "Unsupported parameter: 'max_tokens' is not supported with this model.",
    ),
    "more output than the model has": (
        {"max_tokens": 50_000},
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens",
    ),
    "a breakpoint that the model does not know": (
        {
            "messages": [
                user(
                    [{"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}]
                )
            ]
        },
        "Unknown parameter: 'messages[0].content[0].prompt_cache_breakpoint'.",
    ),
}


@pytest.mark.parametrize("case", CHAT)
def test_chat_refuses(gpt, simulator, case):
    given, words = CHAT[case]
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.chat.completions.create(**{"model": GPT, "messages": [HELLO], **given})
    assert told(caught)["type"] == "invalid_request_error"
    assert words in told(caught)["message"]
    assert simulator.stats()["violations"] == 1


REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
RESPONSES = {
    "a call without its output": (
        {"input": [HELLO, call_item("a")]},
        "No tool output found for function call a.",
    ),
    "an output without its call": (
        {"input": [HELLO, output_item("a")]},
        "No tool call found for function call output with call_id a.",
    ),
    "reasoning of somebody else": (
        {"input": [HELLO, {**REASONING, "encrypted_content": "gAAAAx"}, call_item("a")]},
        "could not be verified",
    ),
    "an unknown parameter": ({"extra_body": {"max_tokens": 1}}, "Unknown parameter: 'max_tokens'."),
    "too little output": ({"max_output_tokens": 5}, "Expected a value >= 16, but got 5"),
}


@pytest.mark.parametrize("case", RESPONSES)
def test_responses_refuses(gpt, simulator, case):
    given, words = RESPONSES[case]
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.responses.create(**{"model": REASONER, "input": "hello", **given})
    assert words in told(caught)["message"]
    assert simulator.stats()["violations"] == 1


def test_reasoning_that_was_neither_stored_nor_encrypted_is_not_found(gpt):
    reply = gpt.responses.create(model=REASONER, input="hello", store=False)
    items = [HELLO, *(item.to_dict() for item in reply.output), HELLO]
    with pytest.raises(openai.NotFoundError, match="Items are not persisted when `store`"):
        gpt.responses.create(model=REASONER, input=items, store=False)


def test_an_item_without_its_reasoning_is_refused(gpt):
    reply = gpt.responses.create(model=REASONER, input="hello")
    items = [HELLO, reply.output[1].to_dict(), HELLO]
    with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
        gpt.responses.create(model=REASONER, input=items)


def test_an_open_loop_may_not_lose_its_thinking(claude, simulator):
    simulator.script.set_replies([{"calls": 1}])
    more = {"model": CLAUDE, "max_tokens": 2_000, "thinking": THINKING}
    more["tools"] = TOOLS["anthropic"]
    reply = claude.messages.create(messages=[HELLO], **more)
    call = reply.content[1].id
    with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
        claude.messages.create(messages=[HELLO, use(call), results(call)], **more)


def test_a_thinking_loop_may_lose_whole_rounds_and_no_message_a_part_of_its_thinking(
    claude, simulator
):
    simulator.script.set_replies([{"calls": 1}], repeat=True)
    more = {"model": CLAUDE, "max_tokens": 2_000, "thinking": THINKING}
    more["tools"] = TOOLS["anthropic"]
    messages = [HELLO]
    for _ in range(3):
        reply = claude.messages.create(messages=messages, **more)
        thought, call = reply.content
        said = [
            {"type": "thinking", "thinking": thought.thinking, "signature": thought.signature},
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input},
        ]
        messages += [{"role": "assistant", "content": said}, results(call.id)]
    claude.messages.create(messages=messages, **more)
    for cut in ([HELLO, *messages[3:]], [*messages[:3], *messages[5:]]):
        claude.messages.create(messages=cut, **more)
    thoughts = [message["content"][0] for message in messages[1::2]]
    # One that was between two thoughts of a message is missing; the message goes on from another.
    last = {"role": "assistant", "content": [thoughts[0], *messages[5]["content"]]}
    with pytest.raises(anthropic.BadRequestError, match=r"content\.1: .* cannot be modified"):
        claude.messages.create(messages=[HELLO, last, messages[6]], **more)
    whole = {"role": "assistant", "content": [*thoughts[:2], *messages[5]["content"]]}
    claude.messages.create(messages=[HELLO, whole, messages[6]], **more)


def test_strict_templates_want_roles_to_alternate(gpt, simulator):
    simulator.configure(template="strict")
    late = [HELLO, {"role": "system", "content": "Be brief."}]
    with pytest.raises(openai.BadRequestError, match="System message must be at the beginning"):
        gpt.chat.completions.create(model=GPT, messages=late)
    with pytest.raises(openai.BadRequestError, match="roles must alternate"):
        gpt.chat.completions.create(model=GPT, messages=[HELLO, HELLO])


GARBAGE = [
    b"",
    b"[]",
    b"{",
    b'{"model": 1}',
    b'{"model": "m", "input": [1]}',
    b'{"model": "m", "max_tokens": 1, "messages": 3}',
    b'{"model": "m", "max_tokens": 1, "messages": ["a"]}',
    b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [1]}]}',
    b'{"model": "m", "messages": [{"role": "assistant", "tool_calls": [1]}]}',
]


@pytest.mark.parametrize("raw", GARBAGE)
@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat", "openai_responses"])
def test_garbage_is_refused_and_breaks_nothing(dialect, raw):
    headers = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    outcome = ProviderSimulator().handle_request(dialect, headers, raw)
    told = json.loads(outcome.body_bytes())
    assert (outcome.status, "error" in told) in ((400, True), (200, False))


def test_keys_are_checked(served, simulator):
    simulator.configure(api_keys=("good",))
    with (
        anthropic.Anthropic(base_url=served.url, api_key="bad", max_retries=0) as claude,
        pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"),
    ):
        claude.messages.create(model=CLAUDE, max_tokens=10, messages=[HELLO])
    with (
        openai.OpenAI(base_url=served.openai_url, api_key="bad", max_retries=0) as gpt,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        gpt.chat.completions.create(model=GPT, messages=[HELLO])
    assert caught.value.code == "invalid_api_key"
    assert simulator.stats()["auth"] == 2


def test_the_version_header_is_required(claude):
    with pytest.raises(anthropic.BadRequestError, match="anthropic-version: header is required"):
        claude.messages.create(
            model=CLAUDE,
            max_tokens=10,
            messages=[HELLO],
            extra_headers={"anthropic-version": ""},
        )
