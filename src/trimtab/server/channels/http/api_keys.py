"""Who may ask: API keys in a file. Only a hash of each key is kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from trimtab.server.tenant_agent_session_ids import DEFAULT_TENANT, is_valid_name

KEY_FILE_VERSION = 1
KEY_PREFIX = "tt_"
"""So that scanners for leaked secrets, and people, know a key when they see one."""

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger("trimtab.http")


KeyScope = Literal["sessions", "metrics", "both"]
"""What a caller may do: all that has to do with sessions, read `/metrics`, or both."""


class InvalidKeyFile(ValueError):
    """The file of keys cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredApiKey:
    """What is kept of a key."""

    name: str
    """What its owner calls it, also in logs."""
    sha256: str
    """Of the whole key, in hexadecimal digits. A key has 256 random bits: no salt is needed."""
    tenant: str = DEFAULT_TENANT
    """Whose sessions it opens; of no meaning for a key that reads metrics."""
    agents: tuple[str, ...] | None = None
    """Agents that it may use; None for all."""
    metrics: bool = False
    """Whether it reads `/metrics`, which counts all tenants, and nothing else."""
    created: float = 0.0
    """When it was made, in seconds since the epoch."""
    narrowed: bool = False
    """Whether it was made when a key for metrics opened sessions as well. It no longer does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCaller:
    """Who asks."""

    name: str
    """The key's name; `local` without keys."""
    tenant: str = DEFAULT_TENANT
    """Whose sessions are meant."""
    agents: tuple[str, ...] | None = None
    """Agents that may be used; None for all."""
    scope: KeyScope = "both"
    """What may be done; a key never has both."""

    def may_use(self, agent: str) -> bool:
        """Whether this caller may use an agent."""
        return self.agents is None or agent in self.agents


LOCAL_CALLER = ApiCaller(name="local")
"""Everybody on this machine, where there are no keys."""


class ApiKeyFile:
    """The keys of a file, read again when it changes: rotation needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Where it is."""
        self._file_stamp: tuple[int, int, int] | None = None
        self._keys: list[StoredApiKey] = []
        self.current_keys()

    def current_keys(self) -> list[StoredApiKey]:
        """All that are accepted now; none where the file is gone."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._file_stamp, self._keys = None, []
            return []
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._file_stamp:
            try:
                self._keys = read_stored_api_keys(self.path)
            except (InvalidKeyFile, OSError) as error:
                if self._file_stamp is None:
                    raise
                # A slip of the hand must not lock everybody out, nor let anybody in.
                log.warning("the changed file of keys is ignored: %s", error)
            self._file_stamp = stamp
        return self._keys

    def log_narrowed_keys(self) -> None:
        """Say in the log which keys open less than they did when they were made."""
        for key in self.current_keys():
            if key.narrowed:
                log.warning(
                    "the key %s reads /metrics and nothing else; an earlier version made it, and "
                    "there it opened sessions as well. For sessions make another one: trimtab "
                    "keys create NAME --file %s",
                    *(key.name, self.path),
                )

    def find_caller(self, api_key: str) -> ApiCaller | None:
        """Who has this key; each comparison takes the same time, and all are made."""
        digest = hash_api_key(api_key)
        found: StoredApiKey | None = None
        for key in self.current_keys():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        if found is None:
            return None
        scope = "metrics" if found.metrics else "sessions"
        return ApiCaller(name=found.name, tenant=found.tenant, agents=found.agents, scope=scope)


def hash_api_key(api_key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(api_key.encode("utf-8", "surrogatepass")).hexdigest()


def create_api_key(
    key_name: str,
    *,
    tenant: str = DEFAULT_TENANT,
    agents: tuple[str, ...] | None = None,
    metrics: bool = False,
) -> tuple[str, StoredApiKey]:
    """A key, to be shown once, and what is kept of it."""
    if metrics and (agents or tenant != DEFAULT_TENANT):
        raise ValueError(
            "a key for metrics opens no sessions, so it has neither a tenant nor agents: leave "
            "these out, or make two keys"
        )
    for what, word in (
        ("key", key_name),
        ("tenant", tenant),
        *(("agent", a) for a in agents or ()),
    ):
        if not is_valid_name(word):
            raise ValueError(
                f"no {what} can be called {word!r}; use letters, digits and . _ - : @ + ="
            )
    text = f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
    kept = StoredApiKey(
        name=key_name,
        sha256=hash_api_key(text),
        tenant=tenant,
        agents=agents,
        metrics=metrics,
        created=time.time(),
    )
    return text, kept


def read_stored_api_keys(path: Path) -> list[StoredApiKey]:
    """The keys in a file; raises `InvalidKeyFile` with what is wrong."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        raise InvalidKeyFile(f"{path} is no JSON; `trimtab keys` writes this file") from None
    version: Any = cast("dict[str, Any]", data).get("v") if isinstance(data, dict) else None
    if version != KEY_FILE_VERSION:
        raise InvalidKeyFile(
            f"{path} is no file of keys of version {KEY_FILE_VERSION}; `trimtab keys create "
            "NAME --file "
            f"{path.name}` writes one"
        )
    try:
        return [_key_from_json(each) for each in cast("Any", data)["keys"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidKeyFile(f"{path} holds something that is no key; remove it by hand") from None


def write_key_file(path: Path, keys: list[StoredApiKey]) -> None:
    """Put the keys into a file that only its owner reads, whole or not at all."""
    data = {"v": KEY_FILE_VERSION, "keys": [_key_to_json(key) for key in keys]}
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
    """As it stands in the file. A key for metrics has no tenant there: one that has was made when
    it opened sessions."""
    data = asdict(key)
    del data["narrowed"]
    if key.metrics and not key.narrowed:
        del data["tenant"], data["agents"]
    return data


def _key_from_json(data: dict[str, Any]) -> StoredApiKey:
    agents, metrics = data.get("agents"), bool(data.get("metrics", False))
    key = StoredApiKey(
        name=data["name"],
        sha256=data["sha256"],
        tenant=data.get("tenant", DEFAULT_TENANT),
        agents=None if agents is None else tuple(agents),
        metrics=metrics,
        created=float(data.get("created", 0.0)),
        narrowed=metrics and "tenant" in data,
    )
    names = (key.name, key.tenant, *(key.agents or ()))
    if not _SHA256_HEX.fullmatch(key.sha256) or not all(map(is_valid_name, names)):
        raise ValueError(key.name)
    return key
