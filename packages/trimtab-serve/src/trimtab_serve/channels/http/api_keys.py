"""API keys in a file. Only a hash of each key is stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from trimtab_serve.channels.http.api_key_last_use import ApiKeyLastUse, save_last_use_regularly
from trimtab_serve.metrics.recording import set_api_key_expiries
from trimtab_serve.queue.address import DEFAULT_TENANT, is_valid_name

KEY_FILE_VERSION = 1
"""Version of the stored format."""
KEY_PREFIX = "tt_"
"""Lets scanners for leaked secrets, and people, recognise a key."""

GROUP_AND_OTHER_BITS = 0o077
MAX_EXPIRY_S = 253_402_300_799.0
"""The last second of the year 9999, since the epoch. Later times have no date."""

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger("trimtab.http")


KeyRole = Literal["metrics", "read", "talk", "admin"]
"""What a key may do.

`read`, `talk` and `admin` each include the one before. `metrics` reads `/metrics`, which counts all
tenants. The other roles do not include it, because they belong to one tenant.
"""
KEY_ROLES: tuple[KeyRole, ...] = get_args(KeyRole)
INCLUDED_ROLES: Mapping[KeyRole, frozenset[KeyRole]] = MappingProxyType(
    {
        "metrics": frozenset[KeyRole]({"metrics"}),
        "read": frozenset[KeyRole]({"read"}),
        "talk": frozenset[KeyRole]({"read", "talk"}),
        "admin": frozenset[KeyRole]({"read", "talk", "admin"}),
    }
)
"""For each role of a key, the roles whose operations it may use."""


class InvalidKeyFile(ValueError):
    """The key file cannot be used."""


class ApiKeyExpired(Exception):
    """The key is known but has expired."""

    def __init__(self, name: str, expires: float) -> None:
        self.name = name
        """Name of the key."""
        self.expires = expires
        """When it expired, in seconds since the epoch."""
        super().__init__(f"key {name} has expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredApiKey:
    """The stored data of a key."""

    name: str
    """The name that its owner gave it. Logs contain it."""
    sha256: str
    """Hash of the whole key in hexadecimal digits. A key has 256 random bits, so no salt is
    needed."""
    role: KeyRole
    """What it may do."""
    tenant: str = DEFAULT_TENANT
    """The tenant whose sessions it can use. Without meaning for a key that reads metrics."""
    agents: tuple[str, ...] | None = None
    """Agents that it may use. None for all."""
    created: float = 0.0
    """When it was created, in seconds since the epoch."""
    expires: float | None = None
    """When it expires, in seconds since the epoch. None for never."""

    def has_expired(self, now: float) -> bool:
        """Whether it has expired, at a time in seconds since the epoch."""
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCaller:
    """The caller of a request."""

    name: str
    """Name of the key. `local` without keys."""
    tenant: str = DEFAULT_TENANT
    """The tenant whose sessions it uses."""
    agents: tuple[str, ...] | None = None
    """Agents that it may use. None for all."""
    role: KeyRole | None
    """The role of the caller. None if there are no keys, so that everything is allowed."""
    key_sha256: str = ""
    """Stored hash of the key. Empty if there are no keys."""

    def has_role(self, required: KeyRole) -> bool:
        """Whether this caller may use an operation that needs a role."""
        return self.role is None or required in INCLUDED_ROLES[self.role]

    def may_use(self, agent: str) -> bool:
        """Whether this caller may use an agent."""
        return self.agents is None or agent in self.agents


LOCAL_CALLER = ApiCaller(name="local", role=None)
"""Every caller on this machine, if there are no keys."""


class ApiKeyFile:
    """The keys of a file, which is read again when it changes. Rotation needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Path of the file."""
        self.last_use = ApiKeyLastUse(path)
        """When each key was last used."""
        self._file_stamp: tuple[int, int, int] | None = None
        self._keys: list[StoredApiKey] = []
        self._keys_by_hash: Mapping[str, StoredApiKey] = {}
        if path.exists():
            self._keys = read_stored_api_keys(path)
        self.current_keys()

    def current_keys(self) -> list[StoredApiKey]:
        """Return the keys that are accepted now. Empty if the file is gone."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._file_stamp, self._keys, self._keys_by_hash = None, [], {}
            return []
        except OSError as error:
            log.warning("checking the key file failed: %s", error)
            return self._keys
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._file_stamp:
            try:
                self._keys = read_stored_api_keys(self.path)
            except (InvalidKeyFile, OSError) as error:
                # A typing error must neither lock all callers out nor let anyone in.
                log.warning("ignoring the changed key file: %s", error)
            if found.st_mode & GROUP_AND_OTHER_BITS:
                log.warning(
                    "other users can read %s, so the next start will refuse it; run: chmod 600 %s",
                    *(self.path, self.path),
                )
            self._file_stamp = stamp
            self._keys_by_hash = {key.sha256: key for key in self._keys}
            set_api_key_expiries({key.name: key.expires for key in self._keys if key.expires})
        return self._keys

    def is_caller_still_valid(self, caller: ApiCaller) -> bool:
        """Whether a caller's key still exists, is unchanged and has not expired.

        A stream can outlive the permission of its request.
        """
        self.current_keys()
        key = self._keys_by_hash.get(caller.key_sha256)
        return (
            key is not None
            and (key.tenant, key.agents, key.role) == (caller.tenant, caller.agents, caller.role)
            and not key.has_expired(time.time())
        )

    async def save_last_use_regularly(self) -> None:
        """Store when each key was last used, while this runs."""
        await save_last_use_regularly(
            self.last_use, lambda: {key.name for key in self.current_keys()}
        )

    def find_caller(self, api_key: str) -> ApiCaller | None:
        """Return the caller with this key, or None. Raises `ApiKeyExpired`.

        All keys are compared, in constant time.
        """
        digest = hash_api_key(api_key)
        found: StoredApiKey | None = None
        for key in self.current_keys():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        if found is None:
            return None
        if found.expires is not None and found.has_expired(time.time()):
            raise ApiKeyExpired(found.name, found.expires)
        self.last_use.record(found.name)
        return ApiCaller(
            name=found.name,
            tenant=found.tenant,
            agents=found.agents,
            role=found.role,
            key_sha256=found.sha256,
        )


