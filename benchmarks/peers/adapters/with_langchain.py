"""LangChain: `trim_messages`, `SummarizationMiddleware`, `ContextEditingMiddleware`.

The middlewares are called by their own hooks, as an agent of `create_agent` would call them. The
stand-in model has the type, provider and window of a Claude model, so that LangChain counts tokens
as it does for one, usage reports included.
"""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
from typing import Any, cast

from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatResult

Wire = dict[str, Any]
WINDOW = 200_000


class Claude(BaseChatModel):
    """Answers every prompt with the stand-in's summary."""

    stand_in: Any

    @property
    def _llm_type(self) -> str:
        return "anthropic-chat"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop, **kwargs), "ls_provider": "anthropic"}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:  # noqa: ARG002 - LangChain's signature
        prompt = "\n".join(message.text for message in messages)
        told = prompt.partition("Messages to summarize:\n")[2]
        text = self.stand_in.summary(prompt, told or None)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=text))])


class Session:
    def __init__(self) -> None:
        self._recorded: list[Wire] = []
        self._contents: list[Any] = []
        self.messages: list[BaseMessage] = []
        """The agent's state."""
        self.sent: list[BaseMessage] = []
        """Of the last call."""

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:
        made = _message(index, message, size, used)
        self._recorded.append(message)
        self._contents.append(made.content)
        self.messages.append(made)

    def decide(self) -> None:
        raise NotImplementedError

    def view(self) -> list[int | Wire]:
        return [self._sent(message) for message in self.sent]

    def _sent(self, message: BaseMessage) -> int | Wire:
        name = message.id or ""
        if not name.startswith("recorded-"):
            role = "user" if isinstance(message, HumanMessage) else "system"
            return {"role": role, "content": message.text}
        index = int(name.removeprefix("recorded-"))
        if message.content == self._contents[index]:
            return index
        return {**self._recorded[index], "content": message.text}


class Trim(Session):
    """The configuration of LangChain's guide for `trim_messages`; where no human message starts a
    suffix that fits, as in a long tool loop, `start_on` may name the model as well."""

    def __init__(self, *, max_tokens: int, start_on: list[str]) -> None:
        super().__init__()
        self._options: Any = {"max_tokens": max_tokens, "start_on": start_on}

    def decide(self) -> None:
        self.sent = trim_messages(
            self.messages,
            strategy="last",
            token_counter=count_tokens_approximately,
            end_on=("human", "tool"),
            include_system=True,
            **self._options,
        )


class Summarize(Session):
    def __init__(self, stand_in: Any, options: Wire) -> None:
        super().__init__()
        model = Claude(stand_in=stand_in, profile={"max_input_tokens": WINDOW})
        self._middleware = SummarizationMiddleware(
            model, **{key: _pair(value) for key, value in options.items()}
        )

    def decide(self) -> None:
        state = cast("Any", {"messages": self.messages})
        made = self._middleware.before_model(state, cast("Any", None))
        if made is not None:
            # The first is the request to remove all others.
            self.messages = list(made["messages"][1:])
        self.sent = self.messages


class Edit(Session):
    def __init__(self, stand_in: Any, options: Wire) -> None:
        super().__init__()
        self._model = Claude(stand_in=stand_in)
        edits = [ClearToolUsesEdit(**options)] if options else None
        self._middleware = ContextEditingMiddleware(edits=edits)

    def decide(self) -> None:
        def handler(request: Any) -> Any:
            self.sent = request.messages
            return None

        request = ModelRequest(model=self._model, messages=cast("Any", list(self.messages)))
        self._middleware.wrap_model_call(request, handler)


def _message(index: int, message: Wire, size: int, used: int | None) -> BaseMessage:
    name, content = f"recorded-{index}", message.get("content") or ""
    match message["role"]:
        case "user":
            return HumanMessage(content, id=name)
        case "system":
            return SystemMessage(content, id=name)
        case "tool":
            return ToolMessage(content, tool_call_id=message["tool_call_id"], id=name)
        case _:
            pass
    calls = [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            "args": _arguments(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]
    made = AIMessage(content, tool_calls=calls, id=name)
    if used is not None:
        made.usage_metadata = {
            "input_tokens": used,
            "output_tokens": size,
            "total_tokens": used + size,
        }
        made.response_metadata = {"model_provider": "anthropic"}
    return made


def _arguments(text: str) -> Wire:
    try:
        read = json.loads(text)
    except ValueError:
        return {"text": text}
    return read if isinstance(read, dict) else {"value": read}


def _pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def open_session(setup: Wire, stand_in: Any) -> Session:
    options = dict(setup)
    kind = options.pop("kind")
    if kind == "trim":
        return Trim(**options)
    return (Summarize if kind == "summarize" else Edit)(stand_in, options)
