"""Who asks, and whether they may: from headers to a caller, or to the problem that is answered."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network

from trimtab.observe.server_metrics import ApiKeyRejectionLabel, count_api_key_rejection
from trimtab.server.channels.http.api_keys import (
    LOCAL_CALLER,
    ApiCaller,
    ApiKeyExpired,
    ApiKeyFile,
    KeyRole,
)
from trimtab.server.channels.http.problems import HttpProblem
from trimtab.server.channels.http.rate_limit import CallerRateLimiter, compute_request_burst

BEARER_PREFIX = "bearer "
WRONG_KEYS_PER_MINUTE = 20
"""Requests without a valid key that one address may make in a minute, all of them at once."""
IPV6_NETWORK_BITS = 64
"""What one customer gets of IPv6: its addresses are one."""

log = logging.getLogger("trimtab.http")


class CallerAuthentication:
    """Tells callers by their keys, and holds each to its pace."""

    def __init__(self, key_file: ApiKeyFile | None, requests_per_minute: int) -> None:
        self._key_file = key_file
        self._requests_per_minute = requests_per_minute
        self._rate_limiter = CallerRateLimiter(requests_per_minute)
        self._wrong_keys = CallerRateLimiter(WRONG_KEYS_PER_MINUTE, burst=WRONG_KEYS_PER_MINUTE)

    def authenticate(self, headers: Mapping[str, str], client_host: str) -> ApiCaller:
        """Who asks, by headers of lower-case names. Raises `HttpProblem`: 401 without a valid key,
        and 429 if too many such requests come from an address.

        A valid key is never slowed by the wrong ones: others may share its address."""
        if self._key_file is None:
            return LOCAL_CALLER
        header = headers.get("authorization", "")
        if header[: len(BEARER_PREFIX)].lower() != BEARER_PREFIX:
            raise self._reject(client_host, "missing", "the request has no key")
        try:
            caller = self._key_file.find_caller(header[len(BEARER_PREFIX) :].strip())
        except ApiKeyExpired as expired:
            # Whoever has the key may know this of it, and is known: the pace is the key's own.
            self.check_pace(expired.name)
            raise _build_expired_problem(expired) from None
        if caller is None:
            raise self._reject(client_host, "wrong", "the key is not valid")
        return caller

    def is_still_valid(self, caller: ApiCaller) -> bool:
        """Whether a caller who was admitted would be admitted again."""
        return self._key_file is None or self._key_file.is_caller_still_valid(caller)

    def check_pace(self, caller_name: str) -> None:
        """Count a request of a caller; raises `HttpProblem` with 429 if there were too many."""
        if wait := self._rate_limiter.take_or_retry_after_s(caller_name):
            seconds, limit = math.ceil(wait), self._requests_per_minute
            burst = compute_request_burst(limit)
            raise HttpProblem(
                "too-many-requests",
                f"the key {caller_name} may make {limit:,} requests in a minute, and {burst:,} at "
                f"once; try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
                requests_per_minute=limit,
                burst=burst,
            )

    def _reject(self, client_host: str, why: ApiKeyRejectionLabel, detail: str) -> HttpProblem:
        """What is answered without a valid key; it does not depend on how near a guess is."""
        if wait := self._wrong_keys.take_or_retry_after_s(group_client_address(client_host)):
            count_api_key_rejection("paced")
            log.warning(
                "more than %d requests a minute without a valid key from %s",
                *(WRONG_KEYS_PER_MINUTE, client_host),
                extra={"event": "wrong_keys"},
            )
            seconds = math.ceil(wait)
            return HttpProblem(
                "too-many-requests",
                f"too many requests without a valid key came from this address; try again in "
                f"{seconds} s",
                headers={"Retry-After": str(seconds), "Connection": "close"},
            )
        count_api_key_rejection(why)
        return HttpProblem("unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def check_role(caller: ApiCaller, required: KeyRole) -> None:
    """Raise `HttpProblem` with 403 unless a caller may use an operation of a role."""
    if caller.has_role(required):
        return
    if required == "metrics":
        detail = f"has the role {caller.role} and may not read metrics"
    elif caller.role == "metrics":
        detail = f"reads /metrics and nothing else; this needs the role {required}"
    else:
        detail = f"has the role {caller.role}; this needs {required}"
    raise HttpProblem(
        "forbidden",
        f"the key {caller.name} {detail}; `trimtab keys create NAME --role {required}` makes one",
        required_role=required,
    )


def group_client_address(host: str) -> str:
    """What counts as one address: an IPv4 address, or a network of IPv6."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    assert isinstance(address, IPv6Address)  # noqa: S101 - no other has a colon
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, IPV6_NETWORK_BITS), strict=False))


def _build_expired_problem(expired: ApiKeyExpired) -> HttpProblem:
    count_api_key_rejection("expired")
    at = datetime.fromtimestamp(expired.expires, UTC)
    challenge = 'Bearer error="invalid_token", error_description="The key has expired"'
    return HttpProblem(
        "unauthorized",
        f"the key {expired.name} expired at {at:%Y-%m-%d %H:%M} UTC; ask the operator for another",
        headers={"WWW-Authenticate": challenge},
    )
