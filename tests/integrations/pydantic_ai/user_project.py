"""A user's program: type checkers must know what it does, in their strict modes."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext

from trimtab.integrations.pydantic_ai import TrimtabCapability


@dataclass
class Dependencies:
    customer: str


class Answer(BaseModel):
    advice: str
    risk: int


trimtab = TrimtabCapability(
    goal="cost", context_window=64_000, store="sessions", limits={"max_tool_result_tokens": 2_000}
)
agent = Agent(
    "openai:gpt-5.2",
    deps_type=Dependencies,
    output_type=Answer,
    capabilities=[trimtab],
)
plain = Agent("anthropic:claude-sonnet-5-5", capabilities=[TrimtabCapability()])


@agent.tool
async def customer_balance(ctx: RunContext[Dependencies], pending: bool) -> str:
    """Return the balance of the customer."""
    return f"{ctx.deps.customer}: {pending}"


async def main() -> str:
    result = await agent.run("How much?", deps=Dependencies("Ann"), conversation_id="ann")
    again = await agent.run(
        "And now?", deps=Dependencies("Ann"), message_history=result.all_messages()
    )
    risk: int = again.output.risk
    report = await trimtab.report(again.conversation_id)
    reason = await trimtab.why("m2", again.conversation_id)
    await trimtab.close()
    return f"{risk} {report.used} {reason}"


def talk() -> str:
    return plain.run_sync("Hello.").output
