"""A context in a dialect, and what is seen of it."""

from typing import Any

from tests.conversations import (
    ticking,
)
from tests.replies import (
    MODELS,
)
from trimtab import Context
from trimtab.engine.log.event import Usage

READ = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
USAGE = Usage(input=100, output=7, cache_read=50)


def start(dialect, **options):
    settings: dict[str, Any] = {"clock": ticking(), **options}
    return Context(settings.pop("model", MODELS[dialect]), dialect=dialect, **settings)


def kinds(context):
    return [type(event.body).__name__ for event in context.events]


def messages(request) -> list[dict[str, Any]]:
    return request["messages"] if "messages" in request else request["input"]


def blocks(request):
    """What is sent, block by block, without cache marks."""
    out = []
    for message in messages(request):
        content = message.get("content")
        for block in content if isinstance(content, list) else [message]:
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            out.append((message.get("role", ""), bare))
    return out
