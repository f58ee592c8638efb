"""When each API key was last used: collected in memory, and stored once a minute."""

from __future__ import annotations

import asyncio
import logging
import time

from trimtab.errors import StoreError
from trimtab_serve.api_keys.api_key import ApiKey
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.metrics.recording import set_api_key_expiries, set_api_key_last_used

SAVE_INTERVAL_S = 60.0
"""Seconds between two writes, however often keys are used."""
MAX_SHOWN_EXPIRIES = 100
"""Keys whose expiry the metrics show: those that expire next."""

log = logging.getLogger("trimtab.http")


class ApiKeyLastUse:
    """The times of one process that are not stored yet."""

    def __init__(self, keys: ApiKeyStore) -> None:
        self._keys = keys
        self._unsaved: dict[bytes, float] = {}

    def record(self, key: ApiKey) -> None:
        """Record that a key was used now. Nothing is written yet."""
        now = time.time()
        self._unsaved[key.sha256] = now
        set_api_key_last_used(key.name, now)

    async def save(self) -> None:
        """Write the new times. If that fails, they wait for the next attempt."""
        if not self._unsaved:
            return
        times = self._unsaved
        self._unsaved = {}
        try:
            await self._keys.save_last_use(times)
        except StoreError as error:
            log.warning("the last use of keys was not stored; retrying in a minute: %s", error)
            self._unsaved = {**times, **self._unsaved}

    async def save_regularly(self) -> None:
        """Save once a minute and at the end. Also show in the metrics which keys expire next."""
        try:
            while True:
                await self._show_expiries()
                await asyncio.sleep(SAVE_INTERVAL_S)
                await self.save()
        finally:
            await self.save()

    async def _show_expiries(self) -> None:
        try:
            keys = await self._keys.list_expiring(time.time(), limit=MAX_SHOWN_EXPIRIES)
        except StoreError as error:
            log.warning("reading when keys expire failed; retrying in a minute: %s", error)
            return
        set_api_key_expiries({key.name: key.expires for key in keys if key.expires})
