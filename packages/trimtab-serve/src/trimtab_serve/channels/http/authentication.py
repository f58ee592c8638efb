"""Authenticate callers by their headers, and check what they may do."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network

from trimtab_serve.channels.http.api_keys import (
    LOCAL_CALLER,
    ApiCaller,
    ApiKeyExpired,
    ApiKeyFile,
    KeyRole,
)
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.channels.http.rate_limit import CallerRateLimiter, compute_request_burst
from trimtab_serve.metrics.recording import ApiKeyRejectionLabel, count_api_key_rejection

BEARER_PREFIX = "bearer "
WRONG_KEYS_PER_MINUTE = 20
"""Requests without a valid key that one address may make in a minute. They may come all at once."""
IPV6_NETWORK_BITS = 64
"""Size of the IPv6 network that one customer usually gets. It counts as one address."""

log = logging.getLogger("trimtab.http")


class CallerAuthentication:
    """Identifies callers by their keys, and limits their request rates."""

    def __init__(self, key_file: ApiKeyFile | None, requests_per_minute: int) -> None:
        self._key_file = key_file
        self._requests_per_minute = requests_per_minute
        self._rate_limiter = CallerRateLimiter(requests_per_minute)
        self._wrong_keys = CallerRateLimiter(WRONG_KEYS_PER_MINUTE, burst=WRONG_KEYS_PER_MINUTE)

    def authenticate(self, headers: Mapping[str, str], client_host: str) -> ApiCaller:
        """Return the caller, given headers with lower-case names.

        Raises `HttpProblem`: 401 without a valid key, and 429 if too many such requests come from
        an address. Wrong keys never slow down a valid key, because others may share its address.
        """
        if self._key_file is None:
            return LOCAL_CALLER
        header = headers.get("authorization", "")
        if header[: len(BEARER_PREFIX)].lower() != BEARER_PREFIX:
            raise self._reject(client_host, "missing", "the request has no key")
        try:
            caller = self._key_file.find_caller(header[len(BEARER_PREFIX) :].strip())
        except ApiKeyExpired as expired:
            # The caller has the key, so they may know that it expired. The rate limit is that of
            # the key.
            self.check_pace(expired.name)
            raise _build_expired_problem(expired) from None
        if caller is None:
            raise self._reject(client_host, "wrong", "the key is not valid")
        return caller

    def is_still_valid(self, caller: ApiCaller) -> bool:
        """Whether an admitted caller would be admitted again."""
        return self._key_file is None or self._key_file.is_caller_still_valid(caller)

    def check_pace(self, caller_name: str) -> None:
        """Count a request of a caller. Raises `HttpProblem` with 429 if there were too many."""
        if wait := self._rate_limiter.take_or_retry_after_s(caller_name):
            seconds, limit = math.ceil(wait), self._requests_per_minute
            burst = compute_request_burst(limit)
            raise HttpProblem(
                "too-many-requests",
                f"rate limit of key {caller_name} exceeded: {limit:,} requests a minute, {burst:,} "
                f"at once; try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
                requests_per_minute=limit,
                burst=burst,
            )

    def _reject(self, client_host: str, why: ApiKeyRejectionLabel, detail: str) -> HttpProblem:
        """Return the problem for an invalid key. It does not reveal how close a guess is."""
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
        detail = f"has the role {caller.role} and cannot read metrics"
    elif caller.role == "metrics":
        detail = f"can only read /metrics, but this needs the role {required}"
    else:
        detail = f"has the role {caller.role}, but this needs {required}"
    raise HttpProblem(
        "forbidden",
        f"key {caller.name} {detail}; create another: `trimtab keys create NAME --role {required}`",
        required_role=required,
    )


def group_client_address(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 network."""
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
        f"key {expired.name} expired at {at:%Y-%m-%d %H:%M} UTC; ask the operator for a new one",
        headers={"WWW-Authenticate": challenge},
    )
