"""Mask the secrets of this process in texts that come from elsewhere.

A provider may repeat the API key in its error, and the error reaches users, logs and traces.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote_from_bytes, quote_plus

from trimtab.engine.log.redaction import REDACTION_PATTERNS
from trimtab.errors import ProviderError
from trimtab.providers.base import Provider
from trimtab.stores.factory import is_database_address
from trimtab_serve.agent.environment import ENVIRON

MaskSecrets = Callable[[str], str]
"""A function that takes a text and returns it without secrets."""

MIN_SECRET_CHARS = 6
"""Shorter values are not treated as secrets: they could be common words."""
MIN_RUN_CHARS = 12
"""Minimum number of characters in a row that are masked. An error may quote a part of a secret."""
_SECRET_NAMES = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL|DSN", re.IGNORECASE
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")
_SECRET = re.compile(REDACTION_PATTERNS["secret"])
_MASK = "…"


def find_secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names say that they are secret."""
    return {
        name: value
        for name, value in environ.items()
        if _SECRET_NAMES.search(name) and len(value) >= MIN_SECRET_CHARS
    }


def build_secret_mask(environ: Mapping[str, str], *further_secrets: str | None) -> MaskSecrets:
    """Return a function that masks secret values of the environment, passwords in its addresses,
    further secrets, and what looks like a key."""
    values = {*find_secret_variables(environ).values(), *filter(None, further_secrets)}
    runs, short_forms = _collect_masked_texts(frozenset(values), frozenset(environ.values()))

    def mask(text: str) -> str:
        text = _mask_runs(text, runs)
        for form in short_forms:
            text = text.replace(form, _MASK)
        return _SECRET.sub(_MASK, text)

    return mask


def mask_secrets_of_process(text: str) -> str:
    """Return a text without the secrets in the environment of this process."""
    return build_secret_mask(ENVIRON)(text)


@lru_cache(maxsize=16)
def _collect_masked_texts(
    secrets: frozenset[str], environment_values: frozenset[str]
) -> tuple[frozenset[str], Sequence[str]]:
    """Return the runs of characters to mask, all of one length, and the forms that are shorter."""
    runs: set[str] = set()
    forms: set[str] = set()
    for value in secrets | environment_values:
        passwords = list(_PASSWORD_IN_ADDRESS.finditer(value))
        for password in passwords:
            forms |= _list_forms(password[1])
            if value in secrets:
                runs |= _cut_runs(value, password.start(1), password.end(1))
        is_public_address = is_database_address(value) and "password=" not in value
        if value in secrets and not passwords and not is_public_address:
            forms |= _list_forms(value)
    long_forms = {form for form in forms if len(form) >= MIN_RUN_CHARS}
    runs.update(*(_cut_runs(form, 0, len(form)) for form in long_forms))
    short_forms = {form for form in forms - long_forms if len(form) >= MIN_SECRET_CHARS}
    # A longer form first: it may contain a shorter one.
    return frozenset(runs), sorted(short_forms, key=lambda form: (-len(form), form))


def _list_forms(secret: str) -> set[str]:
    """Return a secret as it is, and as the usual encodings write it."""
    if len(secret) < MIN_SECRET_CHARS:
        return set()
    data = secret.encode("utf-8", "surrogateescape")
    url_form = quote_from_bytes(data, safe="")
    json_form = json.dumps(secret)[1:-1]
    forms = {
        *(secret, url_form, quote_plus(data), data.hex(), data.hex().upper()),
        *(json_form, json_form.replace("/", "\\/"), json.dumps(secret, ensure_ascii=False)[1:-1]),
        re.sub("%..", lambda code: code[0].lower(), url_form),
    }
    for offset in range(3):
        # Without the characters at both ends that also depend on the bytes beside the secret.
        first = -(-offset * 4 // 3)
        last = (offset + len(data)) * 4 // 3
        text = base64.b64encode(bytes(offset) + data).decode()[first:last]
        forms |= {text, text.replace("+", "-").replace("/", "_")}
    return forms


def _cut_runs(text: str, start: int, end: int) -> set[str]:
    """Return the runs of a text that contain a character between two positions."""
    first = max(0, start - MIN_RUN_CHARS + 1)
    last = min(end, len(text) - MIN_RUN_CHARS + 1)
    return {text[at : at + MIN_RUN_CHARS] for at in range(first, last)}


def _mask_runs(text: str, runs: Set[str]) -> str:
    pieces: list[str] = []
    end = 0
    for at in range(len(text) - MIN_RUN_CHARS + 1):
        if text[at : at + MIN_RUN_CHARS] in runs:
            if at >= end:
                pieces += text[end:at], _MASK
            end = at + MIN_RUN_CHARS
    return "".join([*pieces, text[end:]])


def with_masked_errors(provider: Provider, mask: MaskSecrets) -> Provider:
    """Return the provider with errors that contain no secret."""
    return _MaskingProvider(provider, mask)


class _MaskingProvider:
    def __init__(self, provider: Provider, mask: MaskSecrets) -> None:
        self._provider = provider
        self._mask = mask

    @property
    def dialect(self) -> str:
        return self._provider.dialect

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        try:
            async with aclosing(cast("Any", self._provider.send(request))) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            message = self._mask(error.failure.message)
            if message == error.failure.message:
                raise
            # Without its cause, whose text has the secret as well.
            raise type(error)(replace(error.failure, message=message)) from None

    async def close(self) -> None:
        await self._provider.close()
