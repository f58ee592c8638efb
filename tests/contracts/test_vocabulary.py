"""The names that users type and read outside Python are the field's own words.

Metrics, the HTTP API, the lines of `chat --json`, the keys of `agent.yaml` and the command line.
"""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from tests.contracts.cli_page import COMMANDS
from tests.serve.metrics.metrics_page import exposed, own
from trimtab.session import events
from trimtab_serve.agent.config.schema import index_blocks_by_setting
from trimtab_serve.channels.http.app import API_ROUTES
from trimtab_serve.channels.http.openapi import build_openapi_document
from trimtab_serve.channels.http.problems import PROBLEM_KINDS
from trimtab_serve.channels.http.projection import STREAM_EVENT_KINDS

PRIVATE_WORDS = frozenset(
    [
        "asked",
        "at_once",
        "begin",
        "book",
        "box",
        "broke",
        "bye",
        "crew",
        "crowd",
        "crowded",
        "dead",
        "desk",
        "door",
        "doors",
        "given",
        "happening",
        "happenings",
        "heard",
        "house",
        "known",
        "late",
        "letter",
        "letters",
        "mail",
        "made",
        "missed",
        "piece",
        "pieces",
        "restarted",
        "revive",
        "said",
        "says",
        "stands",
        "told",
        "why",
    ]
)
"""Each has a word that others use: channel, message, queue, delta, reason, duplicate, …"""
ALLOWED = re.compile(r"dead[-_ ]?letters?|/why/", re.IGNORECASE)
"""Others say dead letter as well, and ask `why` of a package: the command, and its path."""
ALLOWED_COMMANDS = {"trimtab session why"}


def private_words(name: str) -> set[str]:
    """The words of a name, in any style of writing, that nobody else uses."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", ALLOWED.sub("", name))
    return set(PRIVATE_WORDS) & (
        {part.lower() for part in re.split(r"[^A-Za-z0-9]+|_", apart)} | {name}
    )


def metric_names() -> Iterator[str]:
    for metric in own():
        yield exposed(metric)
        yield from metric._labelnames


def http_names() -> Iterator[str]:
    document = build_openapi_document(API_ROUTES)
    yield from document["paths"]
    for path in document["paths"].values():
        for operation in path.values():
            yield operation["operationId"]
            yield from (parameter["name"] for parameter in operation["parameters"])
    for name, schema in document["components"]["schemas"].items():
        yield name
        yield from schema.get("properties", {})
    yield from STREAM_EVENT_KINDS
    yield from PROBLEM_KINDS
    for text in STREAM_EVENT_KINDS.values():
        yield from re.findall(r"`(\w+)`", text)


def chat_event_names() -> Iterator[str]:
    for kind in get_args(events.TurnEvent):
        yield kind.type
        yield from kind.__dataclass_fields__


def command_line_names() -> Iterator[str]:
    for name, command in COMMANDS.items():
        if name not in ALLOWED_COMMANDS:
            yield name
        params: list[Any] = command.params
        for param in params:
            yield from param.opts
            yield from [param.envvar] if param.envvar else []


NAMES = {
    "metrics": metric_names,
    "http": http_names,
    "chat events": chat_event_names,
    "agent.yaml": index_blocks_by_setting,
    "command line": command_line_names,
}


@pytest.mark.parametrize("where", NAMES)
def test_no_private_word_is_in_a_name_that_users_meet(where):
    names = list(NAMES[where]())
    assert len(names) > 3
    assert {name: words for name in names if (words := private_words(name))} == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trimtab_letters_total", {"letters"}),
        ("DeadLetterSessionInfo", set[str]()),
        ("/v1/dead", {"dead"}),
        ("/v1/dead-letters/retry", set[str]()),
        ("tellWhy", {"why"}),
        ("at_once", {"at_once"}),
    ],
)
def test_the_search_finds_what_it_is_for(name, words):
    assert private_words(name) == words
