"""The OpenAPI document against the one that was written by hand, and the page that shows it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.serve.channels.http.running_apps import house, problem
from trimtab_serve.channels.http.app import API_ROUTES
from trimtab_serve.channels.http.middleware import SECURITY_HEADERS
from trimtab_serve.channels.http.openapi import build_openapi_document

pytestmark = pytest.mark.anyio

HAND_WRITTEN = Path(__file__).with_name("openapi_hand_written.json")
"""The document as it was before FastAPI made it: what clients were generated from."""
NEW_PATHS = {"/docs"}


def essence(document: dict[str, Any]) -> dict[str, Any]:
    """What a client depends on, without texts: parameters with bounds, bodies, responses, keys."""
    return {
        f"{method} {path}": {
            "operationId": operation["operationId"],
            "parameters": {
                (one["in"], one["name"]): (one["required"], bounds(one["schema"]))
                for one in operation["parameters"]
            },
            "body": without_texts(operation.get("requestBody", {}).get("content")),
            "body_required": operation.get("requestBody", {}).get("required", False),
            "responses": {
                status: given if "$ref" in given else without_texts(given.get("content"))
                for status, given in operation["responses"].items()
            },
            "public": operation.get("security") == [],
        }
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds that exclude something."""
    nothing = {"minLength": 0, "default": ""}
    return {key: value for key, value in schema.items() if nothing.get(key) != value}


def without_texts(node: Any) -> Any:
    """A schema without its texts, and without defaults that say nothing."""
    if isinstance(node, dict):
        dropped = {"description", "title", "additionalProperties"}
        return {
            key: without_texts(value)
            for key, value in node.items()
            if not (key in dropped and not isinstance(value, dict))
            and not (key == "default" and value is None)
        }
    return [without_texts(one) for one in node] if isinstance(node, list) else node


def test_every_operation_is_described_as_it_was_by_hand():
    before = json.loads(HAND_WRITTEN.read_text("utf-8"))
    now = build_openapi_document(API_ROUTES)
    described = essence(now)
    # A later operation is not in the old document; one of the old may not change or go.
    assert {name: described.get(name) for name in essence(before)} == essence(before)
    assert now["security"] == before["security"]
    for part in ("responses", "securitySchemes"):
        known = without_texts(now["components"][part])
        assert {**known, **without_texts(before["components"][part])} == known
    schemas = now["components"]["schemas"]
    for name, schema in before["components"]["schemas"].items():
        old, new = without_texts(schema), without_texts(schemas[name])
        if "properties" in old:
            # Fields may be added; none may change or go.
            new["properties"] = {field: new["properties"].get(field) for field in old["properties"]}
        assert new == old, name
    assert set(now["paths"]) - set(before["paths"]) >= NEW_PATHS


def test_every_operation_with_a_key_says_the_role_that_it_needs():
    for path, methods in build_openapi_document(API_ROUTES)["paths"].items():
        for method, operation in methods.items():
            role = operation.get("x-required-role")
            public = operation.get("security") == []
            assert (role in ("metrics", "read", "talk", "admin")) is not public, (method, path)
            if method == "delete":
                assert role == "admin"


async def test_the_page_runs_its_own_script_and_nothing_else():
    async with house(keys=True, who=[]) as served, served.http() as http:
        answer = await http.get("/docs")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers.get_list("content-security-policy")
        assert len(policy) == 1
        rules = dict(rule.split(" ", 1) for rule in policy[0].split("; "))
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert rules["frame-ancestors"] == "'none'"
        assert rules["connect-src"] == "'self'"
        for element in ("script", "style"):
            [source] = re.findall(f"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
            assert rules[f"{element}-src"] == f"'sha256-{digest}'"
        assert not re.findall(r"https?://", answer.text), "nothing comes from elsewhere"
        assert "innerHTML" not in answer.text
        others = {name: text for name, text in SECURITY_HEADERS.items() if "policy" not in name}
        assert {name: answer.headers[name] for name in others} == others


async def test_the_policy_is_relaxed_for_the_page_alone():
    async with house() as served, served.http() as http:
        for path in ("/openapi.json", "/healthz", "/v1/agents", "/docs/", "/nowhere"):
            given = (await http.get(path)).headers.get_list("content-security-policy")
            assert given == [SECURITY_HEADERS["content-security-policy"]], path
        problem(await http.post("/docs"), 405, "method-not-allowed")


async def test_what_fastapi_would_overlook_is_refused():
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        history = "/v1/agents/helper/sessions/one/history"
        for query in ("limit=+5", "limit=%205", "limit=1_0", "limit=5.0", "limit=", "limit=0"):
            told = problem(await http.get(f"{history}?{query}"), 422, "invalid-request")
            assert told["errors"][0]["field"] == "limit", query
        for query in ("limits=5", "limit=5&limit=6", "limit=5&x"):
            problem(await http.get(f"{history}?{query}"), 422, "invalid-request")
        problem(
            await http.get("/v1/agents/helper/sessions/one/search?q=%00"), 422, "invalid-request"
        )
        strict = {"name": "new", "at": "3"}
        told = await http.post("/v1/agents/helper/sessions/one/fork", json=strict)
        assert problem(told, 422, "invalid-request")["errors"][0]["field"] == "at"


async def test_a_method_that_is_not_allowed_is_told_which_are():
    async with house() as served, served.http() as http:
        answer = await http.put("/v1/agents/helper/sessions/one")
        problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == "GET, DELETE"
        assert (await http.head("/healthz")).status_code == 200
        assert (await http.head("/v1/agents")).status_code == 405
