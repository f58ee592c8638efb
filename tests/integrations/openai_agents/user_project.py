"""A user's project, checked by pyright and mypy, both strict."""

from __future__ import annotations

import asyncio
import logging

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool

from trimtab import ContextReport, EditNotice
from trimtab.integrations.openai_agents import TrimtabModel

logger = logging.getLogger(__name__)


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"The weather in {city} is sunny."


def log_edit(notice: EditNotice) -> None:
    logger.info("%s %s", notice.handle, notice.reason)


model = TrimtabModel(
    "gpt-5.4",
    goal="cost",
    limits={"max_tool_result_tokens": 4_000},
    store="sessions",
    on_edit=log_edit,
)
billing = Agent(
    name="Billing", model=model.with_model("gpt-5.4-mini"), tools=[get_weather, *model.tools]
)
agent = Agent(
    name="Assistant",
    instructions="You are a helpful assistant.",
    model=model,
    tools=[get_weather, *model.tools],
    handoffs=[billing],
)


async def main() -> None:
    session = SQLiteSession("chat-7")
    result = await Runner.run(agent, "How is the weather in Oslo?", session=session)
    logger.info("%s", result.final_output)
    streamed = Runner.run_streamed(
        agent, "And in Rome?", session=session, run_config=RunConfig(group_id="thread-1")
    )
    async for event in streamed.stream_events():
        logger.info("%s", event.type)
    report: ContextReport = await model.report("chat-7")
    logger.info("%d of %d: %s", report.used, report.limit, await model.why("m12", "chat-7"))


if __name__ == "__main__":
    asyncio.run(main())
