"""OpenHands: `LLMSummarizingCondenser` over a `View`, asked before each step as its agent does.

It is asked without the agent's model, so by the number of events alone: counting tokens would load
a tokenizer of its own, and the event limit is reached first in nearly every conversation.
"""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

# Else LiteLLM fetches its prices from the network while it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from openhands.sdk import LLM
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.condenser.llm_summarizing_condenser import default_condenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent, content_to_str
from openhands.sdk.tool.schema import Observation

Wire = dict[str, Any]


class Result(Observation):
    """What a recorded tool returned."""


class Summariser(LLM):
    """Answers every prompt with the stand-in's summary."""

    stand_in: Any = None

    def generate(self, messages: list[Message], **_: Any) -> Any:
        texts = ["".join(content_to_str(message.content)) for message in messages]
        text = self.stand_in.summary("\n".join(texts), texts[-1])
        return SimpleNamespace(message=_message("assistant", text), id="summary")


class Session:
    def __init__(self, stand_in: Any, options: Wire) -> None:
        llm = Summariser(model="claude-sonnet-4-5", usage_id="condenser", stand_in=stand_in)
        self._condenser = (
            LLMSummarizingCondenser(llm=llm, **options) if options else default_condenser(llm)
        )
        self._view = View()
        self._index: dict[str, int] = {}
        self._actions: dict[str, ActionEvent] = {}

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        for event in self._events(index, message):
            self._index[event.id] = index
            self._view.append_event(event)

    def decide(self) -> None:
        made = self._condenser.condense(self._view)
        if isinstance(made, Condensation):
            self._view.append_event(made)

    def view(self) -> list[int | Wire]:
        out: list[int | Wire] = []
        for event in self._view.events:
            index = self._index.get(event.id)
            if index is None:
                said = event.to_llm_message()
                out.append({"role": said.role, "content": "".join(content_to_str(said.content))})
            elif not out or out[-1] != index:
                out.append(index)
        return out

    def _events(self, index: int, message: Wire) -> list[Any]:
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            called = message["tool_call_id"]
            action = self._actions[called]
            observation = Result(content=[TextContent(text=content)])
            return [
                ObservationEvent(
                    tool_name=action.tool_name,
                    tool_call_id=called,
                    observation=observation,
                    action_id=action.id,
                )
            ]
        calls = message.get("tool_calls") or ()
        if role != "assistant" or not calls:
            source = "agent" if role == "assistant" else "user"
            return [MessageEvent(source=source, llm_message=_message(role, content))]
        return [
            self._action(index, call, content if not at else "") for at, call in enumerate(calls)
        ]

    def _action(self, index: int, call: Wire, thought: str) -> ActionEvent:
        function = call["function"]
        event = ActionEvent(
            thought=[TextContent(text=thought)] if thought else [],
            tool_name=function["name"],
            tool_call_id=call["id"],
            tool_call=MessageToolCall(
                id=call["id"],
                name=function["name"],
                arguments=function["arguments"],
                origin="completion",
            ),
            llm_response_id=f"reply-{index}",
        )
        self._actions[call["id"]] = event
        return event


def _message(role: Any, text: str) -> Message:
    return Message(role=role, content=[TextContent(text=text)])


def open_session(setup: Wire, stand_in: Any) -> Session:
    return Session(stand_in, setup)
