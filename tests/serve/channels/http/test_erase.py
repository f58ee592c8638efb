"""One message is forgotten over HTTP, while its session is served."""

from __future__ import annotations

import pytest

from tests.serve.channels.http.running_apps import Held, house, problem
from tests.serve.service.served_agents import inbound
from trimtab_serve.client import ApiError

pytestmark = pytest.mark.anyio

ID = "default/helper/one"
ERASE = "/v1/agents/helper/sessions/one/erase"


async def test_an_erased_message_is_nowhere_and_the_same_again_is_answered_the_same():
    async with house("Hello, Ada.") as served:
        session = served.session()
        await session.ask("I am Ada.")
        (first, second) = [message async for message in session.history()]
        done = await session.erase(f"{first.handle}-{second.handle}", reason="asked for")
        assert (done.handles, done.forks) == ([first.handle, second.handle], [])
        assert [message.text async for message in session.history()] == ["[erased]"] * 2
        with pytest.raises(ApiError) as refused:
            await session.recall(first.handle)
        assert refused.value.status == 404
        assert "Ada" not in str([event async for event in served.service.store.events(ID)])
        state = await session.state()
        assert await session.erase(f"{first.handle}-{second.handle}") == done
        assert await session.state() == state


async def test_forks_of_the_same_agent_that_keep_a_copy_are_named():
    async with house("Hello, Ada.") as served:
        session = served.session()
        await session.ask("I am Ada.")
        copy = await session.fork("copy")
        async with served.service.open_session(ID) as opened:
            await opened.fork("acme/other/copy")
        assert (await session.erase("m2")).forks == ["copy"]
        assert (await copy.erase("m2")).forks == []


async def test_what_names_nothing_is_not_found_and_what_is_no_handle_is_invalid():
    async with house("Hello, Ada.") as served, served.http() as http:
        nowhere = await http.post(ERASE, json={"handle": "m2"})
        assert "has no session one" in problem(nowhere, 404, "not-found")["detail"]
        await served.session().ask("I am Ada.")
        for handle in ("m1", "m99", "m2.7"):
            told = problem(await http.post(ERASE, json={"handle": handle}), 404, "not-found")
            assert told["detail"] == f"nothing was erased: there is no {handle}"
        for body in (
            {},
            {"handle": "2"},
            {"handle": "m-1"},
            {"handle": "m2 "},
            {"handle": "m2", "when": "now"},
        ):
            told = problem(await http.post(ERASE, json=body), 422, "invalid-request")
            assert told["errors"][0]["field"] in ("handle", "when")
        said = [message.text async for message in served.session().history()]
        assert said == ["I am Ada.", "Hello, Ada."]


async def test_a_turn_that_runs_is_begun_again_without_it_and_its_reader_gets_the_answer():
    model = Held("You are Ada.", "Who are you?", after=4)
    async with house(provider=model) as served:
        session, other = served.session(), served.client()
        kinds, text = list[str](), ""
        async for event in session.stream("I am Ada."):
            kinds.append(event.kind)
            if event.kind == "turn.started":
                text = ""  # what came of a reply that was cut off is void
            elif event.kind == "message.delta":
                text += event.data["text"]
            if model.reached.is_set() and not model.go_on.is_set():
                async with other:
                    await other.session("helper", "one").erase("m2")
                model.go_on.set()
        assert kinds[-1] == "turn.finished"
        assert kinds.count("turn.finished") == 1
        assert "messages.erased" in kinds
        said = [(message.role, message.text) async for message in session.history()]
        assert said == [("user", "[erased]"), ("assistant", text)]
        assert "Ada" not in str(model.requests[-1])


async def test_a_session_of_which_only_a_message_waits_can_be_deleted():
    async with house() as served, served.http() as http:
        served.leave_unanswered()
        # As a bot hands it in: there is no log before its first turn.
        await served.service.post(inbound("I am Ada.", key="a", session=ID))
        assert (await http.delete("/v1/agents/helper/sessions/one")).status_code == 204
        assert await served.service.queue.pending(ID) == []
        gone = await http.delete("/v1/agents/helper/sessions/one")
        assert "has no session one" in problem(gone, 404, "not-found")["detail"]
