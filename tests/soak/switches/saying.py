"""What models, tools and people say, in each dialect, as carelessly as callers hand it on."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.pictures import PNG_TEXT
from tests.soak.switches.judging import Target
from trimtab.testing.signatures import sign_thinking

Wire = dict[str, Any]
NULLS = ("refusal", "annotations", "audio", "function_call", "tool_calls")
OUTPUTS: tuple[Any, ...] = (
    "three files",
    "drei Dateien, größer als gedacht",
    "",
    None,
    [],
    {"temperature": 20, "unit": "°C"},
    [{"city": "Köln"}, {"city": "Bonn"}],
    [1, 2, 3],
    {"type": "report", "rows": []},
)
"""What tools return, written as JSON or not."""


def words(dice: Random) -> str:
    return f"Look at {dice.randrange(10**6)} and say why it {dice.choice(('lags', 'fails'))}."


def user(dice: Random, dialect: str) -> Wire:
    said: Wire = {"role": "user", "content": words(dice)}
    if dialect == "openai_chat" and dice.random() < 0.05:
        said["name"] = "ann"
    if dice.random() < 0.1:
        said["content"] = [_text(dialect, said["content"]), _picture(dialect)]
    return said


def system(dice: Random, dialect: str) -> Wire:
    role = "developer" if dialect != "anthropic" and dice.random() < 0.5 else "system"
    return {"role": role, "content": f"From now on answer in {dice.choice(('verse', 'Latin'))}."}


def result(dice: Random, dialect: str, call: str) -> Wire:
    output, picture, failed = dice.choice(OUTPUTS), dice.random() < 0.15, dice.random() < 0.2
    if picture and dialect != "openai_chat":
        output = [_text(dialect, "a screen"), _picture(dialect)]
    if dialect == "openai_chat":
        return {"role": "tool", "tool_call_id": call, "content": output}
    if dialect == "openai_responses":
        return {"type": "function_call_output", "call_id": call, "output": output}
    block: Wire = {"type": "tool_result", "tool_use_id": call, "content": output}
    return {"role": "user", "content": [block | ({"is_error": True} if failed else {})]}


def _text(dialect: str, text: str) -> Wire:
    return {"type": "input_text" if dialect == "openai_responses" else "text", "text": text}


def _picture(dialect: str) -> Wire:
    data = PNG_TEXT
    url = f"data:image/png;base64,{data}"
    if dialect == "openai_chat":
        return {"type": "image_url", "image_url": {"url": url}}
    if dialect == "openai_responses":
        return {"type": "input_image", "image_url": url}
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def reply(dice: Random, to: Target, calls: list[str], *, thinks: bool) -> Wire:
    """A whole reply, or the bare message of one."""
    match to.dialect:
        case "anthropic":
            return _anthropic(dice, to, calls, thinks=thinks)
        case "openai_chat":
            return _chat(dice, to, calls, thinks=thinks)
        case _:
            return _responses(dice, to, calls, thinks=thinks)


def _anthropic(dice: Random, to: Target, calls: list[str], *, thinks: bool) -> Wire:
    content: list[Wire] = []
    if thinks and dice.random() < 0.85:
        thought = words(dice)
        signed = sign_thinking(thought, "") if to.maker == "anthropic" else "of another maker"
        content.append({"type": "thinking", "thinking": thought, "signature": signed})
    elif thinks and to.maker == "anthropic":
        mark = str(dice.randrange(10**9))
        content.append({"type": "redacted_thinking", "data": f"{mark}.{sign_thinking(mark, '')}"})
    if dice.random() < 0.1 and to.maker == "anthropic":
        name = f"srvtoolu_{dice.randrange(10**9)}"
        asked = {"id": name, "name": "web_search", "input": {"query": "replica lag"}}
        found = {"type": "web_search_tool_result", "tool_use_id": name, "content": []}
        content += [{"type": "server_tool_use", **asked}, found]
    if not calls or dice.random() < 0.5:
        content.append({"type": "text", "text": "I look."})
    for call in calls:
        given: Any = {"path": "a.py"}
        given = json.dumps(given) if dice.random() < 0.1 else given
        content.append({"type": "tool_use", "id": call, "name": "read", "input": given})
    if dice.random() < 0.3:
        return {"role": "assistant", "content": content}
    return {
        "id": f"msg_{dice.randrange(10**12)}",
        "type": "message",
        "role": "assistant",
        "model": to.model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
    }


def _chat(dice: Random, to: Target, calls: list[str], *, thinks: bool) -> Wire:
    message: Wire = {"role": "assistant", "content": None if calls else "I look."}
    if dice.random() < 0.4:
        message |= dict.fromkeys(NULLS)
    if dice.random() < 0.2:
        message |= {"tool_calls": [], "annotations": []}
    if thinks:
        message[dice.choice(("reasoning_content", "reasoning"))] = words(dice)
    if calls:
        function = {"name": "read", "arguments": '{"path": "a.py"}'}
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": function} for call in calls
        ]
    if dice.random() < 0.3:
        return message
    made = {"id": f"chatcmpl-{dice.randrange(10**12)}", "object": "chat.completion"}
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {**made, "model": to.model, "choices": [choice]}


def _responses(dice: Random, to: Target, calls: list[str], *, thinks: bool) -> Wire:
    own, output = str(dice.randrange(10**12)), list[Wire]()
    if thinks:
        name = f"rs_{own}"
        sealed = f"gAAAA{sign_thinking(name, '')}" if to.maker == "openai" else "of another maker"
        output.append({"type": "reasoning", "id": name, "summary": [], "encrypted_content": sealed})
    if not calls or dice.random() < 0.5:
        part = {"type": "output_text", "text": "I look.", "annotations": []}
        told = {"type": "message", "id": f"msg_{own}", "role": "assistant", "status": "completed"}
        output.append({**told, "content": [part]})
    for number, call in enumerate(calls):
        made = {"type": "function_call", "id": f"fc_{own}_{number}", "call_id": call}
        output.append({**made, "name": "read", "arguments": "{}", "status": "completed"})
    head = {"id": f"resp_{own}", "object": "response", "model": to.model}
    return {**head, "status": "completed", "output": output}
