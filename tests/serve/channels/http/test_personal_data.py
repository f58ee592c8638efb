"""Users and tenants are exported and forgotten over HTTP, by whoever may."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.serve.channels.http.running_apps import MESSAGES, Held, house, problem, until
from trimtab_serve.channels.http.endpoints import personal_data
from trimtab_serve.client import ApiError, ServerUnreachable
from trimtab_serve.service.erasure_records import FileErasureRecords
from trimtab_serve.service.service import AgentService

pytestmark = pytest.mark.anyio

WORD = "zq4711needle"
WHO = (
    {"key_name": "office", "tenant": "acme"},
    {"key_name": "zeta", "tenant": "zeta"},
    {"key_name": "narrow", "tenant": "acme", "agents": ("helper",)},
)


async def say(http, served, text, *, session="one", agent="helper", **body):
    path = f"/v1/agents/{agent}/sessions/{session}/messages"
    answer = await http.post(path, json={"text": text, **body})
    assert answer.status_code == 202, answer.text
    await served.turns.wait_until_idle()


def lines(answer):
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def read(http, path, got):
    async with http.stream("GET", path) as answer:
        async for piece in answer.aiter_bytes():
            got.append(piece)


async def test_a_user_that_callers_name_is_exported_and_erased(tmp_path):
    async with (
        house(*["Hello."] * 9, keys=True, who=WHO) as served,
        served.http("office") as http,
        served.http("zeta") as zeta,
    ):
        records = served.service.erasure_records = FileErasureRecords(tmp_path)
        await say(http, served, f"I am {WORD}", user="anna")
        await say(http, served, f"I am {WORD} too", session="both", user="anna")
        await say(http, served, "I am Bob", session="both", user="bob")
        await say(zeta, served, "I am another Anna", user="anna")
        # No model was told who spoke.
        assert "anna" not in json.dumps(served.provider.requests[:2])

        told = lines(await http.get("/v1/users/anna/export"))
        assert [(one["session"], one["text"]) for one in told if one["kind"] == "message"] == [
            ("helper/both", f"I am {WORD} too"),
            ("helper/both", "Hello."),
            ("helper/one", f"I am {WORD}"),
            ("helper/one", "Hello."),
        ]
        assert told[-1] == {"kind": "end", "sessions": 2, "messages": 4, "unreadable": []}

        answer = await http.request("DELETE", "/v1/users/anna")
        assert answer.status_code == 200
        status = answer.json()
        assert (await http.get(answer.headers["location"])).json() == status
        assert status == {
            "id": status["id"],
            "state": "done",
            "reason": "",
            "to_do": 0,
            "sessions": 1,
            "messages": 2,
            "waiting": 0,
            "unreadable": [],
            "configured_schedules": [],
        }
        assert len(lines(await http.get("/v1/users/anna/export"))) == 2
        history = (await http.get("/v1/agents/helper/sessions/both/history")).text
        assert WORD not in history
        assert "I am Bob" in history
        assert (await http.get("/v1/agents/helper/sessions/one")).status_code == 404
        assert "another Anna" in (await zeta.get("/v1/agents/helper/sessions/one/history")).text

        found = (await http.get("/v1/erasures", params={"user": "anna"})).json()["erasures"]
        told = [(one["by"], one["kind"], one["outcome"], one["sessions"]) for one in found]
        assert told == [("office", "user", "done", 1)]
        assert found[0]["id"] == status["id"]
        assert found[0]["target"] == await records.digest("anna")
        assert (await zeta.get("/v1/erasures")).json() == {"erasures": []}
        answer = await http.get("/v1/erasures", params={"user": "a", "session": "b"})
        problem(answer, 422, "invalid-request")


async def test_a_tenant_is_exported_and_erased_by_whoever_says_its_name(tmp_path):
    async with (
        house(*["Hello."] * 9, keys=True, who=WHO) as served,
        served.http("office") as http,
        served.http("narrow") as narrow,
        served.http("zeta") as zeta,
    ):
        served.service.erasure_records = FileErasureRecords(tmp_path)
        await say(http, served, f"I am {WORD}")
        await say(http, served, f"I am {WORD}", agent="other")
        await say(zeta, served, "I stay")
        told = lines(await http.get("/v1/tenant/export"))
        assert told[0]["tenant"] == "acme"
        assert told[-1] == {"kind": "end", "sessions": 2, "messages": 4, "unreadable": []}
        for body in ({"confirm": "zeta"}, {}, {"confirm": "acme", "tenant": "zeta"}):
            answer = await http.request("DELETE", "/v1/tenant", json=body)
            problem(answer, 422, "invalid-request")
        answer = await narrow.request("DELETE", "/v1/tenant", json={"confirm": "acme"})
        problem(answer, 403, "forbidden")
        problem(await narrow.get("/v1/tenant/export"), 403, "forbidden")
        assert len(await served.service.store.sessions()) == 3

        answer = await http.request("DELETE", "/v1/tenant", json={"confirm": "acme"})
        assert answer.json()["sessions"] == 2
        left = [one.session for one in await served.service.store.sessions()]
        assert left == ["zeta/helper/one"]


async def test_deleting_a_session_and_erasing_a_message_are_recorded_with_the_key(tmp_path):
    async with (
        house("Hello.", keys=True, who=WHO) as served,
        served.http("office") as http,
    ):
        served.service.erasure_records = FileErasureRecords(tmp_path)
        await say(http, served, "Hi")
        path = "/v1/agents/helper/sessions/one"
        await http.post(f"{path}/erase", json={"handle": "m2"})
        await http.delete(path)
        await http.delete(path)
        query = {"session": "helper/one"}
        found = (await http.get("/v1/erasures", params=query)).json()["erasures"]
        told = [(one["by"], one["kind"], one["agent"], one["outcome"]) for one in found]
        assert told == [
            ("office", "session", "helper", "done"),
            ("office", "message", "helper", "done"),
        ]


async def test_a_turn_that_runs_is_begun_again_without_what_the_user_said():
    model = Held("First.", f"You are {WORD}.", "Again.", after=6)
    async with house(provider=model) as served, served.http() as http:
        model.go_on.set()
        await say(http, served, "I am Bob", user="bob")
        model.go_on.clear()
        model.reached.clear()
        await http.post(MESSAGES, json={"text": f"I am {WORD}", "user": "anna"})
        await until(model.reached.is_set)
        done = (await http.request("DELETE", "/v1/users/anna")).json()
        model.go_on.set()
        await served.turns.wait_until_idle()
        assert done["sessions"] == 0
        assert done["messages"] >= 1
        events = [event async for event in served.service.store.events("default/helper/one")]
        assert WORD not in str(events)
        assert WORD not in str(await served.service.queue.pending("default/helper/one"))
        assert WORD not in json.dumps(model.requests[-1])


async def test_an_export_that_fails_in_the_middle_has_no_end(monkeypatch):
    async with house("Hello.", "Hello.") as served, served.http() as http:
        for name in ("one", "two"):
            await say(http, served, "Hi", session=name, user="anna")
        real, store = served.service.store.events, served.service.store

        def events(session, *spans):
            if session.endswith("two"):
                raise ZeroDivisionError
            return real(session, *spans)

        monkeypatch.setattr(store, "events", events)
        got: list[bytes] = []
        with pytest.raises(httpx2.RemoteProtocolError):
            await read(http, "/v1/tenant/export", got)
        async with served.client() as client:
            with pytest.raises(ServerUnreachable):
                _ = [line async for line in client.export_tenant()]
        assert b'"end"' not in b"".join(got)
        assert b'"message"' in b"".join(got)


async def test_the_client_exports_erases_and_lists(tmp_path):
    async with house("Hello.", "Hello.") as served, served.client() as client:
        served.service.erasure_records = FileErasureRecords(tmp_path)
        await client.session("helper", "one").ask("I am Anna.", user="anna")
        accepted = await client.session("helper", "two").send("I am Bob.", user="bob")
        assert not accepted.duplicate
        await served.turns.wait_until_idle()
        copy = [line async for line in client.export_user("anna")]
        assert [line["kind"] for line in copy] == ["export", "session", "message", "message", "end"]
        assert (await client.erase_user("anna")).sessions == 1
        assert [line["kind"] async for line in client.export_tenant()].count("session") == 1
        with pytest.raises(ApiError):
            await client.erase_tenant("acme")
        assert (await client.erase_tenant("default")).sessions == 1
        assert [one.outcome for one in await client.list_erasures(user="anna")] == ["done"]
        assert len(await client.list_erasures(limit=1)) == 1


async def test_what_is_no_name_of_a_user_is_refused():
    async with house() as served, served.http() as http:
        for user in ("a%2Fb", "%2e", "a%20b", "x" * 129):
            problem(await http.get(f"/v1/users/{user}/export"), 404, "not-found")
        answer = await http.post(MESSAGES, json={"text": "Hi", "user": "a b"})
        assert problem(answer, 422, "invalid-request")["errors"][0]["field"] == "user"


async def test_a_long_erasure_is_answered_at_once_and_stops_only_forks_of_its_user(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(personal_data, "MAX_WAIT_S", 0.01)
    go_on, reached = asyncio.Event(), asyncio.Event()
    erase = AgentService.erase_message

    async def slowly(self, *args, **options):
        reached.set()
        await go_on.wait()
        return await erase(self, *args, **options)

    monkeypatch.setattr(AgentService, "erase_message", slowly)
    async with (
        house(*["Hello."] * 9, keys=True, who=WHO) as served,
        served.http("office") as http,
        served.http("narrow") as narrow,
        served.http("zeta") as zeta,
    ):
        await say(http, served, f"I am {WORD}", session="both", user="anna")
        await say(http, served, "I am Bob", session="both", user="bob")
        await say(http, served, "I am Bob", session="bob", user="bob")
        answer = await http.request("DELETE", "/v1/users/anna")
        assert answer.status_code == 202
        where = answer.headers["location"]
        await reached.wait()
        assert (await http.get(where)).json()["state"] == "running"
        again = await http.request("DELETE", "/v1/users/anna")
        assert (again.status_code, again.headers["location"]) == (202, where)
        for other in (narrow, zeta):
            problem(await other.get(where), 404, "not-found")
        sessions = "/v1/agents/helper/sessions"
        problem(await http.post(f"{sessions}/both/fork", json={"name": "x"}), 409, "conflict")
        assert (await http.get(f"{sessions}/x")).status_code == 404
        answer = await http.post(f"{sessions}/bob/fork", json={"name": "y"})
        assert answer.status_code == 201
        (listed,) = (await http.get("/v1/erasures")).json()["erasures"]
        assert (listed["outcome"], listed["id"]) == ("running", again.json()["id"])
        go_on.set()
        await until(lambda: not served.offer.background_tasks)
        status = (await http.get(where)).json()
        assert (status["state"], status["messages"], status["to_do"]) == ("done", 2, 0)
        mine = (await narrow.request("DELETE", "/v1/users/bob")).headers["location"]
        assert (await narrow.get(mine)).status_code == 200
        assert (await http.get(mine)).status_code == 200
        problem(await http.get("/v1/erasures/none"), 404, "not-found")
