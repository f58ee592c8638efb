"""The OpenAPI 3.1 document of a table of operations."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import models_json_schema

from trimtab.gateways.http import answers
from trimtab.gateways.http.answers import ProblemInfo
from trimtab.gateways.http.asking import Operation, Query
from trimtab.gateways.http.bodies import Body
from trimtab.gateways.http.problems import KINDS
from trimtab.gateways.http.problems import MEDIA as PROBLEM
from trimtab.gateways.http.projecting import KINDS as EVENTS
from trimtab.gateways.http.streams import MEDIA as STREAM
from trimtab.worker.naming import NAME

REF = "#/components/schemas/{model}"
ALWAYS = (400, 401, 403, 408, 413, 422, 429, 500, 503)
"""Statuses of failure that every operation with a key may have."""
PUBLIC = (400, 403, 422, 500)
"""The same for those that need none."""
TOLD = """\
Sessions of long-lived agents. A message is kept when it is accepted, and answered in its turn; \
follow the answer as server-sent events. What the model no longer sees stays readable.

Failures are `application/problem+json` with `type`, `title`, `status`, `detail` and `help`."""
NAMES = {
    "agent": "The agent.",
    "session": "The session: 1 to 128 letters, digits and `_ . : @ + = -`, a letter, digit or `_` "
    "first.",
    "handle": "A message `m12`, its part `m12.0`, or a range `m3-m50`.",
}
HANDLE = r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m?[0-9]{1,18})?$"
_NAMED = re.compile(r"\{(\w+)\}")


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole description."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trimtab",
            "version": importlib.metadata.version("trimtab"),
            "description": TOLD,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(operations),
            "responses": {str(kind.status): _problem(kind.title) for kind in KINDS.values()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    """Of all bodies and answers."""
    bodies = {operation.body for operation in operations if operation.body is not None}
    _, made = models_json_schema([(body, "validation") for body in bodies], ref_template=REF)
    found: dict[str, Any] = dict(made.get("$defs", {}))
    kinds = [op.answer for op in operations if op.answer not in (None, dict)]
    for kind in dict.fromkeys([*kinds, ProblemInfo]):
        whole = _described(kind).json_schema(ref_template=REF, mode="serialization")
        found.update(whole.pop("$defs", {}))
        found[kind.__name__] = whole
    return dict(sorted(found.items()))


def _described(kind: Any) -> TypeAdapter[Any]:
    """A type with the texts under its fields as descriptions."""
    for each in (*vars(answers).values(), kind):
        if isinstance(each, type) and hasattr(each, "__dataclass_fields__"):
            each.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)
    return TypeAdapter(kind)


def _operation(operation: Operation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.told.partition(". ")[0].rstrip(".").partition(";")[0],
        "description": operation.told,
        "tags": [operation.path.split("/")[1] if operation.public else "sessions"],
        "parameters": [
            *(_path_parameter(name) for name in _NAMED.findall(operation.path)),
            *(_query_parameter(query) for query in operation.query),
            *_header_parameters(operation),
        ],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        required = operation.body.model_json_schema().get("required") or operation.streams
        made["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": _ref(operation.body)}},
        }
    if operation.public:
        made["security"] = []
    return made


def _responses(operation: Operation) -> dict[str, Any]:
    failures = {*(PUBLIC if operation.public else ALWAYS), *operation.problems}
    if operation.body is not None:
        failures |= {415}
    if "{" in operation.path:
        failures |= {404}
    good: dict[str, Any] = {"description": operation.told}
    if content := _content(operation):
        good["content"] = content
    if operation.status in (201, 202) and operation.answer is not answers.Done:
        good["headers"] = {"Location": {"schema": {"type": "string"}}}
    made: dict[str, Any] = {str(operation.status): good}
    if operation.streams:
        made["200"] = _stream("The answer, up to the end of the turn.")
    for status in sorted(failures):
        made[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return made


def _content(operation: Operation) -> dict[str, Any]:
    if operation.only_streams:
        return _stream("")["content"]
    found: dict[str, Any] = {}
    if operation.answer is dict:
        found["application/json"] = {"schema": {"type": "object"}}
    elif operation.answer is not None:
        found["application/json"] = {"schema": _ref(operation.answer)}
    if operation.text:
        found[operation.text] = {"schema": {"type": "string"}}
    return found


def _stream(told: str) -> dict[str, Any]:
    kinds = "\n".join(f"- `{name}`: {text}" for name, text in EVENTS.items())
    schema = {"type": "string", "description": f"Events, each with JSON as its data:\n\n{kinds}"}
    return {"description": told, "content": {STREAM: {"schema": schema}}}


def _problem(title: str) -> dict[str, Any]:
    return {"description": title, "content": {PROBLEM: {"schema": _ref(ProblemInfo)}}}


def _path_parameter(name: str) -> dict[str, Any]:
    pattern = HANDLE if name == "handle" else f"^{NAME}$"
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": NAMES[name],
        "schema": {"type": "string", "pattern": pattern},
    }


def _query_parameter(query: Query) -> dict[str, Any]:
    schema: dict[str, Any]
    if query.number:
        schema = {"type": "integer", "minimum": query.least, "maximum": query.most}
    else:
        schema = {"type": "string", "minLength": query.least, "maxLength": query.most}
    if query.default is not None:
        schema["default"] = query.default
    return {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "description": query.told,
        "schema": schema,
    }


def _header_parameters(operation: Operation) -> list[Mapping[str, Any]]:
    found: list[tuple[str, str, str]] = []
    if operation.only_streams or operation.streams:
        told = "The id of the last event you have, to go on behind it; browsers send it themselves."
        found.append(("Last-Event-ID", told, r"^[0-9]{1,18}(\.[0-9]{1,18}){0,2}$"))
    if operation.streams:
        told = "The same as `key` in the body."
        found.append(("Idempotency-Key", told, r"^[!-~]{1,200}$"))
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": told,
            "schema": {"type": "string", "pattern": pattern},
        }
        for name, told, pattern in found
    ]


def _ref(kind: type[Body] | Any) -> dict[str, str]:
    return {"$ref": REF.format(model=kind.__name__)}
