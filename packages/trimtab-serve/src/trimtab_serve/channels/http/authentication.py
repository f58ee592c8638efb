"""Authenticate callers by their headers, and check what they may do."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network

from trimtab_serve.api_keys.api_key import ApiKey, KeyRole, hash_api_key
from trimtab_serve.api_keys.last_use import ApiKeyLastUse
from trimtab_serve.api_keys.lookup import ApiKeyLookup
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.channels.http.api_caller import LOCAL_CALLER, ApiCaller, build_caller
from trimtab_serve.channels.http.problems import HttpProblem
from trimtab_serve.metrics.recording import ApiKeyRejectionLabel, count_api_key_rejection
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.rate_limit import CallerRateLimiter, compute_request_burst

BEARER_PREFIX = "bearer "
WRONG_KEYS_PER_MINUTE = 20
"""Requests without a valid key that one address may make in a minute. They may come all at once."""
MAX_KNOWN_KEYS = 10_000
"""Number of keys whose names are remembered."""
IPV6_NETWORK_BITS = 64
"""Size of the IPv6 network that one customer usually gets. It counts as one address."""

log = logging.getLogger("trimtab.http")


class CallerAuthentication:
    """Identifies callers by their keys, and limits their request rates.

    Each request looks its key up in the store, so a revoked key is refused at once. Only a request
    that turns out to have no valid key counts against its address, because others may share it.
    """

    def __init__(self, keys: ApiKeyStore | None, requests_per_minute: int) -> None:
        self.last_use = None if keys is None else ApiKeyLastUse(keys)
        """When keys were used. None if no keys are required."""
        self._keys = keys
        self._requests_per_minute = requests_per_minute
        self._rate_limiter = CallerRateLimiter(requests_per_minute)
        self._wrong_keys = CallerRateLimiter(WRONG_KEYS_PER_MINUTE, burst=WRONG_KEYS_PER_MINUTE)
        self._known_names = BoundedDict[bytes, str](MAX_KNOWN_KEYS)
        """The names of keys that were in the store at their last use, by hash."""
        self._unknown_keys = None if keys is None else ApiKeyLookup(keys)

    async def authenticate(self, headers: Mapping[str, str], client_host: str) -> ApiCaller:
        """Return the caller, given headers with lower-case names, and count the request.

        Raises `HttpProblem`: 401 without a valid key, and 429 if too many requests come with a key,
        or without a valid key from an address.
        """
        if self._keys is None or self._unknown_keys is None or self.last_use is None:
            return LOCAL_CALLER
        header = headers.get("authorization", "")
        if header[: len(BEARER_PREFIX)].lower() != BEARER_PREFIX:
            raise self._reject(client_host, "missing", "the request has no key")
        sha256 = hash_api_key(header[len(BEARER_PREFIX) :].strip())
        known_name = self._known_names.get(sha256)
        if known_name is not None:
            # Before the lookup: a caller that exceeds its limit costs no query.
            self.check_pace(known_name)
            key = await self._keys.find(sha256)
        else:
            key = await self._unknown_keys.find(sha256)
        if key is None:
            self._known_names.pop(sha256, None)
            raise self._reject(client_host, "wrong", "the key is not valid")
        self._known_names[sha256] = key.name
        if known_name is None:
            self.check_pace(key.name)
        if key.has_expired(time.time()):
            # The caller has the key, so they may know that it expired.
            raise _build_expired_problem(key)
        self.last_use.record(key)
        return build_caller(key)

    async def is_still_valid(self, caller: ApiCaller) -> bool:
        """Whether the key of an admitted caller exists, is unchanged and has not expired.

        A stream can outlive the permission of its request.
        """
        if self._keys is None:
            return True
        key = await self._keys.find(caller.key_sha256)
        return key is not None and build_caller(key) == caller and not key.has_expired(time.time())

    def check_pace(self, caller_name: str) -> None:
        """Count a request of a caller. Raises `HttpProblem` with 429 if there were too many."""
        if wait := self._rate_limiter.take_or_retry_after_s(caller_name):
            seconds = math.ceil(wait)
            limit = self._requests_per_minute
            burst = compute_request_burst(limit)
            raise HttpProblem(
                "too-many-requests",
                f"rate limit of key {caller_name} exceeded: {limit:,} requests a minute, {burst:,} "
                f"at once; try again in {seconds} s",
                # A caller that goes on must at least connect again each time.
                headers={"Retry-After": str(seconds), "Connection": "close"},
                requests_per_minute=limit,
                burst=burst,
            )

    def _reject(self, client_host: str, why: ApiKeyRejectionLabel, detail: str) -> HttpProblem:
        """Return the problem for an invalid key. It does not reveal how close a guess is."""
        wait = self._wrong_keys.take_or_retry_after_s(group_client_address(client_host))
        if not wait:
            count_api_key_rejection(why)
            return HttpProblem("unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
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


def _build_expired_problem(key: ApiKey) -> HttpProblem:
    count_api_key_rejection("expired")
    at = datetime.fromtimestamp(key.expires or 0.0, UTC)
    challenge = 'Bearer error="invalid_token", error_description="The key has expired"'
    return HttpProblem(
        "unauthorized",
        f"key {key.name} expired at {at:%Y-%m-%d %H:%M} UTC; ask the operator for a new one",
        headers={"WWW-Authenticate": challenge},
    )
