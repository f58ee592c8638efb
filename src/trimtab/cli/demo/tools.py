"""The demo's tools: functions of its little world, as any agent's own would be."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from trimtab.cli.demo.world import FUNCTIONS
from trimtab.session.tools import Invocation, Tool


def tools(pace: float) -> list[Tool]:
    """All of them; each takes so many seconds."""

    async def run(asked: Invocation) -> str:
        await asyncio.sleep(pace)
        return FUNCTIONS[asked.name](**asked.arguments)

    return [Tool(definition=_definition(name), run=run) for name in FUNCTIONS]


def _definition(name: str) -> dict[str, Any]:
    function = FUNCTIONS[name]
    kinds = {"str": "string", "int": "integer"}
    properties = {
        parameter.name: {"type": kinds[str(parameter.annotation)]}
        for parameter in inspect.signature(function).parameters.values()
    }
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": name, "description": inspect.getdoc(function), "input_schema": schema}
