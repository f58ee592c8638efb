"""What those ask who run the server, and what nobody is told."""

from __future__ import annotations

import logging

import jsonschema
import pytest

from tests.serve.channels.http.running_apps import house, problem
from trimtab.errors import StoreUnavailable
from trimtab_serve.channels.http.app import API_ROUTES
from trimtab_serve.channels.http.middleware import SECURITY_HEADERS
from trimtab_serve.channels.http.openapi import build_openapi_document

pytestmark = pytest.mark.anyio


async def test_it_is_healthy_while_it_runs_and_ready_while_its_store_answers(monkeypatch):
    async with house() as served, served.client() as client, served.http() as http:
        assert (await client.health(), await client.ready()) == ("ok", "ok")

        async def away(*_, **__):
            raise StoreUnavailable("gone")

        with monkeypatch.context() as patch:
            patch.setattr(served.service.store, "sessions", away)
            answer = await http.get("/readyz")
            assert (
                problem(answer, 503, "service-unavailable")["detail"] == "the store is unavailable"
            )
            assert await client.health() == "ok"
        assert await client.ready() == "ok"
        served.offer.drain()
        assert (
            "shutting down"
            in problem(await http.get("/readyz"), 503, "service-unavailable")["detail"]
        )
        assert await client.health() == "ok"


async def test_metrics_count_requests_by_route_and_queued_messages():
    from trimtab_serve.metrics.prometheus import render_metrics

    async with house("Hello.", render_metrics=render_metrics) as served, served.client() as client:
        await served.session("very-own-name").ask("Hi.")
        told = await client.metrics()
        assert 'route="/v1/agents/{agent}/sessions/{session}/messages"' in told
        assert "very-own-name" not in told
        assert "queued_messages" in told


async def test_a_fault_of_ours_tells_the_caller_nothing_but_its_name(monkeypatch, caplog):
    async with house() as served, served.http() as http:

        async def broken(*_, **__):
            raise ZeroDivisionError("the user's secret words")

        monkeypatch.setattr(served.service.store, "sessions", broken)
        with caplog.at_level(logging.ERROR):
            answer = await http.get("/v1/agents/helper/sessions")
        told = problem(answer, 500, "internal-error")
        assert "secret" not in answer.text
        assert "ZeroDivisionError" not in answer.text
        assert told["instance"] in caplog.text


async def test_every_answer_forbids_a_browser_what_it_need_not_do():
    async with house("Hello.") as served, served.http() as http:
        for path in ("/v1/agents", "/nowhere", "/healthz", "/openapi.json"):
            answer = await http.get(path)
            assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
            assert "server" not in answer.headers


async def test_the_document_describes_every_operation_and_what_it_answers():
    async with house() as served, served.client() as client:
        told = await client.openapi()
    assert told == build_openapi_document(API_ROUTES)
    assert told["openapi"] == "3.1.0"
    described = {
        (method.upper(), path) for path, methods in told["paths"].items() for method in methods
    }
    assert described == {(method, route.path) for route in API_ROUTES for method in route.methods}
    names = [method["operationId"] for path in told["paths"].values() for method in path.values()]
    assert len(set(names)) == len(API_ROUTES)
    for schema in told["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_answers_are_as_the_document_says():
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        told = (await http.get("/openapi.json")).json()
        one = "/v1/agents/helper/sessions/one"
        paths = {
            "/v1/agents": "/v1/agents",
            "/v1/agents/{agent}/sessions": "/v1/agents/helper/sessions",
            "/v1/agents/{agent}/sessions/{session}": one,
            "/v1/agents/{agent}/sessions/{session}/history": f"{one}/history",
            "/v1/agents/{agent}/sessions/{session}/context": f"{one}/context",
            "/v1/agents/{agent}/sessions/{session}/why/{handle}": f"{one}/why/m2",
            "/v1/agents/{agent}/sessions/{session}/recall/{handle}": f"{one}/recall/m2",
            "/v1/agents/{agent}/sessions/{session}/search": f"{one}/search?q=hi",
            "/v1/dead-letters": "/v1/dead-letters",
            "/healthz": "/healthz",
            "/readyz": "/readyz",
        }
        for path, asked in paths.items():
            content = told["paths"][path]["get"]["responses"]["200"]["content"]
            schema = {**content["application/json"]["schema"], "components": told["components"]}
            jsonschema.Draft202012Validator(schema).validate((await http.get(asked)).json())


async def test_no_log_line_says_what_was_said_or_a_name_that_is_none(caplog):
    async with house("The answer is private.") as served, served.http() as http:
        with caplog.at_level(logging.INFO):
            await served.session().ask("The question is private.")
            await http.get("/v1/agents/helper/sessions/a%0Aforged%20line")
        ours = [record for record in caplog.records if record.name.startswith("trimtab")]
        assert len(ours) > 3
        assert "private" not in str([vars(record) for record in ours])
        assert "forged" not in str([vars(record) for record in ours])
        assert any(getattr(r, "session", "") == "default/helper/one" for r in caplog.records)
