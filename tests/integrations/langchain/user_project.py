"""A program of a user, for type checkers."""

# LangChain's own functions have types that pyright knows only in part.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from trimtab import ContextReport
from trimtab.integrations.langchain import TrimtabMiddleware
from trimtab.stores import FileStore


@tool
def read_report(number: int) -> str:
    """Read a report."""
    return f"report {number}"


def talk(model: BaseChatModel, text: str) -> str:
    """Say one thing to an agent."""
    agent = create_agent(model, [read_report], middleware=[TrimtabMiddleware()])
    return str(agent.invoke({"messages": [{"role": "user", "content": text}]})["messages"][-1].text)


async def talk_with_options(model: BaseChatModel, text: str) -> ContextReport:
    """Say one thing to an agent with options, and tell where the tokens went."""
    trimtab = TrimtabMiddleware(
        goal="cost",
        context_window=64_000,
        limits={"max_tool_result_tokens": 4_000},
        store=FileStore("logs"),
        on_edit=lambda notice: notice.handle,
    )
    agent = create_agent(model, [read_report], middleware=[TodoListMiddleware(), trimtab])
    await agent.ainvoke({"messages": [{"role": "user", "content": text}]})
    reasons = [trimtab.why("m12.0", "thread-1"), await trimtab.awhy("m12.0")]
    report = await trimtab.areport()
    await trimtab.aclose()
    return trimtab.report("thread-1") if reasons else report
