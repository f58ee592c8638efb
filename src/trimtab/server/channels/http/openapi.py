"""The OpenAPI 3.1 document of a table of operations."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import models_json_schema

from trimtab import http_api_response_types
from trimtab.http_api_response_types import ProblemDetails
from trimtab.server.channels.http.problems import PROBLEM_KINDS
from trimtab.server.channels.http.problems import PROBLEM_MEDIA_TYPE as PROBLEM
from trimtab.server.channels.http.projection import STREAM_EVENT_KINDS as EVENTS
from trimtab.server.channels.http.request_bodies import RequestBody
from trimtab.server.channels.http.request_context_and_operations import ApiOperation, QueryParameter
from trimtab.server.channels.http.sse import EVENT_STREAM_MEDIA_TYPE as STREAM
from trimtab.server.tenant_agent_session_ids import NAME_PATTERN

SCHEMA_REF_TEMPLATE = "#/components/schemas/{model}"
KEYED_ERROR_STATUSES = (400, 401, 403, 408, 413, 422, 429, 500, 503)
"""Statuses of failure that every operation with a key may have."""
PUBLIC_ERROR_STATUSES = (400, 403, 422, 500)
"""The same for those that need none."""
API_DESCRIPTION = """\
Sessions of long-lived agents. An accepted message is stored, and answered in order; follow the \
answer as server-sent events. What the model no longer sees stays readable.

Errors are `application/problem+json` with `type`, `title`, `status`, `detail` and `help`."""
PATH_PARAMETER_DESCRIPTIONS = {
    "agent": "The agent.",
    "session": "The session: 1 to 128 letters, digits and `_ . : @ + = -`, a letter, digit or `_` "
    "first.",
    "user": "The user, as the channel names them: `telegram:123`, `discord:456`, or the `user` of "
    "a message; 1 to 128 letters, digits and `_ . : @ + = -`.",
    "handle": "A message `m12`, its part `m12.0`, or a range `m3-m50`.",
}
HANDLE_PATTERN = r"^m[0-9]{1,18}(\.[0-9]{1,9}|-m?[0-9]{1,18})?$"
_PATH_PARAMETER_NAME = re.compile(r"\{(\w+)\}")


def build_openapi_document(operations: Sequence[ApiOperation]) -> dict[str, Any]:
    """The whole description."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(
            operation
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trimtab",
            "version": importlib.metadata.version("trimtab"),
            "description": API_DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": build_openapi_schemas(operations),
            "responses": _describe_problems(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def build_openapi_schemas(operations: Sequence[ApiOperation]) -> dict[str, Any]:
    """Of all bodies and answers."""
    bodies = {operation.body_model for operation in operations if operation.body_model is not None}
    _, made = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=SCHEMA_REF_TEMPLATE
    )
    found: dict[str, Any] = dict(made.get("$defs", {}))
    kinds = [op.response_type for op in operations if op.response_type not in (None, dict)]
    for kind in dict.fromkeys([*kinds, ProblemDetails]):
        whole = _with_field_descriptions(kind).json_schema(
            ref_template=SCHEMA_REF_TEMPLATE, mode="serialization"
        )
        found.update(whole.pop("$defs", {}))
        found[kind.__name__] = whole
    return dict(sorted(found.items()))


def _with_field_descriptions(kind: Any) -> TypeAdapter[Any]:
    """A type with the texts under its fields as descriptions."""
    for each in (*vars(http_api_response_types).values(), kind):
        if isinstance(each, type) and hasattr(each, "__dataclass_fields__"):
            each.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)
    return TypeAdapter(kind)


def _describe_operation(operation: ApiOperation) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.description.partition(". ")[0].rstrip(".").partition(";")[0],
        "description": operation.description,
        "tags": [operation.path.split("/")[1] if operation.is_public else "sessions"],
        "parameters": [
            *(
                _describe_path_parameter(name)
                for name in _PATH_PARAMETER_NAME.findall(operation.path)
            ),
            *(_describe_query_parameter(query) for query in operation.query_parameters),
            *_describe_header_parameters(operation),
        ],
        "responses": _describe_responses(operation),
    }
    if operation.body_model is not None:
        required = operation.body_model.model_json_schema().get("required") or operation.can_stream
        made["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": _schema_ref(operation.body_model)}},
        }
    if operation.is_public:
        made["security"] = []
    return made


