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

from trimtab.worker.naming import TENANT, is_name

VERSION = 1
BEGINS = "tt_"
"""So that scanners for leaked secrets, and people, know a key when they see one."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger("trimtab.http")


Scope = Literal["sessions", "metrics", "both"]
"""What a caller may do: all that has to do with sessions, read `/metrics`, or both."""


class KeysBroken(ValueError):
    """The file of keys cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is kept of a key."""

    name: str
    """What its owner calls it, also in logs."""
    sha256: str
    """Of the whole key, in hexadecimal digits. A key has 256 random bits: no salt is needed."""
    tenant: str = TENANT
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
class Caller:
    """Who asks."""

    name: str
    """The key's name; `local` without keys."""
    tenant: str = TENANT
    """Whose sessions are meant."""
    agents: tuple[str, ...] | None = None
    """Agents that may be used; None for all."""
    scope: Scope = "both"
    """What may be done; a key never has both."""

    def may_use(self, agent: str) -> bool:
        """Whether this caller may use an agent."""
        return self.agents is None or agent in self.agents


LOCAL = Caller(name="local")
"""Everybody on this machine, where there are no keys."""


class KeyFile:
    """The keys of a file, read again when it changes: rotation needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Where it is."""
        self._seen: tuple[int, int, int] | None = None
        self._keys: list[Key] = []
        self.keys()

    def keys(self) -> list[Key]:
        """All that are accepted now; none where the file is gone."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, []
            return []
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._seen:
            try:
                self._keys = read_keys(self.path)
            except (KeysBroken, OSError) as error:
                if self._seen is None:
                    raise
                # A slip of the hand must not lock everybody out, nor let anybody in.
                log.warning("the keys stay as they were: %s", error)
            self._seen = stamp
        return self._keys

    def warn(self) -> None:
        """Say in the log which keys open less than they did when they were made."""
        for key in self.keys():
            if key.narrowed:
                log.warning(
                    "the key %s reads /metrics and nothing else; an earlier version made it, and "
                    "there it opened sessions as well. For sessions make another one: trimtab "
                    "keys create NAME --file %s",
                    *(key.name, self.path),
                )

    def caller(self, given: str) -> Caller | None:
        """Who has this key; each comparison takes the same time, and all are made."""
        digest = digest_of(given)
        found: Key | None = None
        for key in self.keys():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        if found is None:
            return None
        scope = "metrics" if found.metrics else "sessions"
        return Caller(name=found.name, tenant=found.tenant, agents=found.agents, scope=scope)


def digest_of(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def new_key(
    name: str, *, tenant: str = TENANT, agents: tuple[str, ...] | None = None, metrics: bool = False
) -> tuple[str, Key]:
    """A key, to be shown once, and what is kept of it."""
    if metrics and (agents or tenant != TENANT):
        raise ValueError(
            "a key for metrics opens no sessions, so it has neither a tenant nor agents: leave "
            "these out, or make two keys"
        )
    for what, word in (("key", name), ("tenant", tenant), *(("agent", a) for a in agents or ())):
        if not is_name(word):
            raise ValueError(
                f"no {what} can be called {word!r}; use letters, digits and . _ - : @ + ="
            )
    text = f"{BEGINS}{secrets.token_urlsafe(32)}"
    kept = Key(
        name=name,
        sha256=digest_of(text),
        tenant=tenant,
        agents=agents,
        metrics=metrics,
        created=time.time(),
    )
    return text, kept


def read_keys(path: Path) -> list[Key]:
    """The keys in a file; raises `KeysBroken` with what is wrong."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        raise KeysBroken(f"{path} is no JSON; `trimtab keys` writes this file") from None
    version: Any = cast("dict[str, Any]", data).get("v") if isinstance(data, dict) else None
    if version != VERSION:
        raise KeysBroken(
            f"{path} is no file of keys of version {VERSION}; `trimtab keys create NAME --file "
            f"{path.name}` writes one"
        )
    try:
        return [_key(each) for each in cast("Any", data)["keys"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise KeysBroken(f"{path} holds something that is no key; remove it by hand") from None


def write_keys(path: Path, keys: list[Key]) -> None:
    """Put the keys into a file that only its owner reads, whole or not at all."""
    data = {"v": VERSION, "keys": [_stored(key) for key in keys]}
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


def _stored(key: Key) -> dict[str, Any]:
    """As it stands in the file. A key for metrics has no tenant there: one that has was made when
    it opened sessions."""
    data = asdict(key)
    del data["narrowed"]
    if key.metrics and not key.narrowed:
        del data["tenant"], data["agents"]
    return data


def _key(data: dict[str, Any]) -> Key:
    agents, metrics = data.get("agents"), bool(data.get("metrics", False))
    key = Key(
        name=data["name"],
        sha256=data["sha256"],
        tenant=data.get("tenant", TENANT),
        agents=None if agents is None else tuple(agents),
        metrics=metrics,
        created=float(data.get("created", 0.0)),
        narrowed=metrics and "tenant" in data,
    )
    names = (key.name, key.tenant, *(key.agents or ()))
    if not _DIGEST.fullmatch(key.sha256) or not all(map(is_name, names)):
        raise ValueError(key.name)
    return key
