"""Agents and sessions: listed, begun, looked at, deleted."""

from __future__ import annotations

import pytest

from tests.serve.channels.http.running_apps import house, problem
from trimtab_serve.client import ApiError
from trimtab_serve.client.types import AgentInfo

pytestmark = pytest.mark.anyio


async def test_the_agents_that_are_served_are_listed():
    async with house() as served, served.client() as client:
        assert await client.list_agents() == [
            AgentInfo(name="helper", model="claude-sonnet-4-5", policy="auto"),
            AgentInfo(name="other", model="claude-sonnet-4-5", policy="auto"),
        ]


async def test_a_session_is_begun_under_a_name_or_one_that_is_made():
    async with house() as served, served.client() as client, served.http() as http:
        session = await client.create_session("helper", "one")
        state = await session.state()
        assert (state.agent, state.name, state.position, state.messages) == ("helper", "one", 1, 0)
        assert (state.running, state.waiting, state.failure_reason) == (False, 0, None)
        made = await http.post("/v1/agents/helper/sessions", json={})
        assert made.status_code == 201
        assert made.headers["location"] == f"/v1/agents/helper/sessions/{made.json()['name']}"
        again = await http.post("/v1/agents/helper/sessions", json={"name": "one"})
        assert "already has a session one" in problem(again, 409, "conflict")["detail"]


async def test_sessions_are_listed_by_agent_in_pages():
    async with house() as served, served.client() as client:
        names = [f"s{number}" for number in range(5)]
        for name in names:
            await client.create_session("helper", name)
        await client.create_session("other", "elsewhere")
        assert [each.name async for each in client.list_sessions("helper", page_size=2)] == names
        assert [each.name async for each in client.list_sessions("other")] == ["elsewhere"]


async def test_sessions_are_listed_by_their_last_activity_in_pages():
    async with house(*["Hello."] * 9) as served, served.client() as client, served.http() as http:
        names = ["c", "a", "d", "b"]
        for name in (*names, "a"):
            await client.session("helper", name).ask("Hi")
        await client.session("other", "elsewhere").ask("Hi")
        recent = ["a", "b", "d", "c"]
        listed = client.list_sessions("helper", order="recent", page_size=1)
        assert [each.name async for each in listed] == recent
        path = "/v1/agents/helper/sessions?order=recent&limit=2"
        page = (await http.get(path)).json()
        assert [one["name"] for one in page["sessions"]] == recent[:2]
        # A session that is active meanwhile is at the front; the next page stays the same.
        await client.session("helper", "c").ask("Hi")
        page = (await http.get(f"{path}&after={page['next']}")).json()
        assert [one["name"] for one in page["sessions"]] == ["d"]
        assert page["next"] is None
        for wrong in ("x", "x/y", "/", "1e"):
            problem(await http.get(f"{path}&after={wrong}"), 422, "invalid-request")
        problem(await http.get("/v1/agents/helper/sessions?order=age"), 422, "invalid-request")


async def test_a_deleted_session_is_gone_and_its_name_is_free_again():
    async with house("Hello.", "Hello again.") as served, served.client() as client:
        session = client.session("helper", "one")
        await session.ask("Hi.")
        await session.delete()
        with pytest.raises(ApiError, match="agent helper has no session one") as refused:
            await session.state()
        assert (refused.value.status, refused.value.kind) == (404, "not-found")
        assert [each async for each in client.list_sessions("helper")] == []
        assert await session.ask("Hi.") == "Hello again."
        assert [m.text async for m in session.history()] == ["Hi.", "Hello again."]


@pytest.mark.parametrize("name", ["a b", "ü", "-x", ".x", "a" * 129, "a\nb", "..", "%00"])
async def test_what_is_no_name_is_no_session(name):
    async with house() as served, served.client() as client:
        with pytest.raises(ApiError) as refused:
            await client.session("helper", name).send("Hi.")
        assert refused.value.status == 404
        told = (
            "a name is 1 to 128 letters, digits and `_ . : @ + = -`; the first is a letter, "
            "a digit or `_`"
        )
        if name != "..":  # the client shortens the path by it
            assert refused.value.detail.endswith(told)
        with pytest.raises(ApiError) as refused:
            await client.create_session("helper", name)
        assert (refused.value.status, refused.value.errors[0]["field"]) == (422, "name")


async def test_an_agent_that_is_not_served_is_told_with_where_the_agents_are_listed():
    async with house() as served, served.http() as http:
        told = problem(await http.get("/v1/agents/helpr/sessions"), 404, "not-found")
        assert told["detail"] == "agent helpr does not exist"
        assert told["help"] == "`GET /v1/agents` lists the agents that you can use."
