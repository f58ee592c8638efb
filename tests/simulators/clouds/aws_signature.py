"""AWS signatures, version 4: check whether a request was signed with a known secret."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

from tests.simulators.clouds.base import CloudRequest, make_cloud_refusal
from trimtab.testing.server.options import ProviderSimulatorOptions

MAX_CLOCK_SKEW_S = 300.0
"""Maximum difference between a signature's time and now, in seconds."""
SECRET_KEY = "simulated-secret"  # noqa: S105 - known to all, and to nothing else
"""The secret that a request must be signed with, for any access key."""
SERVICE = "bedrock"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<day>\d{8})/(?P<region>[a-z0-9-]+)/"
    r"(?P<service>[a-z0-9-]+)/aws4_request, ?SignedHeaders=(?P<signed>[a-z0-9;-]+), ?"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_REQUIRED_SIGNED_HEADERS = ("host", "x-amz-date")


def check_aws_credentials(request: CloudRequest, options: ProviderSimulatorOptions) -> str:
    """Return who signed a request: the id of an access key, or the Bedrock API key itself."""
    authorization = request.headers.get("authorization", "")
    if authorization.startswith("Bearer "):
        key = authorization.removeprefix("Bearer ").strip()
        if options.api_keys and key not in options.api_keys:
            raise _refuse("AccessDeniedException", "Authentication failed: API Key is not valid")
        return key
    if not authorization:
        raise _refuse("MissingAuthenticationTokenException", "Missing Authentication Token")
    match = _AUTHORIZATION.fullmatch(authorization)
    if match is None or not set(_REQUIRED_SIGNED_HEADERS) <= set(match["signed"].split(";")):
        raise _refuse(
            "IncompleteSignatureException",
            "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature' "
            "parameters, and the headers host and x-amz-date to be signed.",
        )
    if options.api_keys and match["key"] not in options.api_keys:
        raise _refuse(
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
        )
    if match["service"] != SERVICE:
        raise _refuse(
            "InvalidSignatureException",
            f"Credential should be scoped to correct service: '{SERVICE}'.",
        )
    _check_time(request.headers.get("x-amz-date", ""), match["day"])
    if not hmac.compare_digest(sign_request(request, match, SECRET_KEY), match[0][-64:]):
        raise _refuse(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check "
            "your AWS Secret Access Key and signing method. Consult the service documentation for "
            "details.",
        )
    return match["key"]


def sign_request(
    request: CloudRequest, scope: Mapping[str, str] | re.Match[str], secret_key: str
) -> str:
    """Return the signature that a request must have."""
    day = scope["day"]
    region = scope["region"]
    service = scope["service"]
    canonical = _build_canonical_request(request, scope["signed"])
    credential_scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            request.headers["x-amz-date"],
            credential_scope,
            hashlib.sha256(canonical.encode()).hexdigest(),
        )
    )
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _build_canonical_request(request: CloudRequest, signed_names: str) -> str:
    names = signed_names.split(";")
    headers = [f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in names]
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(request.query, keep_blank_values=True)
    )
    return "\n".join(
        (
            request.method,
            # What the path has of percent signs is escaped once more.
            quote(request.raw_path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            "".join(headers),
            signed_names,
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _check_time(stamp: str, day: str) -> None:
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        signed_at = 0.0
    if abs(time.time() - signed_at) > MAX_CLOCK_SKEW_S or not stamp.startswith(day):
        raise _refuse("InvalidSignatureException", f"Signature expired: {stamp} is not now")


def _refuse(error_type: str, message: str) -> Exception:
    return make_cloud_refusal(error_type, message, 403, cause="auth")
