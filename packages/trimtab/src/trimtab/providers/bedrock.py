"""Claude at Amazon Bedrock, through the Bedrock client of Anthropic's SDK; AWS credentials."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trimtab.errors import (
    MissingApiKeyError,
    MissingBaseUrlError,
    MissingSdkError,
    ProviderError,
    ProviderFailureDetails,
)
from trimtab.providers.anthropic import create_messages_sender
from trimtab.providers.loop_clients import LoopClients

if TYPE_CHECKING:
    from anthropic.lib.bedrock import AsyncAnthropicBedrock

BEDROCK_ANTHROPIC_VERSION = "bedrock-2023-05-31"
"""Every Claude at Bedrock accepts this version. Models before Claude 4.7 reject the SDK's own since
its version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """AWS credentials and region for Amazon Bedrock."""

    region: str
    """The region, such as `eu-central-1`."""
    source: str
    """A description of the place of the credentials."""
    api_key: str | None = field(default=None, repr=False)
    """A Bedrock API key, instead of everything else."""
    access_key: str | None = None
    """The id of an access key; None if boto3 finds it."""
    secret_key: str | None = field(default=None, repr=False)
    """The secret of that key."""
    session_token: str | None = field(default=None, repr=False)
    """The session token of temporary credentials."""
    session: Any = field(default=None, repr=False)
    """The boto3 session that found the credentials and renews them; None if they are named here."""


def find_aws_credentials(
    environ: Mapping[str, str], *, region: str | None = None, api_key: str | None = None
) -> AwsCredentials:
    """Find credentials and region: in the variables of AWS, otherwise as boto3 finds them.

    boto3 looks into the files in `~/.aws`, SSO, and the role of a container or a machine. Raises
    `MissingSdkError` without boto3, `MissingBaseUrlError` without a region and `MissingApiKeyError`
    without credentials.
    """
    if find_spec("boto3") is None:
        raise MissingSdkError("bedrock")
    where = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    where = where or _ask_boto3(environ).region_name
    if not where:
        raise MissingBaseUrlError(
            "no AWS region: set AWS_REGION or give region, such as eu-central-1"
        )
    if token := api_key or environ.get("AWS_BEARER_TOKEN_BEDROCK"):
        source = "api_key" if api_key else "AWS_BEARER_TOKEN_BEDROCK"
        return AwsCredentials(region=where, source=source, api_key=token)
    access = environ.get("AWS_ACCESS_KEY_ID")
    secret = environ.get("AWS_SECRET_ACCESS_KEY")
    if access and secret:
        return AwsCredentials(
            region=where,
            source="AWS_ACCESS_KEY_ID",
            access_key=access,
            secret_key=secret,
            session_token=environ.get("AWS_SESSION_TOKEN") or None,
        )
    session = _ask_boto3(environ, region=where)
    keys = session.get_credentials()
    if keys is None:
        raise MissingApiKeyError(
            "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
            "or AWS_BEARER_TOKEN_BEDROCK, or run `aws configure`"
        )
    source = f"boto3 ({session.profile_name}, {keys.method})"
    return AwsCredentials(region=where, source=source, session=session)


def import_aws_module(name: str) -> Any:
    """Import a module of boto3 or botocore, which have no types; raise `MissingSdkError` without
    it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingSdkError("bedrock") from error


def _ask_boto3(environ: Mapping[str, str], *, region: str | None = None) -> Any:
    """Create a boto3 session that has looked for credentials.

    This takes a tenth of a second or more, and most environments do not need it.
    """
    aws = import_aws_module("boto3")
    with _shown_to_boto3(environ):
        try:
            session = aws.Session(profile_name=environ.get("AWS_PROFILE"), region_name=region)
            session.get_credentials()
        except import_aws_module("botocore.exceptions").BotoCoreError as error:
            raise MissingApiKeyError(f"no AWS credentials: {error}") from error
    return session


@contextmanager
def _shown_to_boto3(environ: Mapping[str, str]) -> Generator[None]:
    """Show boto3 the withheld variables while it looks for credentials.

    It reads only `os.environ`.
    """
    missing = {
        name: value
        for name, value in environ.items()
        if name.startswith("AWS_") and name not in os.environ
    }
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


class BedrockClaudeProvider:
    """Sends requests of the `anthropic` dialect to Claude at Amazon Bedrock.

    The SDK's own retries are off. It may be used in several event loops.

    Args:
        client: Your own client. It is used as you configured it, in one event loop, and `close`
            leaves it open.
        credentials: Credentials and region. None looks for them in the environment.
        base_url: Another endpoint than that of the region.
        timeout: Seconds without any data, not for the whole reply.

    Raises:
        MissingApiKeyError: If no credentials, or no region, are found.
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "anthropic"

    def __init__(
        self,
        client: AsyncAnthropicBedrock | None = None,
        *,
        credentials: AwsCredentials | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        try:
            from anthropic import DefaultAsyncHttpxClient
            from anthropic.lib.bedrock import AsyncAnthropicBedrock
        except ModuleNotFoundError as error:
            raise MissingSdkError("bedrock") from error
        self._aws_errors: Any = import_aws_module("botocore.exceptions").BotoCoreError
        self._frame_errors: Any = import_aws_module("botocore.eventstream").ParserError
        if client is None and credentials is None:
            credentials = find_aws_credentials(os.environ)
        aws = None if client is not None else credentials
        self._session: Any = aws and aws.session
        self.credential_source = credentials.source if credentials else ""

        def create() -> AsyncAnthropicBedrock:
            assert aws is not None  # noqa: S101 - only a client of the caller's needs none
            return AsyncAnthropicBedrock(
                api_key=aws.api_key,
                aws_access_key=aws.access_key,
                aws_secret_key=aws.secret_key,
                aws_session_token=aws.session_token,
                aws_region=aws.region,
                base_url=base_url,
                timeout=timeout,
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(timeout=timeout),
            )

        self._clients = LoopClients[Any](create, client and client.with_options(max_retries=0))
        self._keys: tuple[str, str, str] | None = None
        self._exchange = create_messages_sender(self._get_signing_client)

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        body = {"anthropic_version": BEDROCK_ANTHROPIC_VERSION, **request.get("extra_body", {})}
        try:
            await self._renew_keys()
            async for event in self._exchange.send({**request, "extra_body": body}):
                yield event
        except self._frame_errors as error:
            words = f"an unreadable reply: {error}"
            raise ProviderError(ProviderFailureDetails(kind="server", message=words)) from error
        except (self._aws_errors, RuntimeError) as error:
            # The SDK signs each request, for which it looks for credentials.
            if isinstance(error, RuntimeError) and "credentials" not in str(error):
                raise
            raise ProviderError(ProviderFailureDetails(kind="auth", message=str(error))) from error

    async def _renew_keys(self) -> None:
        """Renew the keys if they expire soon; the session may call a server for that."""
        if self._session is None:
            return
        frozen_keys = await asyncio.to_thread(
            self._session.get_credentials().get_frozen_credentials
        )
        self._keys = (frozen_keys.access_key, frozen_keys.secret_key, frozen_keys.token)

    def _get_signing_client(self) -> Any:
        client = self._clients.get()
        if self._keys is None:
            return client
        access_key, secret_key, token = self._keys
        return client.with_options(
            aws_access_key=access_key, aws_secret_key=secret_key, aws_session_token=token
        )

    async def close(self) -> None:
        """See `Provider`."""
        await self._clients.close()
