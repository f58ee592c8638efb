"""The OpenAPI document, and a page that shows it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, Response

from trimtab_serve.channels.http.api_route import PUBLIC, ApiRequest, create_api_router

PAGE_FILE = "documentation.html"
_INLINE_ELEMENT = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)

router = create_api_router("operations")


@router.get("/openapi.json", openapi_extra=PUBLIC, response_model=dict[str, Any])
async def openapi(request: ApiRequest) -> Response:
    """Read this document."""
    return Response(request.app.openapi_json, media_type="application/json")


@router.get("/docs", openapi_extra=PUBLIC, response_class=HTMLResponse)
async def docs() -> Response:
    """Read this document as a web page, from which you can send requests."""
    page, policy = _load_page()
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})


@cache
def _load_page() -> tuple[str, str]:
    """Return the page, and a policy that lets a browser run only the scripts in it."""
    page = Path(__file__).with_name(PAGE_FILE).read_text("utf-8")
    sources = {
        f"{element}-src": f"'sha256-{_hash_source(text)}'"
        for element, text in _INLINE_ELEMENT.findall(page)
    }
    rules = {
        "default-src": "'none'",
        **sources,
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return page, "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash_source(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
