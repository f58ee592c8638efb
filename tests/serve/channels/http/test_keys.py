"""Who may ask: keys, what they open, and that guessing learns nothing."""

from __future__ import annotations

import base64
import hmac
import json
import time

import httpx2
import pytest

from tests.serve.channels.http.running_apps import house, problem
from trimtab_serve.channels.http import api_keys as module
from trimtab_serve.channels.http.api_keys import (
    ApiKeyFile,
    InvalidKeyFile,
    hash_api_key,
    read_stored_api_keys,
    write_key_file,
)
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


async def test_without_a_key_that_is_known_nothing_is_answered(tmp_path):
    async with house(keys=tmp_path / "keys.json", who=WHO) as served:
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


async def test_a_key_opens_its_agents_and_no_others(tmp_path):
    async with house("Hello.", keys=tmp_path / "keys.json", who=WHO) as served:
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


async def test_metrics_are_for_keys_that_may_read_them(tmp_path):
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    async with (
        house(keys=tmp_path / "keys.json", who=WHO, render_metrics=render) as served,
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
                    path.format(agent="helper", session="one", handle="m2", user="u"),
                )


KEYED_ROUTES = [
    route for route in API_ROUTES if isinstance(route, ApiRoute) and route.required_role is not None
]
REQUIRED_ROLES = {
    "read": {
        *("list_agents", "list_sessions", "get_session", "follow_session", "read_history"),
        *("read_context", "explain_visibility", "recall", "search", "list_dead_letters"),
    },
    "talk": {
        *("create_session", "send_message", "stop", "resume", "fork", "compact", "undo"),
    },
    "admin": {
        *("delete_session", "erase", "retry_dead_letters", "retry_all_dead_letters"),
        *("erase_user", "export_user", "erase_tenant", "export_tenant", "list_erasures"),
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
async def test_a_role_opens_its_own_operations_and_those_it_includes(role, opens, tmp_path):
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    who = [{"key_name": "own", "role": role}, {"key_name": "root"}]
    async with (
        house("Hello.", keys=tmp_path / "keys.json", who=who, render_metrics=render) as served,
        served.http("own") as http,
        served.client("root") as root,
    ):
        await root.create_session("helper", "one")
        before = await served.service.store.position("default/helper/one")
        for route in KEYED_ROUTES:
            if route.name == "follow_session" and route.required_role in opens:
                continue  # a stream without an end
            path = route.path.format(agent="helper", session="one", handle="m2", user="ada")
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


async def test_a_key_that_has_expired_is_refused_and_whoever_has_it_is_told(tmp_path):
    now = time.time()
    who = [
        {"key_name": "old", "expires": now - 60},
        {"key_name": "new", "expires": now + 3_600},
    ]
    async with house(keys=tmp_path / "keys.json", who=who) as served:
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


async def test_a_key_expires_while_the_server_runs(tmp_path, monkeypatch):
    who = [{"key_name": "short", "expires": time.time() + 100}]
    async with house(keys=tmp_path / "keys.json", who=who) as served, served.http("short") as http:
        assert (await http.get("/v1/agents")).status_code == 200
        later = time.time() + 101
        monkeypatch.setattr(module.time, "time", lambda: later)
        problem(await http.get("/v1/agents"), 401, "unauthorized")


def test_a_key_file_from_before_the_first_release_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "keys.json"
    for version in (1, 2):
        file.write_text(json.dumps({"v": version, "keys": []}))
        with pytest.raises(InvalidKeyFile, match=r"written before the first release.*keys create"):
            read_stored_api_keys(file)


def test_a_key_file_of_a_later_release_is_refused(tmp_path):
    file = tmp_path / "keys.json"
    write_key_file(file, [])
    assert json.loads(file.read_text()) == {"version": 1, "keys": []}
    file.write_text(json.dumps({"version": 2, "keys": []}))
    with pytest.raises(InvalidKeyFile, match="format version 2, but this release reads 1"):
        read_stored_api_keys(file)


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
    # What the file of keys holds.
    {"Authorization": "Bearer {sha256}"},
    {"Authorization": "Bearer tt_{sha256}"},
    {"Authorization": "Bearer {upper}"},
    {"X-Api-Key": "{key}"},
    {"Proxy-Authorization": "{key}"},
]


async def test_a_key_counts_as_a_bearer_token_alone(tmp_path):
    async with house(keys=tmp_path / "keys.json", who=WHO) as served:
        key = served.keys["web"]
        digest, basic = hash_api_key(key), base64.b64encode(f"web:{key}".encode()).decode()
        texts = {"key": key, "sha256": digest, "upper": digest.upper(), "basic": basic}
        for number, headers in enumerate(NOT_BEARER, 1):
            async with from_address(served.url, f"127.0.1.{number}") as http:
                sent = {name: text.format(**texts) for name, text in headers.items()}
                problem(await http.get("/v1/agents", headers=sent), 401, "unauthorized")
        async with served.http() as http:
            for name in ("key", "api_key", "access_token", "authorization", "token"):
                problem(await http.get("/v1/agents", params={name: key}), 401, "unauthorized")


async def test_a_key_for_metrics_reads_metrics_and_nothing_else(tmp_path):
    render = lambda: (b"figures 1\n", "text/plain")  # noqa: E731 - a stand-in
    routes = set(routes_with_a_key())
    assert len(routes) >= 18
    async with (
        house("Hello.", keys=tmp_path / "keys.json", who=WHO, render_metrics=render) as served,
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


async def test_a_key_that_is_revoked_is_refused_at_once(tmp_path):
    file = tmp_path / "keys.json"
    async with house(keys=file, who=WHO) as served, served.http("web") as http:
        assert (await http.get("/v1/agents")).status_code == 200
        write_key_file(file, [key for key in read_stored_api_keys(file) if key.name != "web"])
        problem(await http.get("/v1/agents"), 401, "unauthorized")


async def test_every_key_is_compared_in_constant_time_whichever_was_given(tmp_path, monkeypatch):
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    async with house(keys=tmp_path / "keys.json", who=WHO) as served:
        file = ApiKeyFile(tmp_path / "keys.json")
        kept = [key.sha256 for key in read_stored_api_keys(file.path)]
        monkeypatch.setattr(module, "hmac", type("Stub", (), {"compare_digest": compare}))
        for given in (*served.keys.values(), "tt_wrong", ""):
            compared.clear()
            file.find_caller(given)
            assert [one for one, _ in compared] == kept
            assert {len(other) for _, other in compared} == {64}
