"""Other models at Amazon Bedrock (Nova, Llama, Mistral, …), through boto3's Converse."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from json import JSONDecodeError
from typing import Any

from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.base import STREAM_CUT_SHORT
from trimtab.providers.bedrock import (
    AwsCredentials,
    find_aws_credentials,
    import_aws_module,
)
from trimtab.providers.converse_format import (
    ConverseStreamParser,
    build_converse_request,
    parse_converse_reply,
    split_into_events,
)
from trimtab.providers.error_parser import parse_error_response

CONNECT_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 50
"""How many calls of one provider may run at the same time."""
_NOT_STREAMED = re.compile(r"(?:doesn't|does not|not) support\b.{0,40}\bstream", re.IGNORECASE)
"""Llama and others do not stream while they have tools, and some models never stream."""


class BedrockConverseProvider:
    """Sends requests of the `anthropic` dialect to any model at Bedrock that Converse serves.

    boto3 is not asynchronous, so each call, and each wait for an event of a stream, runs in a
    thread. Nothing is retried.

    Args:
        client: Your own `bedrock-runtime` client. It is used as you configured it.
        credentials: Credentials and region. None looks for them in the environment.
        base_url: Another endpoint than that of the region.
        timeout: Seconds without any data, not for the whole reply.

    Raises:
        MissingApiKeyError: If no credentials, or no region, are found.
        MissingSdkError: If boto3 is not installed.
    """

    dialect = "anthropic"

    def __init__(
        self,
        client: Any = None,
        *,
        credentials: AwsCredentials | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        self._errors = import_aws_module("botocore.exceptions")
        self._http_errors = import_aws_module("urllib3.exceptions")
        self._unreadable: Any = (
            import_aws_module("botocore.eventstream").ParserError,
            import_aws_module("botocore.parsers").ResponseParserError,
            JSONDecodeError,
            UnicodeDecodeError,
        )
        self._own: Any = None
        self._not_streamed: set[tuple[str, bool]] = set()
        self.credential_source = credentials.source if credentials else ""
        if client is None:
            client = self._own = _create_client(credentials, base_url, timeout)
        self._client: Any = client

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        converse_request = build_converse_request(request)
        model = str(request["model"])
        if not request.get("stream"):
            answer = await self._call(
                partial(self._client.converse, **converse_request), began=False
            )
            yield _parse_whole_reply(answer, model)
            return
        answer = await self._start_stream(converse_request)
        events: Any = answer["stream"] if "stream" in answer else split_into_events(answer)
        request_id = answer["ResponseMetadata"].get("RequestId", "bedrock")
        parser = ConverseStreamParser(model, f"msg_{request_id}")
        try:
            remaining: Iterator[Mapping[str, Any]] = iter(events)
            while (event := await self._next_event(remaining, ended=parser.ended)) is not None:
                for wire in parser.feed(event):
                    yield wire
        finally:
            _close_stream(events)
        if not parser.ended:
            raise ProviderError(STREAM_CUT_SHORT)
        for wire in parser.finish():
            yield wire

    async def _start_stream(self, asked: Mapping[str, Any]) -> Any:
        """Start the stream.

        If the model does not stream, or not with tools, return its whole reply. That is tried once
        for each model.
        """
        kind = (asked["modelId"], "toolConfig" in asked)
        if kind not in self._not_streamed:
            try:
                return await self._call(partial(self._client.converse_stream, **asked), began=False)
            except ProviderError as error:
                if not _NOT_STREAMED.search(error.failure.message):
                    raise
                self._not_streamed.add(kind)
        answer = await self._call(partial(self._client.converse, **asked), began=False)
        _parse_whole_reply(answer, asked["modelId"])
        return answer

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            self._own.close()

    async def _next_event(
        self, events: Iterator[Mapping[str, Any]], *, ended: bool
    ) -> Mapping[str, Any] | None:
        try:
            return await self._call(partial(next, events, None), began=True)
        except ProviderError as error:
            # What breaks after the last event has cost nothing of the reply.
            if ended and error.failure.kind in ("server", "network", "timeout"):
                return None
            raise

    async def _call(self, function: Callable[[], Any], *, began: bool) -> Any:
        """Call a function in a thread, and raise the errors of boto3 as `ProviderError`."""
        try:
            return await asyncio.to_thread(function)
        except Exception as error:
            if (failure := self._classify_error(error, began=began)) is None:
                raise
            raise ProviderError(failure) from error

    def _classify_error(self, error: Exception, *, began: bool) -> ProviderFailureDetails | None:
        boto_errors = self._errors
        http = self._http_errors
        words = str(error)
        if isinstance(error, boto_errors.ClientError):
            return _read_client_error(error, began=began)
        if isinstance(
            error,
            boto_errors.ReadTimeoutError | boto_errors.ConnectTimeoutError | http.TimeoutError,
        ):
            return ProviderFailureDetails(kind="timeout", message=words)
        connection_errors = (
            boto_errors.ConnectionError,
            boto_errors.HTTPClientError,
            http.HTTPError,
            OSError,
        )
        if isinstance(error, connection_errors):
            return ProviderFailureDetails(kind="server" if began else "network", message=words)
        if isinstance(error, self._unreadable):
            return ProviderFailureDetails(kind="server", message=f"an unreadable reply: {words}")
        if isinstance(error, boto_errors.ParamValidationError):
            return ProviderFailureDetails(kind="refused", message=words)
        if isinstance(error, boto_errors.BotoCoreError):
            # All others are about credentials: none, an unknown profile, a deleted role.
            return ProviderFailureDetails(kind="auth", message=words)
        return None


def _parse_whole_reply(answer: Mapping[str, Any], model: str) -> dict[str, Any]:
    try:
        return parse_converse_reply(answer, model)
    except (KeyError, TypeError) as error:
        fields = ", ".join(answer) or "{}"
        words = f"the reply does not have the form of Converse: its fields are {fields}"
        raise ProviderError(ProviderFailureDetails(kind="server", message=words)) from error


def _close_stream(stream: Any) -> None:
    """Close the stream, even if a thread still waits for its next event."""
    raw: Any = getattr(stream, "_raw_stream", None)
    if (shutdown := getattr(raw, "shutdown", None)) is not None:
        # Closing alone would wait for that thread, and it for the server.
        with suppress(OSError, RuntimeError, ValueError):
            shutdown()
    stream.close()


def _create_client(credentials: AwsCredentials | None, base_url: str | None, timeout: float) -> Any:
    if credentials is None:
        credentials = find_aws_credentials(os.environ)
    key = credentials.api_key
    config = import_aws_module("botocore.config").Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=timeout,
        max_pool_connections=MAX_CONNECTIONS,
        retries={"total_max_attempts": 1},
        **({"signature_version": import_aws_module("botocore").UNSIGNED} if key else {}),
    )
    session = credentials.session or import_aws_module("boto3").Session(
        region_name=credentials.region,
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        aws_session_token=credentials.session_token,
    )
    client: Any = session.client("bedrock-runtime", endpoint_url=base_url, config=config)
    if key:

        def add_key(request: Any, **_: Any) -> None:
            request.headers["Authorization"] = f"Bearer {key}"

        client.meta.events.register("before-sign.bedrock-runtime.*", add_key)
    return client


def _read_client_error(error: Any, *, began: bool) -> ProviderFailureDetails:
    response: Mapping[str, Any] = error.response
    metadata: Mapping[str, Any] = response.get("ResponseMetadata") or {}
    body = {"type": response["Error"].get("Code"), "message": response["Error"].get("Message")}
    status = None if began else metadata.get("HTTPStatusCode")
    return parse_error_response(status, body, headers=metadata.get("HTTPHeaders"))