def _describe_responses(operation: ApiOperation) -> dict[str, Any]:
    failures = {
        *(PUBLIC_ERROR_STATUSES if operation.is_public else KEYED_ERROR_STATUSES),
        *operation.error_statuses,
    }
    if operation.body_model is not None:
        failures |= {415}
    if "{" in operation.path:
        failures |= {404}
    good: dict[str, Any] = {"description": operation.description}
    if content := _describe_content(operation):
        good["content"] = content
    if (
        operation.status in (201, 202)
        and operation.response_type is not http_api_response_types.TurnControlResult
    ):
        good["headers"] = {"Location": {"schema": {"type": "string"}}}
    made: dict[str, Any] = {str(operation.status): good}
    if operation.can_stream:
        made["200"] = _describe_event_stream("The answer, up to the end of the turn.")
    for status in sorted(failures):
        made[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return made


def _describe_content(operation: ApiOperation) -> dict[str, Any]:
    if operation.always_streams:
        return _describe_event_stream("")["content"]
    found: dict[str, Any] = {}
    if operation.response_type is dict:
        found["application/json"] = {"schema": {"type": "object"}}
    elif operation.response_type is not None:
        found["application/json"] = {"schema": _schema_ref(operation.response_type)}
    if operation.text_media_type:
        found[operation.text_media_type] = {"schema": {"type": "string"}}
    return found


def _describe_event_stream(description: str) -> dict[str, Any]:
    kinds = "\n".join(f"- `{name}`: {text}" for name, text in EVENTS.items())
    schema = {"type": "string", "description": f"Events, each with JSON as its data:\n\n{kinds}"}
    return {"description": description, "content": {STREAM: {"schema": schema}}}


def _describe_problems() -> dict[str, Any]:
    titles: dict[str, list[str]] = {}
    for kind in PROBLEM_KINDS.values():
        titles.setdefault(str(kind.status), []).append(f"{kind.title} (`{kind.name}`)")
    return {status: _describe_problem("; or: ".join(told)) for status, told in titles.items()}


def _describe_problem(title: str) -> dict[str, Any]:
    return {"description": title, "content": {PROBLEM: {"schema": _schema_ref(ProblemDetails)}}}


def _describe_path_parameter(name: str) -> dict[str, Any]:
    pattern = HANDLE_PATTERN if name == "handle" else f"^{NAME_PATTERN}$"
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": PATH_PARAMETER_DESCRIPTIONS[name],
        "schema": {"type": "string", "pattern": pattern},
    }


def _describe_query_parameter(parameter: QueryParameter) -> dict[str, Any]:
    schema: dict[str, Any]
    if parameter.is_integer:
        schema = {"type": "integer", "minimum": parameter.minimum, "maximum": parameter.maximum}
    else:
        schema = {"type": "string", "minLength": parameter.minimum, "maxLength": parameter.maximum}
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": schema,
    }


def _describe_header_parameters(operation: ApiOperation) -> list[Mapping[str, Any]]:
    found: list[tuple[str, str, str]] = []
    if operation.always_streams or operation.can_stream:
        text = (
            "The id of the last event you have, to continue after it; browsers send it themselves."
        )
        found.append(("Last-Event-ID", text, r"^[0-9]{1,18}(\.[0-9]{1,18}){0,2}$"))
    if operation.can_stream:
        text = "The same as `key` in the body."
        found.append(("Idempotency-Key", text, r"^[!-~]{1,200}$"))
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string", "pattern": pattern},
        }
        for name, text, pattern in found
    ]


def _schema_ref(kind: type[RequestBody] | Any) -> dict[str, str]:
    return {"$ref": SCHEMA_REF_TEMPLATE.format(model=kind.__name__)}
