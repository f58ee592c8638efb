"""One past request, for eyes: all that was sent, in the order it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from trimtab.cli.session_calls import Made
from trimtab.cli.words import age, moment, plain

_SYSTEM = ("system", "instructions")
_SAID = ("messages", "input")
_WORDS = ("text", "content", "thinking", "arguments", "output", "function", "input", "tool_calls")
"""Keys whose values are read as texts, below what else a block holds."""
LONG = 2_000
"""Characters of a value within a block that are still shown."""


def show_request(made: Made, request: Mapping[str, Any], console: Console) -> None:
    """A head with the figures, then parameters, system prompt, tools and messages, whole."""
    _head(made, console)
    others = {k: v for k, v in request.items() if k not in (*_SYSTEM, *_SAID, "tools")}
    _block(console, "parameters", [_json(others)])
    for key in _SYSTEM:
        if key in request:
            _block(console, key, _texts(request[key]))
    if tools := cast("list[Mapping[str, Any]]", request.get("tools")):
        _block(console, f"tools ({len(tools)})", [_json(tool) for tool in tools])
    for key in _SAID:
        said: Any = request.get(key, [])
        each = cast("list[Any]", said if isinstance(said, list) else [said])
        for number, message in enumerate(each, 1):
            _message(console, number, message)


def _head(made: Made, console: Console) -> None:
    call, outcome = made.call, made.outcome
    console.print(Text(f"call {made.seq}", "bold"), Text(f"{moment(made.at)}, {age(made.at)}"))
    checked = (
        f"as sent: rendered from the log, SHA-256 {call.hash[:16]}… as recorded"
        if call.hash
        else "not checked: this call was made elsewhere and recorded no hash"
    )
    console.print(Text(checked, "green" if call.hash else "yellow"))
    figures = [f"at most {call.bound or call.tokens:,} tokens", f"{call.bytes:,} bytes"]
    if outcome is not None and (used := outcome.usage) is not None and used.input:
        figures.append(f"{used.input:,} reported, {used.cache_read / used.input:.0%} cached")
    console.print(Text(" · ".join(figures), "dim"))


def _message(console: Console, number: int, message: Any) -> None:
    if not isinstance(message, dict):
        _block(console, str(number), _texts(message))
        return
    wire = cast("dict[str, Any]", message)
    role = str(wire.get("role") or wire.get("type") or "")
    rest = {key: value for key, value in wire.items() if key not in ("role", "content")}
    texts = [*_texts(wire.get("content")), *(_texts(rest) if rest else ())]
    _block(console, f"{number} {role}", texts)


def _block(console: Console, title: str, texts: list[str]) -> None:
    console.print()
    console.rule(Text(plain(title), "bold"), align="left", style="dim")
    for text in texts:
        console.print(Text(plain(text)), soft_wrap=True)


def _texts(value: Any) -> list[str]:
    """Texts as they are, and around them what else a block holds, as JSON."""
    match value:
        case None | "":
            return []
        case str():
            return [value]
        case list():
            return [text for item in cast("list[Any]", value) for text in _texts(item)]
        case dict():
            return list(_of_block(cast("dict[str, Any]", value)))
        case _:
            return [_json(value)]


def _of_block(block: dict[str, Any]) -> Iterator[str]:
    rest = {key: value for key, value in block.items() if key not in _WORDS}
    if rest != {"type": "text"} and rest:
        yield _json(rest)
    for key in _WORDS:
        value = block.get(key)
        if isinstance(value, dict) and key != "function":
            yield _json(value)
        elif key in block:
            yield from _texts(value)


def _json(value: Any) -> str:
    return json.dumps(_cut(value), ensure_ascii=False)


def _cut(value: Any) -> Any:
    """Without pictures and the like, which nobody reads as letters."""
    match value:
        case str() if len(value) > LONG:
            return f"{value[:40]}… ({len(value):,} characters; --json has them all)"
        case list():
            return [_cut(item) for item in cast("list[Any]", value)]
        case dict():
            return {key: _cut(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
