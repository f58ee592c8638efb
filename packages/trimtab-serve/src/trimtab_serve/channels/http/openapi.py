"""The OpenAPI 3.1 document: FastAPI's, with our problems, descriptions and roles."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import ConfigDict, TypeAdapter
from starlette.routing import BaseRoute

from trimtab_serve.channels.http.api_route import ApiRoute
from trimtab_serve.channels.http.problems import PROBLEM_KINDS, PROBLEM_MEDIA_TYPE
from trimtab_serve.client import types
from trimtab_serve.client.types import ProblemDetails

SCHEMA_REF_TEMPLATE = "#/components/schemas/{model}"
FIRST_ERROR_STATUS = 400
KEYED_ERROR_STATUSES = (400, 401, 403, 408, 413, 422, 429, 500, 503)
"""Error statuses that every operation with a key may have."""
PUBLIC_ERROR_STATUSES = (400, 403, 422, 500)
"""Error statuses that operations without a key may have."""
LOCATION_STATUSES = (201, 202)
FASTAPI_ERROR_SCHEMAS = ("HTTPValidationError", "ValidationError")
API_DESCRIPTION = """\
Sessions of long-lived agents. The server stores each accepted message and answers messages in \
order. Follow the answer as server-sent events. Content that is hidden from the model stays \
readable.

Errors are `application/problem+json` with `type`, `title`, `status`, `detail` and `help`."""


def build_openapi_document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Build the whole document."""
    api_routes = [route for route in routes if isinstance(route, ApiRoute)]
    document = get_openapi(
        title="Trimtab",
        version=importlib.metadata.version("trimtab"),
        openapi_version="3.1.0",
        description=API_DESCRIPTION,
        license_info={"name": "MIT", "identifier": "MIT"},
        routes=routes,
    )
    for route in api_routes:
        for method in route.allowed_methods if route.include_in_schema else ():
            _complete_operation(document["paths"][route.path][method.lower()], route)
    components = document["components"]
    for name in FASTAPI_ERROR_SCHEMAS:
        components["schemas"].pop(name, None)
    components["schemas"] |= _describe_response_types(api_routes)
    components["responses"] = _describe_problems()
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    return document


def _describe_problems() -> dict[str, Any]:
    titles: dict[str, list[str]] = {}
    for kind in PROBLEM_KINDS.values():
        titles.setdefault(str(kind.status), []).append(f"{kind.title} (`{kind.name}`)")
    schema = {"$ref": SCHEMA_REF_TEMPLATE.format(model="ProblemDetails")}
    return {
        status: {
            "description": "; or: ".join(descriptions),
            "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
        }
        for status, descriptions in titles.items()
    }


def _complete_operation(operation: dict[str, Any], route: ApiRoute) -> None:
    """Add the errors that all operations may have, and remove null from parameters."""
    operation.setdefault("parameters", [])
    for parameter in operation["parameters"]:
        parameter["schema"] = _without_null(parameter["schema"])
    responses = operation["responses"]
    status = str(route.status_code or 200)
    responses[status]["description"] = operation["description"]
    if route.status_code in LOCATION_STATUSES and _takes_response(route):
        responses[status]["headers"] = {"Location": {"schema": {"type": "string"}}}
    failures = {
        int(status_text) for status_text in responses if int(status_text) >= FIRST_ERROR_STATUS
    }
    failures.update(KEYED_ERROR_STATUSES if route.required_role else PUBLIC_ERROR_STATUSES)
    if route.body_field is not None:
        failures.add(415)
    if "{" in route.path:
        failures.add(404)
    for failure in sorted(failures):
        responses.pop(str(failure), None)
        responses[str(failure)] = {"$ref": f"#/components/responses/{failure}"}


def _takes_response(route: ApiRoute) -> bool:
    """Whether a function sets response headers. All that do set `Location`."""
    return route.dependant.response_param_name is not None


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null: an optional parameter is omitted, not sent as null."""
    own_schema = {
        key: value for key, value in schema.items() if key not in ("title", "description")
    }
    kinds = [kind for kind in own_schema.pop("anyOf", []) if kind != {"type": "null"}]
    return {**(kinds[0] if kinds else {}), **own_schema}


def _describe_response_types(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the response schemas with the docstrings of fields as descriptions.

    FastAPI builds its own at import, and reading the source there would slow down every start.
    """
    for each in vars(types).values():
        if isinstance(each, type) and hasattr(each, "__dataclass_fields__"):
            each.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)
    kinds = [route.response_model for route in routes]
    schemas: dict[str, Any] = {}
    for kind in dict.fromkeys([*kinds, ProblemDetails]):
        if hasattr(kind, "__dataclass_fields__"):
            whole = TypeAdapter(kind).json_schema(
                ref_template=SCHEMA_REF_TEMPLATE, mode="serialization"
            )
            schemas.update(whole.pop("$defs", {}))
            schemas[kind.__name__] = whole
    return schemas
