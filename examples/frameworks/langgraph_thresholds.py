"""A LangGraph agent with thresholds: it shows how full its context is, and warns in time.

The graph is written by hand: a node for the model, a node for the tools. Above 70 % of the window
old messages are summarised, and the newest ten stay. Above 90 % the safety trim hides more. The
display appears above 30 %, as in JutulGPT.

Needs: pip install 'trimtab[langchain,testing]' langchain-openai
"""

from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime

from trimtab.integrations.langchain import TrimtabMiddleware
from trimtab.testing import serve_simulated_provider

WINDOW = 16_000
TURNS = 20
SYSTEM = SystemMessage("You simulate reservoirs. Read reports before you answer.")


@tool
def read_report(number: int) -> str:
    """Read the report of a simulation."""
    return f"report {number}: " + " ".join(f"cell_{k}={k * number % 977}" for k in range(250))


trimtab = TrimtabMiddleware(policy="thresholds", context_window=WINDOW)
tools = [read_report, *trimtab.tools]


def build_graph(model: ChatOpenAI) -> Any:
    """Build a graph of two nodes."""

    def send(request: ModelRequest[Any]) -> ModelResponse[Any]:
        bound = request.model.bind_tools(request.tools, **request.model_settings)
        return ModelResponse(result=[bound.invoke([SYSTEM, *request.messages])])

    def call_model(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
        request = ModelRequest[Any](
            model=model,
            messages=state["messages"],
            system_message=SYSTEM,
            tools=[*tools],
            runtime=runtime,
        )
        return {"messages": trimtab.wrap_model_call(request, send).result}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def show_context(thread_id: str, turn: int) -> None:
    """Print the display above 30 %, and a warning above 70 %."""
    report = trimtab.report(thread_id)
    if report.worth_showing and turn % 5 == 0:
        print(f"\nafter turn {turn}\n{report}")
    if report.level != "normal":
        print(f"turn {turn}: the context is {report.level}, {report.share:.0%} of the window")


def main() -> None:
    """Talk for twenty turns with a simulated model."""
    with serve_simulated_provider(window=WINDOW) as served:
        model = ChatOpenAI(
            model="gpt-4o", base_url=served.openai_url, api_key="none", max_tokens=1_000
        )
        graph = build_graph(model)
        config: Any = {"configurable": {"thread_id": "reservoir"}}
        for turn in range(1, TURNS + 1):
            calls = [
                {"name": "read_report", "arguments": {"number": 3 * turn + k}} for k in range(2)
            ]
            served.simulator.script.set_replies([{"calls": calls}, {"text": 40}])
            graph.invoke({"messages": [("user", f"Compare the runs of day {turn}.")]}, config)
            show_context("reservoir", turn)
        stats = served.simulator.stats()
        kept = len(graph.get_state(config).values["messages"])
        print(
            f"{TURNS} turns, {stats['requests']} calls, {stats['refused']} refused; "
            f"LangGraph keeps all {kept} messages"
        )


main()
