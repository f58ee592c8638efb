"""A key of one tenant never reads, lists or counts what is another's, whatever it asks.

The routes come from the OpenAPI document, so one that is added is held to it as well.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.serve.channels.http.running_apps import House, house
from trimtab.errors import ProviderFailureDetails
from trimtab_serve.channels.http.app import API_ROUTES
from trimtab_serve.channels.http.openapi import build_openapi_document
from trimtab_serve.service import retries

DOCUMENT = build_openapi_document(API_ROUTES)
ROUTES = sorted(
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, told in methods.items()
    if told.get("security") != []
)
WITH_SESSION = [route for route in ROUTES if "{session}" in route[1]]
SECRET = "the-heron-flies-at-midnight"  # noqa: S105 - what must not be seen
THEIRS, NOBODYS = "theirs-0123456789", "nobody-0123456789"
"""Of the same length: so are the answers."""
USER = "heron-keeper"
"""A user of tenant B."""
REFUSED = ProviderFailureDetails(kind="refused", message=SECRET)
WHO = (
    {"key_name": "a", "tenant": "tenant-a"},
    {"key_name": "b", "tenant": "tenant-b"},
)
MADE = frozenset({"send_message", "create_session"})
"""What begins a session where there is none; under one's own tenant."""
BODIES: Mapping[str, Any] = {
    "send_message": {"text": "Hello.", "key": "k1"},
    "create_session": {"name": THEIRS},
    "undo": {"to": "m2"},
    "fork": {"name": "copy", "at": 1},
    "erase": {"handle": "m2"},
    "erase_tenant": {"confirm": "tenant-b"},
}


def filled(path: str, session: str, handle: str = "m2") -> str:
    return path.format(agent="helper", session=session, handle=handle, user=USER, erasure_id="e")


def told_of(method: str, path: str) -> dict[str, Any]:
    return DOCUMENT["paths"][path][method.lower()]


async def asked(
    http: httpx2.AsyncClient, method: str, path: str, session: str, *, headers: Any = None
) -> httpx2.Response:
    """A request that the document would call right."""
    told = told_of(method, path)
    sent: dict[str, Any] = {"headers": headers or {}}
    if "requestBody" in told:
        sent["json"] = BODIES.get(told["operationId"], {})
    if told["operationId"] == "search":
        sent["params"] = {"q": SECRET}
    return await http.request(method, filled(path, session), **sent)


def answer_of(answer: httpx2.Response, session: str) -> tuple[int, dict[str, str], bytes]:
    """All that a caller can see, without the name that was asked for."""
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, headers, answer.content.replace(session.encode(), b"NAME")


async def furnish(served: House) -> None:
    """Tenant B has a session with secrets, one that waits, and one that was given up."""
    async with served.client("b") as client:
        session = client.session("helper", THEIRS)
        assert await session.ask(f"Remember {SECRET}.", key="k1") == f"Noted: {SECRET}."
        assert SECRET in await session.recall("m2")
        await client.session("helper", f"{SECRET}-name").send("?", key=f"{SECRET}-key")
        await served.turns.wait_until_idle()
        assert len(await client.list_dead_letters()) == 1


def in_house(act) -> None:
    async def run() -> None:
        given: dict[str, Any] = {"who": WHO, "serve": {"requests_per_minute": 10**9}}
        async with house(f"Noted: {SECRET}.", REFUSED, keys=True, **given) as served:
            await furnish(served)
            await act(served)

    asyncio.run(run())


def test_there_are_routes_to_be_held_to_it():
    assert len(ROUTES) >= 18
    assert len(WITH_SESSION) >= 14


def test_a_session_of_another_tenant_is_answered_as_one_that_nobody_has():
    """Byte by byte, but for the name; also to those who stream, or ask for plain text."""

    async def act(served: House) -> None:
        async with served.http("a") as http:
            for method, path in WITH_SESSION:
                if told_of(method, path)["operationId"] in MADE:
                    continue
                for accept in ("application/json", "text/event-stream", "text/plain"):
                    headers = {"Accept": accept, "X-Request-ID": "same"}
                    foreign = await asked(http, method, path, THEIRS, headers=headers)
                    unknown = await asked(http, method, path, NOBODYS, headers=headers)
                    assert foreign.status_code == 404, (method, path)
                    assert answer_of(foreign, THEIRS) == answer_of(unknown, NOBODYS)

    in_house(act)


def test_it_takes_the_same_steps_in_the_store_and_in_the_queue(monkeypatch):
    """No step is taken for a session of another that is not taken for one of nobody."""

    async def act(served: House) -> None:
        steps: list[tuple[str, str]] = []

        def watch(part: Any, name: str) -> None:
            real = getattr(part, name)

            def watched(*args: Any, **named: Any) -> Any:
                steps.append((name, re.sub(f"{THEIRS}|{NOBODYS}", "NAME", repr((args, named)))))
                return real(*args, **named)

            monkeypatch.setattr(part, name, watched)

        service = served.service
        for name in ("position", "events", "sessions", "find_key", "append", "delete"):
            watch(service.store, name)
        for name in ("pending", "list_dead_letters", "depth", "post", "revive", "forget_session"):
            watch(service.queue, name)
        async with served.http("a") as http:
            for method, path in WITH_SESSION:
                if told_of(method, path)["operationId"] in MADE:
                    continue
                taken = []
                for session in (THEIRS, NOBODYS):
                    steps.clear()
                    await asked(http, method, path, session)
                    taken.append(list(steps))
                    assert all("tenant-b" not in told for _, told in steps)
                assert taken[0] == taken[1], (method, path)
                assert taken[0], (method, path)

    in_house(act)


