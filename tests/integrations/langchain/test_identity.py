"""Which calls belong to one conversation."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from tests.integrations.langchain.lives import RUNNER, THREAD
from trimtab.integrations.langchain import TrimtabMiddleware, read_model, unwrap_model
from trimtab.stores.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings("default")


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **settings: Any) -> Any:
        return self


def scripted(*replies: AIMessage) -> Scripted:
    return Scripted(messages=iter(replies))


def answers(count: int) -> Scripted:
    return scripted(*(AIMessage(f"Answer {number}.") for number in range(count)))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": uuid.uuid4().hex}


class Watching(TrimtabMiddleware):
    """Remembers the conversation of each call."""

    def __init__(self) -> None:
        super().__init__(context_window=16_000)
        self.names: list[str] = []

    def _begin(self, request: Any) -> Any:
        began = super()._begin(request)
        assert began is not None
        self.names.append(began.conversation_id)
        return began


def test_an_agent_that_is_a_node_has_one_conversation_in_all_turns():
    middleware = Watching()
    agent = create_agent(answers(3), [], middleware=[middleware])
    graph = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for turn in range(3):
        compiled.invoke({"messages": [("user", f"Question {turn}")]}, THREAD)
    assert len(middleware.names) == 3
    assert len({*middleware.names}) == 1


def test_sub_agents_are_apart_from_their_agent_and_from_each_other():
    inner, outer = Watching(), Watching()
    helper = create_agent(answers(4), [], middleware=[inner])

    @tool
    def ask_helper(task: str) -> str:
        """Ask a helper."""
        return helper.invoke({"messages": [("user", task)]})["messages"][-1].text

    two = [call("ask_helper", task="same"), call("ask_helper", task="same")]
    model = scripted(AIMessage("", tool_calls=two), AIMessage("Done."))
    agent = create_agent(model, [ask_helper], middleware=[outer], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "Go.")]}, THREAD)
    assert {*outer.names} == {"thread-1"}
    assert len({*inner.names}) == 2
    assert "thread-1" not in inner.names


def test_a_sub_agent_is_stored_only_if_it_has_a_second_turn():
    store = MemoryStore()
    helper = create_agent(answers(9), [], middleware=[TrimtabMiddleware(store=store)])

    @tool
    def ask_helper(task: str) -> str:
        """Ask a helper."""
        return helper.invoke({"messages": [("user", task)]})["messages"][-1].text

    def list_stored() -> list[str]:
        return [listed.session for listed in RUNNER.run(store.sessions())]

    model = scripted(
        *(AIMessage("", tool_calls=[call("ask_helper", task="same")]) for _ in range(3)),
        AIMessage("Done."),
    )
    agent = create_agent(model, [ask_helper], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "Go.")]}, THREAD)
    assert list_stored() == []
    graph = StateGraph(MessagesState).add_node("helper", helper).add_edge(START, "helper")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for turn in range(3):
        compiled.invoke({"messages": [("user", f"Question {turn}")]}, THREAD)
    assert len(list_stored()) == 1


@pytest.mark.parametrize("name", ["recall", "search_history"])
def test_a_tool_of_the_agent_that_replaces_ours_is_refused(name):
    @tool(name)
    def look_up(product: str) -> str:
        """Say whether a product was called back."""
        return "no"

    def run(**options: Any) -> None:
        middleware = TrimtabMiddleware(**options)
        create_agent(answers(1), [look_up], middleware=[middleware]).invoke(
            {"messages": [("user", "Hello.")]}
        )

    with pytest.raises(ValueError, match=f"tool of its own named '{name}'.*recall=False"):
        run()
    run(recall=False)


def test_our_tools_may_be_copied_by_another_middleware():
    class Copying(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[each.model_copy() for each in request.tools]))

    agent = create_agent(answers(1), [], middleware=[Copying(), TrimtabMiddleware()])
    assert len(agent.invoke({"messages": [("user", "Hello.")]})["messages"]) == 2


def test_two_users_without_a_thread_never_share_a_conversation():
    middleware = Watching()
    agent = create_agent(answers(9), [], middleware=[middleware])
    # LangChain writes ids into these objects, and they begin both conversations.
    examples = [HumanMessage("What is 1 + 1?"), AIMessage("2")]
    one = agent.invoke({"messages": [*examples, HumanMessage("I am Ada.")]})["messages"]
    two = agent.invoke({"messages": [*examples, HumanMessage("I am Bob.")]})["messages"]
    assert one[0].id == two[0].id
    agent.invoke({"messages": [*one, HumanMessage("Who am I?")]})
    agent.invoke({"messages": [*two, HumanMessage("Who am I?")]})
    # A second branch of Ada's conversation: the first one has continued it.
    agent.invoke({"messages": [*one, HumanMessage("And now?")]})
    ada, bob, ada_again, bob_again, branch = middleware.names
    assert (ada_again, bob_again) == (ada, bob)
    assert len({ada, bob, branch}) == 3


def test_a_call_that_failed_does_not_lend_its_conversation_to_others():
    class Failing(Scripted):
        def _generate(self, *args: Any, **settings: Any) -> Any:
            raise RuntimeError("down")

    middleware = Watching()
    agent = create_agent(Failing(messages=iter(())), [], middleware=[middleware])
    examples = [HumanMessage("What is 1 + 1?"), AIMessage("2")]
    for name in ("Ada", "Bob"):
        with pytest.raises(RuntimeError, match="down"):
            agent.invoke({"messages": [*examples, HumanMessage(f"I am {name}.")]})
    assert len({*middleware.names}) == 2


def test_a_loop_without_a_thread_is_one_conversation():
    middleware = Watching()

    @tool
    def look(number: int) -> str:
        """Look."""
        return "seen " * number

    model = scripted(
        *(AIMessage("", tool_calls=[call("look", number=n)]) for n in range(3)), AIMessage("Done.")
    )
    agent = create_agent(model, [look], middleware=[middleware])
    agent.invoke({"messages": [("user", "Go.")]})
    assert len(middleware.names) == 4
    assert len({*middleware.names}) == 1


def test_an_empty_thread_id_is_a_thread():
    middleware = TrimtabMiddleware(context_window=16_000)
    agent = create_agent(answers(2), [], middleware=[middleware], checkpointer=InMemorySaver())
    for turn in range(2):
        said = {"messages": [("user", f"Question {turn}")]}
        agent.invoke(said, {"configurable": {"thread_id": ""}})
    assert middleware.report("").calls == 2


@pytest.mark.parametrize("thread_id", [uuid.UUID(int=7), 7])
def test_a_thread_id_need_not_be_a_text(thread_id):
    middleware = TrimtabMiddleware(context_window=16_000)
    agent = create_agent(answers(2), [], middleware=[middleware], checkpointer=InMemorySaver())
    for turn in range(2):
        said = {"messages": [("user", f"Question {turn}")]}
        agent.invoke(said, {"configurable": {"thread_id": thread_id}})
    assert middleware.report(thread_id).calls == middleware.report(str(thread_id)).calls == 2
    assert middleware.why("m2", thread_id).text.endswith("Question 0")


def test_two_agents_with_one_store_and_one_thread_id_are_apart_by_their_names():
    store, names = MemoryStore(), ("", "billing", "sales")
    for name in names:
        middleware = TrimtabMiddleware(store=store, agent=name)
        agent = create_agent(answers(1), [], middleware=[middleware], checkpointer=InMemorySaver())
        agent.invoke({"messages": [("user", f"Question for {name}")]}, THREAD)
        thread_id = THREAD["configurable"]["thread_id"]
        assert f"Question for {name}" in middleware.why("m2", thread_id).text


def test_a_list_without_messages_is_sent_as_without_trimtab():
    for middleware in ([], [TrimtabMiddleware(context_window=16_000)]):
        agent = create_agent(answers(1), [], system_prompt="Say hello.", middleware=middleware)
        assert [each.text for each in agent.invoke({"messages": []})["messages"]] == ["Answer 0."]


OPENAI: dict[str, Any] = {"model": "gpt-4o", "api_key": "none"}
CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "api_key": "none"}


@pytest.mark.parametrize(
    ("model", "name", "dialect", "caches"),
    [
        (ChatOpenAI(**OPENAI), "gpt-4o", "openai_chat", False),
        (ChatOpenAI(**OPENAI).bind(stop=["x"]), "gpt-4o", "openai_chat", False),
        (ChatOpenAI(**OPENAI, use_responses_api=True), "gpt-4o", "openai_responses", False),
        (ChatAnthropic(**CLAUDE), "claude-sonnet-5-5", "anthropic", True),
        (answers(1), "Scripted", "openai_chat", False),
    ],
)
def test_name_dialect_and_caching_are_read_from_the_model(model, name, dialect, caches):
    facts = read_model(unwrap_model(model), {})
    assert (facts.name, facts.dialect, facts.takes_cache_control) == (name, dialect, caches)


def test_the_model_that_the_config_chooses_is_read():
    model = init_chat_model("openai:gpt-4o", configurable_fields=("model",), api_key="none")
    assert read_model(unwrap_model(model), {}).name == "gpt-4o"
    config: Any = {"configurable": {"model": "gpt-5.2"}}
    chosen = RunnableLambda(lambda _: read_model(unwrap_model(model), {}).name).invoke(0, config)
    assert chosen == "gpt-5.2"


def test_the_window_of_an_unknown_model_comes_from_langchain_s_profile():
    model = answers(1).model_copy(update={"profile": {"max_input_tokens": 9_000}})
    assert read_model(model, {}).context_window == 9_000
    known = ChatOpenAI(**OPENAI)
    assert read_model(known, {}).context_window is None
