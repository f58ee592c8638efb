"""Who may ask: keys, what they open, and that guessing learns nothing."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import httpx2
import pytest

from tests.serve.channels.http.running_apps import house, problem
from trimtab_serve.api_keys.api_key import hash_api_key
from trimtab_serve.channels.http import authentication as module
from trimtab_serve.channels.http.api_route import ApiRoute
from trimtab_serve.channels.http.app import API_ROUTES
from trimtab_serve.channels.http.openapi import build_openapi_document

pytestmark = pytest.mark.anyio

WHO = (
    {"key_name": "web", "tenant": "acme"},
    {"key_name": "narrow", "tenant": "acme", "agents": ("other",)},
    {"key_name": "ops", "role": "metrics"},
)


def from_address(url: str, address: str) -> httpx2.AsyncClient:
    """One of many callers: guesses from one address are slowed down."""
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    return httpx2.AsyncClient(base_url=url, transport=transport)


WRONG = (
    *("", "Bearer", "Bearer tt_wrong", "Bearer null", "Bearer *", "Basic d2ViOng="),
    *("bearer \x7f", "Bearer é"),
)


async def test_without_a_key_that_is_known_nothing_is_answered():
    async with house(keys=True, who=WHO) as served:
        for number, given in enumerate(WRONG, 1):
            headers = {"Authorization": given.encode("latin-1")} if given else {}
            async with from_address(served.url, f"127.0.2.{number}") as http:
                for path in (
                    "/v1/agents",
                    "/metrics",
                    "/nowhere",
                    "/v1/agents/helper/sessions/one",
                ):
                    answer = await http.get(path, headers=headers)
                    problem(answer, 401, "unauthorized")
                    assert answer.headers["www-authenticate"] == "Bearer"
        async with served.http() as http:
            for path in ("/healthz", "/readyz", "/openapi.json"):
                assert (await http.get(path)).status_code == 200


async def test_a_key_opens_its_agents_and_no_others():
    async with house("Hello.", keys=True, who=WHO) as served:
        async with served.client("narrow") as narrow, served.http("narrow") as http:
            assert [agent.name for agent in await narrow.list_agents()] == ["other"]
            assert await narrow.session("other", "one").ask("Hi.") == "Hello."
            foreign = await http.get("/v1/agents/helper/sessions/one")
            unknown = await http.get("/v1/agents/nobody/sessions/one")
            told = problem(foreign, 404, "not-found")
            assert told["detail"] == "agent helper does not exist, or this key cannot use it"
            assert foreign.text.replace("helper", "nobody") == unknown.text
        async with served.client("web") as web:
            assert [each.name async for each in web.list_sessions("other")] == ["one"]


async def test_metrics_are_for_keys_that_may_read_them():
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    async with (
        house(keys=True, who=WHO, render_metrics=render) as served,
        served.http("web") as web,
        served.client("ops") as ops,
    ):
        told = problem(await web.get("/metrics"), 403, "forbidden")
        assert "trimtab keys create NAME --role metrics" in told["detail"]
        assert await ops.metrics() == "figures 1\n"


def routes_with_a_key():
    """All that the OpenAPI document says needs one, so that a new route cannot be forgotten."""
    for path, methods in build_openapi_document(API_ROUTES)["paths"].items():
        for method, told in methods.items():
            if told.get("security") != []:
                yield (
                    method.upper(),
                    path.format(
                        agent="helper", session="one", handle="m2", user="u", erasure_id="e"
                    ),
                )


KEYED_ROUTES = [
    route for route in API_ROUTES if isinstance(route, ApiRoute) and route.required_role is not None
]
REQUIRED_ROLES = {
    "read": {
        *("list_agents", "get_usage", "list_sessions", "get_session", "follow_session"),
        "read_history",
        *("read_context", "explain_visibility", "recall", "search", "list_dead_letters"),
    },
    "talk": {
        *("create_session", "send_message", "stop", "resume", "fork", "compact", "undo"),
    },
    "admin": {
        *("delete_session", "erase", "retry_dead_letters", "retry_all_dead_letters"),
        *("erase_user", "export_user", "erase_tenant", "export_tenant", "list_erasures"),
        "get_erasure",
    },
    "metrics": {"metrics"},
}
"""As the documentation says."""


def test_each_operation_needs_the_role_that_is_documented():
    found: dict[str, set[str]] = {}
    for route in KEYED_ROUTES:
        found.setdefault(str(route.required_role), set()).add(route.name)
    for role, names in REQUIRED_ROLES.items():
        assert found[role] == names, role


@pytest.mark.parametrize(
    ("role", "opens"),
    [
        ("metrics", {"metrics"}),
        ("read", {"read"}),
        ("talk", {"read", "talk"}),
        ("admin", {"read", "talk", "admin"}),
    ],
)
async def test_a_role_opens_its_own_operations_and_those_it_includes(role, opens):
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    who = [{"key_name": "own", "role": role}, {"key_name": "root"}]
    async with (
        house("Hello.", keys=True, who=who, render_metrics=render) as served,
        served.http("own") as http,
        served.client("root") as root,
    ):
        await root.create_session("helper", "one")
        before = await served.service.store.position("default/helper/one")
        for route in KEYED_ROUTES:
            if route.name == "follow_session" and route.required_role in opens:
                continue  # a stream without an end
            path = route.path.format(
                agent="helper", session="one", handle="m2", user="ada", erasure_id="e"
            )
            (method,) = route.allowed_methods
            sent = {"text": "Hello."} if method == "POST" else None
            answer = await http.request(method, path, json=sent)
            if route.required_role in opens:
                assert answer.status_code not in (401, 403), route.name
            else:
                told = problem(answer, 403, "forbidden")
                assert told["required_role"] == route.required_role
                assert f"trimtab keys create NAME --role {route.required_role}" in told["detail"]
        if role in ("metrics", "read"):
            assert await served.service.store.position("default/helper/one") == before


async def test_a_key_that_has_expired_is_refused_and_whoever_has_it_is_told():
    now = time.time()
    who = [
        {"key_name": "old", "expires": now - 60},
        {"key_name": "new", "expires": now + 3_600},
    ]
    async with house(keys=True, who=who) as served:
        async with served.http("new") as http:
            assert (await http.get("/v1/agents")).status_code == 200
        async with served.http("old") as http:
            answer = await http.get("/v1/agents")
            assert "key old expired at " in problem(answer, 401, "unauthorized")["detail"]
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        async with served.http() as http:
            # One digit off: nothing says how near it is, nor that such a key was there.
            near = served.keys["old"][:-1] + ("A" if served.keys["old"][-1] != "A" else "B")
            answers = [
                await http.get("/v1/agents", headers={"Authorization": f"Bearer {guess}"})
                for guess in (near, "tt_wrong", served.keys["new"][:-1])
            ]
            assert {answer.text for answer in answers} == {answers[0].text}
            assert "expired" not in answers[0].text
            assert answers[0].headers["www-authenticate"] == "Bearer"


async def test_a_key_expires_while_the_server_runs(monkeypatch):
    who = [{"key_name": "short", "expires": time.time() + 100}]
    async with house(keys=True, who=who) as served, served.http("short") as http:
        assert (await http.get("/v1/agents")).status_code == 200
        later = time.time() + 101
        monkeypatch.setattr(module.time, "time", lambda: later)
        problem(await http.get("/v1/agents"), 401, "unauthorized")


NOT_BEARER = [
    *(
        {name: place}
        for name in ("X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host", "X-Client-IP")
        for place in ("127.0.0.1", "localhost")
    ),
    {"Forwarded": "for=127.0.0.1"},
    {"Cookie": "key={key}"},
    {"Cookie": "{key}"},
    {"Authorization": "Basic {basic}"},
    {"Authorization": "Basic {key}"},
    {"Authorization": "Token {key}"},
    {"Authorization": "{key}"},
    # What the store of keys holds.
    {"Authorization": "Bearer {sha256}"},
    {"Authorization": "Bearer tt_{sha256}"},
    {"Authorization": "Bearer {upper}"},
    {"X-Api-Key": "{key}"},
    {"Proxy-Authorization": "{key}"},
]


async def test_a_key_counts_as_a_bearer_token_alone():
    async with house(keys=True, who=WHO) as served:
        key = served.keys["web"]
        digest, basic = hash_api_key(key).hex(), base64.b64encode(f"web:{key}".encode()).decode()
        texts = {"key": key, "sha256": digest, "upper": digest.upper(), "basic": basic}
        for number, headers in enumerate(NOT_BEARER, 1):
            async with from_address(served.url, f"127.0.1.{number}") as http:
                sent = {name: text.format(**texts) for name, text in headers.items()}
                problem(await http.get("/v1/agents", headers=sent), 401, "unauthorized")
        async with served.http() as http:
            for name in ("key", "api_key", "access_token", "authorization", "token"):
                problem(await http.get("/v1/agents", params={name: key}), 401, "unauthorized")


async def test_a_key_for_metrics_reads_metrics_and_nothing_else():
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    routes = set(routes_with_a_key())
    assert len(routes) >= 18
    async with (
        house("Hello.", keys=True, who=WHO, render_metrics=render) as served,
        served.http("ops") as http,
    ):
        # Of the tenant that a key without one belongs to.
        before = await served.service.store.sessions()
        for method, path in routes - {("GET", "/metrics")}:
            for accept in ("application/json", "text/event-stream"):
                sent = {"text": "Hello."} if method == "POST" else None
                answer = await http.request(method, path, headers={"Accept": accept}, json=sent)
                told = problem(answer, 403, "forbidden")
                assert "key ops can only read /metrics" in told["detail"], path
        problem(await http.get("/nowhere"), 403, "forbidden")
        assert (await http.get("/metrics")).status_code == 200
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert (await http.get(path)).status_code == 200
        assert await served.service.store.sessions() == before == []


async def test_a_key_that_is_revoked_is_refused_at_once():
    async with house(keys=True, who=WHO) as served, served.http("web") as http:
        assert (await http.get("/v1/agents")).status_code == 200
        assert await served.api_keys.revoke("web")
        problem(await http.get("/v1/agents"), 401, "unauthorized")


async def test_a_request_costs_one_lookup_however_many_keys_there_are(monkeypatch):
    async with house(keys=True, who=[{"key_name": f"k{n}"} for n in range(50)]) as served:
        looked_up: list[bytes] = []
        find_many = served.api_keys.find_many

        async def count(hashes: Sequence[bytes]):
            looked_up.extend(hashes)
            return await find_many(hashes)

        monkeypatch.setattr(served.api_keys, "find_many", count)
        for name in ("k0", "k49", "k0"):
            async with served.http(name) as http:
                assert (await http.get("/v1/agents")).status_code == 200
        assert looked_up == [hash_api_key(served.keys[name]) for name in ("k0", "k49", "k0")]
