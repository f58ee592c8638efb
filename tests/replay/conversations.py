"""Small conversations made up for replays."""

import json
from typing import Any

from trimtab.dialects.reading import parse_any_system_and_history
from trimtab.replay.selection import RecordedConversation


def call(number: int, arguments: dict[str, Any], text: str = "") -> dict[str, Any]:
    function = {"name": "read", "arguments": json.dumps(arguments)}
    made = {"id": f"call_{number:020}", "type": "function", "function": function}
    return {"role": "assistant", "content": text, "tool_calls": [made]}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number:020}", "content": text}


def wires(rounds: int, *, words: int = 200, first: int = 0) -> list[dict[str, Any]]:
    """A user's wish, then rounds that each read a file and name it again twelve rounds later."""
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Please look into src/main_module.py for me."},
    ]
    for number in range(first, first + rounds):
        older = max(first, number - 12)
        said.append(call(number, {"path": f"src/file_{number}.py", "like": f"symbol_{older}_x"}))
        body = " ".join(f"symbol_{number}_x" if i == 3 else "lorem" for i in range(words))
        said.append(result(number, body))
    said.append({"role": "assistant", "content": "All done."})
    return said


def record(name: str, rounds: int, **options: int) -> dict[str, Any]:
    return {"id": name, "source": "made/up", "messages": wires(rounds, **options)}


def conversation(name: str, rounds: int, **options: int) -> RecordedConversation:
    system, messages = parse_any_system_and_history(wires(rounds, **options), "openai_chat")
    return RecordedConversation(id=name, source="made/up", system=system, messages=tuple(messages))
