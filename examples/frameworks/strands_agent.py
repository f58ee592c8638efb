"""Strands: every request fits the window, and `agent.messages` keeps everything.

A middleware stands between the agent and its model. It sends what fits, and less after a refusal
for length. Without `NullConversationManager`, Strands would drop old messages itself.

Needs: pip install 'trimtab[testing]' 'strands-agents[openai]'
"""

import json
from typing import Any

from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.middleware import InvokeModelStage
from strands.models.openai import OpenAIModel
from strands.types.events import ModelStopReason

from trimtab import Message, Text, ToolCall, ToolResult, Usage
from trimtab.integrations.conversations import Conversations
from trimtab.testing import serve_simulated_provider


class Trimtab:
    def __init__(self, **options: Any) -> None:
        self.conversations = Conversations(**options)

    def attach(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage, self.invoke_model)

    async def invoke_model(self, call: Any, send: Any) -> Any:
        name = call.agent.agent_id
        while True:
            fitted = call.replace(messages=await self.fit(name, call))
            try:
                async for event in send(fitted):
                    if isinstance(event, ModelStopReason):
                        _, reply, usage, _ = event["stop"]
                        await self.conversations.add_reply(
                            name,
                            to_message(reply),
                            usage=Usage(
                                input=usage["inputTokens"],
                                output=usage["outputTokens"],
                                cache_read=usage.get("cacheReadInputTokens", 0),
                            ),
                        )
                    yield event
            except Exception as error:
                if not await self.conversations.retry(name, error):
                    raise
            else:
                return

    async def fit(self, name: str, call: Any) -> list[Any]:
        config = call.model.get_config()
        view = await self.conversations.fit(
            name,
            [to_message(each) for each in call.messages],
            model=config["model_id"],
            system=call.system_prompt or "",
            tools=[
                {
                    "name": each["name"],
                    "description": each["description"],
                    "parameters": each["inputSchema"]["json"],
                }
                for each in call.tool_specs
            ],
            max_output_tokens=config.get("params", {}).get("max_tokens"),
        )
        sent: list[Any] = []
        for shown in view:
            if shown.is_callers_own:
                sent += [call.messages[position] for position in shown.positions]
            else:
                role = "assistant" if shown.message.role == "assistant" else "user"
                sent.append({"role": role, "content": [*map(to_block, shown.message.parts)]})
        return sent

    def recall_tools(self) -> list[Any]:
        @tool(context=True)
        async def recall(handle: str, tool_context: ToolContext) -> str:
            """Show text that was hidden to save room.

            Args:
                handle: The handle that a placeholder names, such as m12.0.
            """
            name, arguments = tool_context.agent.agent_id, {"handle": handle}
            return await self.conversations.answer(name, "recall", arguments)

        @tool(context=True)
        async def search_history(query: str, tool_context: ToolContext) -> str:
            """Find earlier messages of this conversation, hidden ones included.

            Args:
                query: Words to look for.
            """
            name, arguments = tool_context.agent.agent_id, {"query": query}
            return await self.conversations.answer(name, "search_history", arguments)

        return [recall, search_history]


def to_message(given: Any) -> Message:
    parts: list[Any] = []
    for block in given["content"]:
        if "text" in block:
            parts.append(Text(text=block["text"]))
        elif "toolUse" in block:
            use = block["toolUse"]
            arguments = json.dumps(use["input"])
            parts.append(ToolCall(id=use["toolUseId"], name=use["name"], arguments=arguments))
        elif "toolResult" in block:
            result = block["toolResult"]
            texts = (each.get("text") or json.dumps(each) for each in result["content"])
            content = tuple(Text(text=text) for text in texts)
            parts.append(ToolResult(call_id=result["toolUseId"], content=content))
        else:
            raise TypeError(f"this example passes on texts and tool calls only, not {block}")
    return Message(role=given["role"], parts=tuple(parts))


def to_block(part: Any) -> Any:
    match part:
        case ToolCall():
            arguments = json.loads(part.arguments)
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": arguments}}
        case ToolResult():
            content = [{"text": part.text}]
            return {
                "toolResult": {"toolUseId": part.call_id, "status": "success", "content": content}
            }
        case _:
            return {"text": part.text}


@tool
def read_report(number: int) -> str:
    """Read a report.

    Args:
        number: Its number.
    """
    return "".join(f"{number}.{line}: {line * number % 977} bar\n" for line in range(150))


def call(number: int) -> dict[str, Any]:
    return {"name": "read_report", "arguments": {"number": number}}


with serve_simulated_provider(window=16_000) as server:
    steps = [{"calls": [call(1), call(2)]}, {"calls": [call(3)]}, {"text": 20}]
    server.simulator.script.set_replies(steps, repeat=True)
    trimtab = Trimtab(context_window=16_000)
    agent = Agent(
        model=OpenAIModel(
            client_args={"base_url": server.openai_url, "api_key": "any"},
            model_id="gpt-4o",
            params={"max_tokens": 1_000},
        ),
        tools=[read_report, *trimtab.recall_tools()],
        conversation_manager=NullConversationManager(),
        agent_id="chat-7",
        callback_handler=None,
    )
    trimtab.attach(agent)
    for turn in range(20):
        agent(f"Read three reports. This is turn {turn}.")

    print(trimtab.conversations.run(trimtab.conversations.report("chat-7")))
    stats = server.simulator.stats()
    calls, refused = stats["requests"], stats["refused"]
    assert len(agent.messages) == 20 * 6
    kept = f"Strands keeps all {len(agent.messages)} messages"
    print(f"20 turns, {calls} calls, {refused} refused; {kept}")
