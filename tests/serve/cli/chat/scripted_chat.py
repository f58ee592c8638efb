"""A chat without a terminal: a scripted provider, a store in memory, a console that records."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from trimtab.engine.log.message import ToolCall
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab.testing.replies import ScriptedCall
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.cli.chat.slash_commands import parse_slash_command, run_slash_command
from trimtab_serve.cli.chat.state import ChatState

SPEC = AgentSpec.model_validate(
    {
        "name": "helper",
        "model": {"name": "claude-sonnet-4-5", "context_window": 8_000, "max_output_tokens": 500},
        "system": "You are a helper.\nBe brief.",
    }
)


def console(width: int = 80, *, terminal: bool = False) -> Console:
    """One that records, as wide as asked for."""
    return Console(
        file=io.StringIO(),
        record=True,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        legacy_windows=False,
    )


def text_of(made: Console) -> str:
    """What was drawn since the last look."""
    lines = made.export_text().splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def written(made: Console) -> str:
    """Every character that went to the terminal."""
    assert isinstance(made.file, io.StringIO)
    return made.file.getvalue()


async def _run(asked: ToolInvocation) -> str:
    return f"{asked.arguments['path']}\n" + "some line of a file that was read\n" * 60


TOOL = Tool(
    definition={
        "name": "read",
        "description": "Reads a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
    run=_run,
)


async def talking(
    replies: Iterable[Any] = (), *, width: int = 80, session: str = "s1"
) -> ChatState:
    """A chat in a new session."""
    provider = ScriptedProvider("anthropic", replies)
    agent = Agent(
        spec=SPEC,
        system=SPEC.system or "",
        store=MemoryStore(),
        provider=provider,
        tools=[TOOL],
        environ={"ANTHROPIC_API_KEY": "k"},
    )
    return ChatState(agent=agent, session=await agent.open_session(session), console=console(width))


async def turns(talk: ChatState, count: int) -> None:
    """So many turns with a tool each; the provider must have been told."""
    for number in range(count):
        says = {"role": "user", "content": f"Question {number}?"}
        await talk.agent.run_turn(talk.session, says)


def script(count: int) -> list[Any]:
    """The replies to as many turns."""
    return [
        reply
        for number in range(count)
        for reply in (
            ScriptedCall(name="read", arguments={"path": f"f{number}"}),
            f"Answer {number}.",
        )
    ]


async def typed(talk: ChatState, line: str) -> str:
    """What a command draws."""
    command = parse_slash_command(line)
    assert command is not None
    text_of(talk.console)
    await run_slash_command(talk, *command)
    return text_of(talk.console)


def call(name: str = "read", arguments: str = '{"path": "src/a.py"}') -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=arguments)
