"""Clouds that serve the models of other makers: which API each has, and which variables it
needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.errors import MissingApiKeyError, MissingBaseUrlError
from trimtab.models.catalog import resolve_model_info
from trimtab.providers.base import Provider

DEFAULT_AZURE_API_VERSION = "2024-10-21"
"""The version of Azure's API for Chat Completions, unless one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """A caller's settings for a cloud. None is taken from the environment."""

    api_key: str | None = None
    """A key, or an access token."""
    base_url: str | None = None
    """Another endpoint than the cloud's own."""
    timeout: float = 600.0
    """Seconds without any data."""
    region: str | None = None
    """The region of Bedrock or Vertex."""
    project: str | None = None
    """The project of Vertex."""
    api_version: str | None = None
    """The API version of Azure."""


def create_cloud_provider(
    cloud: str, model: str, settings: CloudSettings, environ: Mapping[str, str]
) -> Provider:
    """Create the provider for a model at one of `CLOUD_NAMES`.

    Missing settings are taken from the environment, from the variables that the cloud's own tools
    read. Raises `MissingApiKeyError` or `MissingBaseUrlError` if something is missing, and
    `MissingSdkError` if a package is.
    """
    match cloud:
        case "bedrock":
            return _create_bedrock(model, settings, environ)
        case "azure" | "azure_responses":
            return _create_azure(cloud, model, settings, environ)
        case _:
            return _create_vertex(settings, environ)


def is_claude_on_bedrock(model: str) -> bool:
    """Whether a name at Bedrock says that the model is a Claude, which has its own API there.

    The ARN of a custom profile does not say; Converse serves all models.
    """
    return resolve_model_info(model).dialect == "anthropic"


def _create_bedrock(model: str, settings: CloudSettings, environ: Mapping[str, str]) -> Provider:
    from trimtab.providers.bedrock import BedrockClaudeProvider, find_aws_credentials
    from trimtab.providers.bedrock_converse import BedrockConverseProvider

    create = BedrockClaudeProvider if is_claude_on_bedrock(model) else BedrockConverseProvider
    return create(
        credentials=find_aws_credentials(environ, region=settings.region, api_key=settings.api_key),
        base_url=settings.base_url or environ.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        timeout=settings.timeout,
    )


def _create_azure(
    cloud: str, model: str, settings: CloudSettings, environ: Mapping[str, str]
) -> Provider:
    from trimtab.providers.azure import AzureOpenAIProvider, AzureResponsesProvider

    endpoint = settings.base_url or environ.get("AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        raise MissingBaseUrlError(
            "azure has no default address: set AZURE_OPENAI_ENDPOINT or give base_url, "
            "such as https://my-resource.openai.azure.com"
        )
    key = settings.api_key or environ.get("AZURE_OPENAI_API_KEY")
    token = None if key else environ.get("AZURE_OPENAI_AD_TOKEN")
    if not key and not token:
        raise MissingApiKeyError(
            f"no key for {model!r} at Azure: set AZURE_OPENAI_API_KEY (or AZURE_OPENAI_AD_TOKEN), "
            "or give api_key"
        )
    if cloud == "azure_responses":
        create = AzureResponsesProvider
        version = settings.api_version
    else:
        create = AzureOpenAIProvider
        version = settings.api_version or environ.get("OPENAI_API_VERSION")
        version = version or DEFAULT_AZURE_API_VERSION
    return create(
        endpoint=endpoint,
        api_key=key,
        ad_token=token,
        api_version=version,
        timeout=settings.timeout,
    )


def _create_vertex(settings: CloudSettings, environ: Mapping[str, str]) -> Provider:
    from trimtab.providers.vertex import VertexClaudeProvider

    region = settings.region or _read_first(environ, "CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION")
    if not region:
        raise MissingBaseUrlError(
            "no region for Vertex: set CLOUD_ML_REGION or give region, such as global or "
            "europe-west1"
        )
    variables = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
    project = settings.project or _read_first(environ, *variables)
    if not project:
        raise MissingApiKeyError(
            f"no project for Vertex: set {' or '.join(variables)}, or give project"
        )
    return VertexClaudeProvider(
        region=region,
        project=project,
        access_token=settings.api_key,
        base_url=settings.base_url or environ.get("ANTHROPIC_VERTEX_BASE_URL"),
        timeout=settings.timeout,
    )


def _read_first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