def test_what_begins_a_session_begins_ones_own(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.01)

    async def act(served: House) -> None:
        before = [e async for e in served.service.store.events(f"tenant-b/helper/{THEIRS}")]
        async with served.client("a") as client:
            accepted = await client.session("helper", THEIRS).send("Hello.", key="k1")
            assert not accepted.duplicate
            await served.turns.wait_until_idle()
            told = [m.text async for m in client.session("helper", THEIRS).history()]
            assert told[0] == "Hello."
        after = [e async for e in served.service.store.events(f"tenant-b/helper/{THEIRS}")]
        assert after == before

    in_house(act)


def test_nothing_of_another_tenant_is_listed_or_counted():
    async def act(served: House) -> None:
        async with served.client("a") as client, served.http("a") as http:
            assert [each async for each in client.list_sessions("helper")] == []
            assert await client.list_dead_letters() == []
            retried = await http.post("/v1/dead-letters/retry", json={})
            assert retried.json() == {"sessions": 0}
            for method, path in ROUTES:
                if "{session}" not in path and method == "GET" and path != "/metrics":
                    answer = await asked(http, method, path, "")
                    assert SECRET not in answer.text
                    assert "tenant-b" not in answer.text

    in_house(act)


NAMES = st.sampled_from(
    [
        THEIRS,
        f"tenant-b/helper/{THEIRS}",
        f"../../tenant-b/helper/{THEIRS}",
        f"%2e%2e/{THEIRS}",
        f"..%2f..%2ftenant-b%2fhelper%2f{THEIRS}",
        f"tenant-b%2Fhelper%2F{THEIRS}",
        f"{THEIRS}%00",
        f"{THEIRS}/",
        f"/{THEIRS}",
        f"{SECRET}-name",
        "..",
        "*",
        "%",
    ]
) | st.text(min_size=1, max_size=30)
AGENTS = st.sampled_from(["helper", "other", "tenant-b", "..", "tenant-b%2Fhelper"])
ASKED = st.fixed_dictionaries(
    {
        "route": st.sampled_from(ROUTES),
        "agent": AGENTS,
        "session": NAMES,
        "handle": st.sampled_from(["m1", "m2", "m2.0", "m1-m9", THEIRS]) | st.text(max_size=9),
        "headers": st.dictionaries(
            st.sampled_from(
                ["Last-Event-ID", "X-Tenant", "X-Forwarded-User", "Idempotency-Key", "Accept"]
            ),
            st.sampled_from(["0", "2.5", "tenant-b", "k1", "text/event-stream", "text/plain"]),
            max_size=3,
        ),
        "query": st.dictionaries(
            st.sampled_from(["after", "before", "limit", "q", "tenant", "session"]),
            st.sampled_from(["0", "1", "2", SECRET, f"tenant-b/helper/{THEIRS}", "~", "../"]),
            max_size=2,
        ),
        "body": st.none()
        | st.sampled_from(list(BODIES.values()))
        | st.dictionaries(
            st.sampled_from(["name", "at", "to", "key", "text", "tenant", "parts"]),
            st.sampled_from(["k1", THEIRS, f"tenant-b/helper/{THEIRS}", 1, "m2", None]),
            max_size=3,
        ),
    }
)


@pytest.mark.parametrize("count", [60, pytest.param(250, marks=pytest.mark.soak)])
def test_whatever_a_key_asks_it_sees_and_changes_nothing_of_another_tenant(count):
    async def act(served: House) -> None:
        store, queue = served.service.store, served.service.queue
        ours = f"tenant-b/helper/{THEIRS}"

        async def state() -> Any:
            events = [event async for event in store.events(ours)]
            waiting = await queue.depth("tenant-b/")
            dead = await queue.list_dead_letters(prefix="tenant-b/")
            return events, waiting, dead

        before = await state()
        # Tenant A asks the model as well; nothing that it answers is the secret.
        served.provider._replies[:] = [lambda _: "An answer of one's own."] * 10**6
        async with served.http("a") as http:
            for one in many(count):
                await _ask_one(http, one)
        assert await state() == before

    in_house(act)


def many(count: int) -> list[Mapping[str, Any]]:
    """Requests of all kinds, always the same ones."""
    found: list[Mapping[str, Any]] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType] - its metaclass
    )
    @given(ASKED)
    def gather(one: Mapping[str, Any]) -> None:
        found.append(one)

    gather()
    return found


async def _ask_one(http: httpx2.AsyncClient, one: Mapping[str, Any]) -> None:
    method, path = one["route"]
    if path == "/metrics":
        return
    url = path.format(
        agent=one["agent"], session=one["session"], handle=one["handle"], user=USER, erasure_id="e"
    )
    sent: dict[str, Any] = {"headers": one["headers"], "params": one["query"]}
    if one["body"] is not None:
        sent["json"] = one["body"]
    try:
        async with http.stream(method, url.replace("\x00", "%00"), **sent) as answer:
            read = await _beginning(answer)
    except (httpx2.InvalidURL, UnicodeEncodeError):
        return  # what no client would send
    assert answer.status_code < 500, one
    quoted = json.dumps(SECRET).encode()[1:-1]
    given = json.dumps([one["session"], one["query"], one["body"]]).encode()
    assert quoted not in read or quoted in given, one
    assert b"Noted" not in read, one


async def _beginning(answer: httpx2.Response) -> bytes:
    """All of it; of a stream that goes on, what comes at once."""
    if answer.headers.get("content-type") != "text/event-stream":
        return await answer.aread()
    read = b""
    try:
        async with asyncio.timeout(0.05):
            async for chunk in answer.aiter_raw():
                read += chunk
    except TimeoutError:
        pass
    return read