def hash_api_key(api_key: str) -> str:
    """Return the stored hash of a key."""
    return hashlib.sha256(api_key.encode("utf-8", "surrogatepass")).hexdigest()


def create_api_key(
    key_name: str,
    *,
    tenant: str = DEFAULT_TENANT,
    agents: tuple[str, ...] | None = None,
    role: KeyRole,
    expires: float | None = None,
) -> tuple[str, StoredApiKey]:
    """Create a key. Return its text, to be shown once, and its stored data."""
    if role == "metrics" and (agents or tenant != DEFAULT_TENANT):
        raise ValueError(
            "a key for metrics cannot use sessions, so it has neither a tenant nor agents: omit "
            "these, or create two keys"
        )
    for what, word in (
        ("key", key_name),
        ("tenant", tenant),
        *(("agent", a) for a in agents or ()),
    ):
        if not is_valid_name(word):
            raise ValueError(f"invalid {what} name {word!r}: use letters, digits and . _ - : @ + =")
    text = f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
    kept = StoredApiKey(
        name=key_name,
        sha256=hash_api_key(text),
        tenant=tenant,
        agents=agents,
        role=role,
        created=time.time(),
        expires=expires,
    )
    return text, kept


def read_stored_api_keys(path: Path) -> list[StoredApiKey]:
    """Return the keys in a file. Raises `InvalidKeyFile` with the reason."""
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
        raise InvalidKeyFile(f"{path} is not a regular file; `trimtab keys` writes one")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidKeyFile(f"{path} is not valid JSON; `trimtab keys` writes this file") from None
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    version = fields.get("version")
    if "v" in fields:
        raise InvalidKeyFile(
            f"{path} was written before the first release; this release cannot read it: move it "
            f"away, and create new keys with `trimtab keys create NAME --file {path.name}`"
        )
    if isinstance(version, int) and version > KEY_FILE_VERSION:
        raise InvalidKeyFile(
            f"{path} has format version {version}, but this release reads {KEY_FILE_VERSION}: "
            "upgrade trimtab"
        )
    if version != KEY_FILE_VERSION:
        raise InvalidKeyFile(
            f"{path} is not a key file; create one with "
            f"`trimtab keys create NAME --file {path.name}`"
        )
    try:
        return [_key_from_json(each) for each in fields["keys"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidKeyFile(f"{path} contains an invalid key; remove it by hand") from None


def write_key_file(path: Path, keys: list[StoredApiKey]) -> None:
    """Replace the key file atomically. Only its owner can read it."""
    data = {"version": KEY_FILE_VERSION, "keys": [_key_to_json(key) for key in keys]}
    handle, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # is 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(new).replace(path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def _key_to_json(key: StoredApiKey) -> dict[str, Any]:
    """Return a key as it is stored. A key for metrics has neither a tenant nor agents."""
    data = asdict(key)
    if key.role == "metrics":
        del data["tenant"], data["agents"]
    return data


def _key_from_json(data: dict[str, Any]) -> StoredApiKey:
    agents, role, expires = data.get("agents"), data["role"], data.get("expires")
    key = StoredApiKey(
        name=data["name"],
        sha256=data["sha256"],
        tenant=data.get("tenant", DEFAULT_TENANT),
        agents=None if agents is None else tuple(agents),
        role=role,
        created=float(data.get("created", 0.0)),
        expires=None if expires is None else float(expires),
    )
    names = (key.name, key.tenant, *(key.agents or ()))
    if role not in KEY_ROLES:
        raise ValueError(role)
    if expires is not None and not (
        math.isfinite(float(expires)) and 0 <= float(expires) <= MAX_EXPIRY_S
    ):
        raise ValueError(key.name)  # a time that is not a number would never come
    if not _SHA256_HEX.fullmatch(key.sha256) or not all(map(is_valid_name, names)):
        raise ValueError(key.name)
    return key
