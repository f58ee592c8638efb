"""A Python function as a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pydantic_core import to_json

from trimtab.agent.permissions import Gate, rendered, rules_of
from trimtab.agent.secrets import missing_variable
from trimtab.agent.spec import PythonTool
from trimtab.agent.tools.loading import Function, load
from trimtab.agent.tools.output import Kept, cut
from trimtab.agent.tools.signature import read_arguments, read_signature
from trimtab.agent.tools.threads import in_thread
from trimtab.core.message import Media, Opaque, Text
from trimtab.session.tools import Content, Failed, Invocation, Tool


def python_tool(name: str, spec: PythonTool, folder: Path, gate: Gate) -> Tool:
    """The tool as the model gets it."""
    function = load(name, spec.function, folder)
    signature = read_signature(name, function)

    async def run(asked: Invocation) -> str | Sequence[Content]:
        values = read_arguments(signature, asked.arguments)
        if signature.invocation:
            values[signature.invocation] = asked
        limit = asyncio.timeout(spec.timeout)
        try:
            async with limit:
                given = await _called(function, values)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Failed(_given_up(name, function, spec.timeout)) from None
        except KeyError as error:
            if (fix := missing_variable(error)) is None:
                raise
            raise Failed(f"{name} failed: {fix}") from error
        return shown(given, spec.max_output_bytes)

    def text_of(asked: Invocation) -> str:
        read_arguments(signature, asked.arguments)
        return rendered(asked.arguments)

    return Tool(
        definition={
            "name": name,
            "description": inspect.getdoc(function) or name.replace("_", " "),
            "input_schema": dict(signature.schema),
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        timeout=spec.timeout + 5,
        permit=gate.permit(rules_of(spec), text_of),
    )


async def _called(function: Function, values: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**values)
    given = await in_thread(lambda: function(**values))
    return await given if inspect.isawaitable(given) else given


def shown(given: Any, limit: int) -> str | list[Content]:
    """What a function gave, as a result: text and parts as they are, other values as JSON."""
    if given is None:
        return "[done, no value]"
    if isinstance(given, bytes | bytearray):
        kept = Kept(limit)
        kept.add(bytes(given))
        return kept.text() or "[no bytes]"
    many = isinstance(given, list | tuple)
    parts: Sequence[Any] = cast("Sequence[Any]", given) if many else (given,)
    if parts and all(isinstance(part, Text | Media | Opaque) for part in parts):
        return [_capped(part, limit) for part in parts]
    text = given if isinstance(given, str) else _as_json(given)
    return cut(text, limit) or "[an empty text]"


def _capped(part: Content, limit: int) -> Content:
    if isinstance(part, Text):
        return Text(text=cut(part.text, limit), extra=part.extra)
    if isinstance(part, Media) and part.data and len(part.data) > limit:
        return Text(text=f"[{part.kind} of {len(part.data):,} bytes left out, above {limit:,}]")
    return part


def _as_json(value: Any) -> str:
    return to_json(value, fallback=repr, inf_nan_mode="constants").decode()


def _given_up(name: str, function: Function, seconds: float) -> str:
    said = f"{name} was given up after {seconds:g} seconds"
    if inspect.iscoroutinefunction(function):
        return said
    return f"{said}; the function cannot be stopped and may still be running"
