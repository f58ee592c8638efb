"""LangChain: an agent of `create_agent`, whose threads LangGraph keeps in SQLite."""

# The framework is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import aiosqlite
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.frameworks import life
from benchmarks.frameworks.life import Said, Setup
from benchmarks.frameworks.worker import Meter, Numbers

CONFIG: Any = {"configurable": {"thread_id": life.CONVERSATION}, "recursion_limit": 100}


class Around(AgentMiddleware):
    """Outside of our middleware."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        with self.meter.part():
            response = handler(request)
        self.meter.finish()
        return response

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        with self.meter.part():
            response = await handler(request)
        self.meter.finish()
        return response


class Inside(AgentMiddleware):
    """Between our middleware and the model."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        with self.meter.passed_on():
            return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        with self.meter.passed_on():
            return await handler(request)


class Agent:
    def __init__(self, setup: Setup, meter: Meter) -> None:
        self._setup, self._meter = setup, meter
        self._module: Any = None
        self._agent: Any = None

    def _build(self, saver: Any) -> Any:
        setup = self._setup

        @tool(life.TOOL, description=life.TOOL_DESCRIPTION)
        def read_report(number: int) -> str:
            return life.report(number, setup.lines)

        middleware: list[AgentMiddleware] = []
        if setup.has_module:
            self._module = _module(setup)
            middleware = [Around(self._meter), self._module, Inside(self._meter)]
        return create_agent(
            _model(setup),
            [read_report],
            system_prompt=life.SYSTEM,
            middleware=middleware,
            checkpointer=saver,
        )

    def _agent_of_thread(self) -> Any:
        if self._agent is None:
            saver = InMemorySaver()
            if self._setup.folder:
                path = f"{self._setup.folder}/threads.sqlite"
                saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
            self._agent = self._build(saver)
        return self._agent

    async def _agent_of_loop(self) -> Any:
        if self._agent is None:
            saver = InMemorySaver()
            if self._setup.folder:
                path = f"{self._setup.folder}/threads.sqlite"
                saver = AsyncSqliteSaver(await aiosqlite.connect(path))
            self._agent = self._build(saver)
        return self._agent

    def say(self, text: str) -> None:
        agent, message = self._agent_of_thread(), {"messages": [("user", text)]}
        if not self._setup.stream:
            agent.invoke(message, CONFIG)
            return
        for _ in agent.stream(message, CONFIG, stream_mode="messages"):
            pass

    async def say_async(self, text: str) -> None:
        agent, message = await self._agent_of_loop(), {"messages": [("user", text)]}
        if not self._setup.stream:
            await agent.ainvoke(message, CONFIG)
            return
        async for _ in agent.astream(message, CONFIG, stream_mode="messages"):
            pass

    async def preload(self, history: Sequence[Said]) -> None:
        messages = _messages(history)
        if self._setup.is_async:
            agent = await self._agent_of_loop()
            await agent.aupdate_state(CONFIG, {"messages": messages})
        else:
            self._agent_of_thread().update_state(CONFIG, {"messages": messages})

    async def history(self) -> list[Said]:
        if self._setup.is_async:
            agent = await self._agent_of_loop()
            state = await agent.aget_state(CONFIG)
        else:
            state = self._agent_of_thread().get_state(CONFIG)
        return _history(state.values["messages"])

    async def usage(self) -> str:
        return str(await self._module.areport(life.CONVERSATION))


def _module(setup: Setup) -> AgentMiddleware:
    from trimtab.integrations.langchain import TrimtabMiddleware

    return TrimtabMiddleware(**setup.module_options)


def _model(setup: Setup) -> Any:
    shared: dict[str, Any] = {
        "model": life.MODELS[setup.api],
        "api_key": "none",
        "max_tokens": life.MAX_OUTPUT_TOKENS,
        "max_retries": 0,
        "streaming": setup.stream,
    }
    if setup.api == "anthropic":
        return ChatAnthropic(base_url=setup.url, **shared)
    responses = setup.api == "openai_responses"
    return ChatOpenAI(base_url=f"{setup.url}/v1", use_responses_api=responses, **shared)


def _messages(history: Sequence[Said]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for kind, *rest in history:
        if kind == "user":
            messages.append(HumanMessage(rest[0]))
        elif kind == "assistant":
            messages.append(AIMessage(rest[0]))
        elif kind == "result":
            messages.append(ToolMessage(rest[1], tool_call_id=f"call_{rest[0]}"))
        else:
            call = {"id": f"call_{rest[0]}", "name": life.TOOL, "args": rest[1]}
            if isinstance(messages[-1], AIMessage) and messages[-1].tool_calls:
                messages[-1].tool_calls.append(call)  # pyright: ignore[reportArgumentType]
            else:
                messages.append(AIMessage("", tool_calls=[call]))
    return messages


def _history(messages: Sequence[BaseMessage]) -> list[Said]:
    numbers, history = Numbers(), list[Said]()
    for message in messages:
        if isinstance(message, ToolMessage):
            history.append(("result", numbers[message.tool_call_id], message.text))
            continue
        role = "user" if isinstance(message, HumanMessage) else "assistant"
        if message.text:
            history.append((role, message.text))
        for call in getattr(message, "tool_calls", ()):
            history.append(("call", numbers[call["id"]], call["args"]))
    return history
