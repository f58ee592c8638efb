"""Google ADK: every request fits the window, and the session keeps every event.

A model around the model sends what fits, and less after a refusal for length. A callback tells it
which session is running. `ContextCacheConfig` lets ADK set Claude's cache marks.

Needs: pip install 'trimtab[testing]' google-adk anthropic
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps.app import App
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from trimtab import Message, Text, ToolCall, ToolResult, Usage
from trimtab.integrations.conversations import Conversations
from trimtab.testing import serve_simulated_provider

running_session = ContextVar[str]("running_session")


def remember_session(callback_context: Any, llm_request: LlmRequest) -> None:  # noqa: ARG001 - ADK's names
    running_session.set(name_of(callback_context))


def name_of(context: Any) -> str:
    """A sub-agent is a conversation of its own."""
    return f"{context.session.user_id}/{context.session.id}/{context.agent_name}"


class TrimtabLlm(BaseLlm):
    inner: BaseLlm
    conversations: Conversations

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        name, whole = running_session.get(), llm_request.contents
        while True:
            llm_request.contents = await self.fit(name, whole, llm_request.config)
            try:
                async for response in self.inner.generate_content_async(llm_request, stream):
                    if not response.partial and response.content is not None:
                        usage = to_usage(response.usage_metadata)
                        reply = to_message(response.content)
                        await self.conversations.add_reply(name, reply, usage=usage)
                    yield response
            except Exception as error:
                if not await self.conversations.retry(name, error):
                    raise
            else:
                return

    async def fit(self, name: str, whole: list[types.Content], config: Any) -> list[types.Content]:
        declarations = [each for tool in config.tools or () for each in tool.function_declarations]
        view = await self.conversations.fit(
            name,
            [to_message(content) for content in whole],
            model=self.inner.model,
            system=str(config.system_instruction or ""),
            tools=[to_definition(declaration) for declaration in declarations],
            max_output_tokens=config.max_output_tokens or getattr(self.inner, "max_tokens", None),
        )
        sent: list[types.Content] = []
        for shown in view:
            if shown.is_callers_own:
                sent += [whole[position] for position in shown.positions]
            else:
                role = "model" if shown.message.role == "assistant" else "user"
                sent.append(types.Content(role=role, parts=[*map(to_part, shown.message.parts)]))
        return sent

    async def recall(self, handle: str, tool_context: ToolContext) -> str:
        """Show text that was hidden to save room. Placeholders name its handle, such as m12.0."""
        arguments = {"handle": handle}
        return await self.conversations.answer(name_of(tool_context), "recall", arguments)

    async def search_history(self, query: str, tool_context: ToolContext) -> str:
        """Find earlier messages of this conversation, hidden ones included."""
        arguments = {"query": query}
        return await self.conversations.answer(name_of(tool_context), "search_history", arguments)


def to_definition(declaration: Any) -> dict[str, Any]:
    schema = declaration.parameters_json_schema
    if schema is None and declaration.parameters is not None:
        schema = declaration.parameters.model_dump(mode="json", exclude_none=True)
    described = {"name": declaration.name, "description": declaration.description or ""}
    return {**described, "parameters": schema or {"type": "object"}}


def to_usage(reported: Any) -> Usage | None:
    if reported is None:
        return None
    return Usage(
        input=reported.prompt_token_count or 0,
        output=reported.candidates_token_count or 0,
        cache_read=reported.cached_content_token_count or 0,
    )


def to_message(content: types.Content) -> Message:
    parts: list[Any] = []
    for part in content.parts or ():
        if part.function_call is not None:
            call = part.function_call
            arguments = json.dumps(call.args or {})
            parts.append(ToolCall(id=call.id or "", name=call.name or "", arguments=arguments))
        elif part.function_response is not None:
            response = part.function_response
            text = Text(text=json.dumps(response.response, ensure_ascii=False))
            parts.append(ToolResult(call_id=response.id or "", content=(text,)))
        elif part.text is not None:
            parts.append(Text(text=part.text))
        else:
            raise TypeError(f"this example passes on texts and tool calls only, not {part}")
    return Message(role="assistant" if content.role == "model" else "user", parts=tuple(parts))


def to_part(part: Any) -> types.Part:
    match part:
        case ToolCall():
            arguments = json.loads(part.arguments)
            call = types.FunctionCall(id=part.id, name=part.name, args=arguments)
            return types.Part(function_call=call)
        case ToolResult():
            result = {"result": part.text}
            response = types.FunctionResponse(id=part.call_id, name="", response=result)
            return types.Part(function_response=response)
        case _:
            return types.Part(text=part.text)


def read_report(number: int) -> str:
    """Read a report."""
    return "".join(f"{number}.{line}: {line * number % 977} bar\n" for line in range(150))


def call(number: int) -> dict[str, Any]:
    return {"name": "read_report", "arguments": {"number": number}}


async def main(url: str) -> int:
    client = AsyncAnthropic(base_url=url, api_key="any", max_retries=0)
    claude = AnthropicLlm(model="claude-sonnet-5-5", max_tokens=1_000, client=client)
    conversations = Conversations(context_window=16_000)
    model = TrimtabLlm(model=claude.model, inner=claude, conversations=conversations)
    agent = LlmAgent(
        name="reader",
        model=model,
        tools=[read_report, model.recall, model.search_history],
        before_model_callback=remember_session,
    )
    caching = ContextCacheConfig(min_tokens=1_024)
    runner = InMemoryRunner(app=App(name="demo", root_agent=agent, context_cache_config=caching))
    sessions = runner.session_service
    session = await sessions.create_session(app_name="demo", user_id="u")
    whose: Any = {"user_id": "u", "session_id": session.id}
    for turn in range(20):
        text = types.Part(text=f"Read three reports. This is turn {turn}.")
        message = types.Content(role="user", parts=[text])
        async for event in runner.run_async(**whose, new_message=message):
            assert event.error_code is None, event.error_message
    print(await conversations.report(f"u/{session.id}/reader"))
    kept = await sessions.get_session(app_name="demo", **whose)
    assert kept is not None
    return len(kept.events)


with serve_simulated_provider(window=16_000) as server:
    steps = [{"calls": [call(1), call(2)]}, {"calls": [call(3)]}, {"text": 20}]
    server.simulator.script.set_replies(steps, repeat=True)
    events = asyncio.run(main(server.url))
    stats = server.simulator.stats()
    calls, refused = stats["requests"], stats["refused"]
    assert events == 20 * 6
    print(f"20 turns, {calls} calls, {refused} refused; ADK keeps all {events} events")
