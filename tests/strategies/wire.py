"""Arbitrary valid histories of each dialect, as their SDKs' callers would hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Wire = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

letters = st.text('ab é中🙂\n"\\{}[]:,0', max_size=12)
words = letters.map(lambda text: f"w{text}w")
names = st.sampled_from(["search", "read_file", "run-tests", "get_weather"])
base64s = st.sampled_from(["aGVsbG8=", "AAAA", "/9j/4AAQ"])
scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | letters
jsons = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(letters, jsons, max_size=3)
texts_of_arguments = st.one_of(
    st.sampled_from(["", "{}", '{"a":1}', "not json", "[1, 2]", '{"cut": "of', "null", '"x"']),
    words,
)


def some(draw: Draw, wire: Wire, **optional: st.SearchStrategy[Any]) -> Wire:
    """The dict with any of the optional keys."""
    for key, values in optional.items():
        if draw(st.booleans()):
            wire[key] = draw(values)
    return wire


id_styles = st.sampled_from(["call_{}", "functions.f:{}", "chatcmpl-tool-" + "0" * 60 + "{}"])
cache_controls = st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}])
citations = st.just(
    [
        {
            "type": "char_location",
            "cited_text": "x",
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 1,
        }
    ]
)


@st.composite
def anthropic_text(draw: Draw) -> Wire:
    return some(draw, {"type": "text", "text": draw(words)}, citations=citations | st.none())


@st.composite
def anthropic_media(draw: Draw) -> Wire:
    data = draw(base64s)
    image = draw(
        st.sampled_from(
            [
                {"type": "base64", "media_type": "image/png", "data": data},
                {"type": "url", "url": "https://example.org/a.png"},
                {"type": "file", "file_id": "file_1"},
            ]
        )
    )
    if draw(st.booleans()):
        return {"type": "image", "source": image}
    source = draw(
        st.sampled_from(
            [
                {"type": "base64", "media_type": "application/pdf", "data": data},
                {"type": "url", "url": "https://example.org/a.pdf"},
                {"type": "file", "file_id": "file_2"},
                {"type": "text", "media_type": "text/plain", "data": "all of it"},
                {"type": "content", "content": [{"type": "text", "text": "inner"}]},
            ]
        )
    )
    document = {"type": "document", "source": source}
    return some(draw, document, title=words, citations=st.just({"enabled": True}))


anthropic_own = st.sampled_from(
    [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "x"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": "https://example.org", "title": "t"}],
        },
        {"type": "compaction", "content": "what was said before"},
        {"type": "block_of_tomorrow", "payload": {"deep": [1, None]}},
    ]
)
anthropic_thinking = st.sampled_from(
    [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    ]
)


@st.composite
def anthropic_result(draw: Draw, call_id: str) -> Wire:
    failed = draw(st.booleans())
    parts = anthropic_text() if failed else anthropic_text() | anthropic_media()
    wire: Wire = {"type": "tool_result", "tool_use_id": call_id}
    wire |= {"is_error": True} if failed else some(draw, {}, is_error=st.just(False))
    return some(draw, wire, content=letters | st.lists(parts, max_size=2))


@st.composite
def anthropic_assistant(draw: Draw, ids: list[str]) -> Wire:
    if not ids and draw(st.booleans()):
        return {"role": "assistant", "content": draw(words)}
    blocks = draw(st.lists(anthropic_thinking, max_size=2))
    blocks += draw(st.lists(anthropic_text() | anthropic_own, min_size=0 if ids else 1, max_size=2))
    for call_id in ids:
        call = {"type": "tool_use", "id": call_id, "name": draw(names), "input": draw(objects)}
        blocks.append(some(draw, call, caller=st.just({"type": "direct"})))
    return {"role": "assistant", "content": blocks}


@st.composite
def anthropic_user(draw: Draw) -> Wire:
    if draw(st.booleans()):
        return {"role": "user", "content": draw(words)}
    blocks = draw(st.lists(anthropic_text() | anthropic_media(), min_size=1, max_size=3))
    return {"role": "user", "content": blocks}


@st.composite
def anthropic_history(draw: Draw) -> list[Wire]:
    wires = [draw(anthropic_user())]
    for count in range(draw(st.integers(0, 5))):
        # Colons and the like are not accepted in this dialect's ids.
        ids = [f"toolu_{count}_{number}" for number in range(draw(st.integers(0, 3)))]
        wires.append(draw(anthropic_assistant(ids)))
        blocks = [draw(anthropic_result(call_id)) for call_id in draw(st.permutations(ids))]
        blocks += draw(st.lists(anthropic_text(), max_size=2))
        if blocks:
            wires.append({"role": "user", "content": blocks})
        if draw(st.booleans()):
            wires.append(draw(anthropic_user()))
    if draw(st.booleans()):
        marked = {"type": "text", "text": "marked", "cache_control": draw(cache_controls)}
        wires.append({"role": "user", "content": [marked]})
    return wires


@st.composite
def chat_text(draw: Draw) -> Wire:
    return {"type": "text", "text": draw(words)}


@st.composite
def chat_media(draw: Draw) -> Wire:
    data = draw(base64s)
    return draw(
        st.sampled_from(
            [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
                {
                    "type": "image_url",
                    "image_url": {"url": "https://example.org/a.png", "detail": "low"},
                },
                {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
                {
                    "type": "file",
                    "file": {
                        "filename": "a.pdf",
                        "file_data": f"data:application/pdf;base64,{data}",
                    },
                },
                {"type": "file", "file": {"file_id": "file_1"}},
                {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
                {"type": "part_of_tomorrow", "part_of_tomorrow": {"deep": [1]}},
            ]
        )
    )


@st.composite
def chat_call(draw: Draw, call_id: str) -> Wire:
    if draw(st.booleans()):
        custom = {"name": draw(names), "input": draw(letters)}
        return {"id": call_id, "type": "custom", "custom": custom}
    function = {"name": draw(names), "arguments": draw(texts_of_arguments)}
    call: Wire = {"id": call_id, "type": "function", "function": function}
    return some(draw, call, extra_content=st.just({"google": {"thought_signature": "c2ln"}}))


@st.composite
def chat_assistant(draw: Draw, ids: list[str]) -> Wire:
    wire: Wire = {"role": "assistant"}
    contents = words | st.lists(chat_text(), min_size=1, max_size=2)
    if ids:
        wire = some(draw, wire, content=contents | st.none())
        wire["tool_calls"] = [draw(chat_call(call_id)) for call_id in ids]
    else:
        wire["content"] = draw(contents)
    return some(
        draw,
        wire,
        name=words,
        refusal=words,
        reasoning_content=words,
        annotations=st.just([{"type": "url_citation", "url_citation": {"url": "https://a.org"}}]),
        audio=st.just({"id": "audio_1"}),
    )


@st.composite
def chat_other(draw: Draw) -> Wire:
    role = draw(st.sampled_from(["user", "user", "system", "developer"]))
    parts = chat_text() | chat_media() if role == "user" else chat_text()
    content = draw(letters | st.lists(parts, min_size=1, max_size=3))
    return some(draw, {"role": role, "content": content}, name=words)


@st.composite
def chat_history(draw: Draw) -> list[Wire]:
    wires = [draw(chat_other())]
    for count in range(draw(st.integers(0, 5))):
        style = draw(id_styles)
        ids = [style.format(f"{count}_{n}") for n in range(draw(st.integers(0, 3)))]
        wires.append(draw(chat_assistant(ids)))
        for call_id in draw(st.permutations(ids)):
            content = draw(letters | st.lists(chat_text(), min_size=1, max_size=2))
            wires.append({"role": "tool", "tool_call_id": call_id, "content": content})
        if draw(st.booleans()):
            wires.append(draw(chat_other()))
    return wires


@st.composite
def response_part(draw: Draw) -> Wire:
    data = draw(base64s)
    return draw(
        st.sampled_from(
            [
                {"type": "input_text", "text": "words"},
                {
                    "type": "input_image",
                    "image_url": f"data:image/png;base64,{data}",
                    "detail": "auto",
                },
                {"type": "input_image", "image_url": "https://example.org/a.png"},
                {"type": "input_image", "file_id": "file_1", "detail": "low"},
                {
                    "type": "input_file",
                    "filename": "a.pdf",
                    "file_data": f"data:application/pdf;base64,{data}",
                },
                {"type": "input_file", "file_url": "https://example.org/a.pdf"},
                {"type": "input_file", "file_id": "file_2"},
                {"type": "part_of_tomorrow", "deep": [1, None]},
            ]
        )
    )


@st.composite
def response_call(draw: Draw, call_id: str) -> tuple[Wire, Wire]:
    """A call and its output."""
    kind = draw(st.sampled_from(["function_call", "custom_tool_call", "computer_call"]))
    call: Wire = {"type": kind, "call_id": call_id}
    # Of parts that nobody knows alone, a result would be taken for data.
    parts = st.lists(response_part(), max_size=2)
    listed = parts.map(
        lambda found: [*found, *([{"type": "input_text", "text": "w"}] * bool(found))]
    )
    output: Any = draw(letters | listed)
    if kind == "function_call":
        call |= {"name": draw(names), "arguments": draw(texts_of_arguments)}
    elif kind == "custom_tool_call":
        call |= {"name": draw(names), "input": draw(letters)}
    else:
        call |= {"action": {"type": "click", "x": 1, "y": 2}, "pending_safety_checks": []}
        output = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    some(draw, call, id=st.just("fc_1"), status=st.just("completed"))
    result = {"type": f"{kind}_output", "call_id": call_id, "output": output}
    return call, some(draw, result, id=st.just("fco_1"), status=st.just("completed"))


response_own = st.sampled_from(
    [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FB"},
        {"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "server_label": "s"},
        {"type": "item_of_tomorrow", "id": "x_1", "deep": [1, None]},
    ]
)


@st.composite
def response_said(draw: Draw) -> Wire:
    if draw(st.booleans()):
        return some(draw, {"role": "assistant", "content": draw(words)}, type=st.just("message"))
    part = st.fixed_dictionaries(
        {
            "type": st.just("output_text"),
            "text": letters,
            "annotations": st.just([]),
            "logprobs": st.just([]),
        }
    )
    refusal = st.just({"type": "refusal", "refusal": "no"})
    item: Wire = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
    item["content"] = draw(st.lists(part | refusal, min_size=1, max_size=3))
    return some(draw, item, phase=st.sampled_from(["commentary", "final_answer"]))


@st.composite
def response_reply(draw: Draw, calls: list[Wire]) -> list[Wire]:
    items: list[Wire] = draw(st.lists(response_said() | response_own, max_size=2)) + calls
    out: list[Wire] = []
    for item in items:
        if draw(st.booleans()):
            out.append(
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "encrypted_content": draw(st.none() | st.just("Z0FB")),
                }
            )
        out.append(item)
    return out


@st.composite
def response_other(draw: Draw) -> Wire:
    if draw(st.integers(0, 9)) == 0:
        return {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}
    role = draw(st.sampled_from(["user", "user", "system", "developer"]))
    wire: Wire = {"role": role}
    wire["content"] = draw(words | st.lists(response_part(), min_size=1, max_size=3))
    return some(draw, wire, type=st.just("message"), status=st.just("completed"))


@st.composite
def response_history(draw: Draw) -> list[Wire]:
    wires = [draw(response_other())]
    for count in range(draw(st.integers(0, 5))):
        style = draw(id_styles)
        ids = [style.format(f"{count}_{n}") for n in range(draw(st.integers(0, 3)))]
        pairs = [draw(response_call(call_id)) for call_id in ids]
        wires += draw(response_reply([call for call, _ in pairs]))
        wires += draw(st.permutations([result for _, result in pairs]))
        if draw(st.booleans()):
            wires.append(draw(response_other()))
    return wires


histories: dict[str, st.SearchStrategy[list[Wire]]] = {
    "anthropic": anthropic_history(),
    "openai_chat": chat_history(),
    "openai_responses": response_history(),
}
"""By dialect: what its API would accept as the whole conversation so far."""
