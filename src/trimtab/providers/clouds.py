"""Clouds that serve the models of others: which one is asked how, with what of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.catalog import resolve_model_info
from trimtab.errors import MissingApiKeyError, MissingBaseUrlError
from trimtab.providers.protocol_and_failures import Provider

DEFAULT_AZURE_API_VERSION = "2024-10-21"
"""The version of Azure's API in which Chat Completions are asked for unless one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """What a caller says about a cloud; None is left to the environment."""

    api_key: str | None = None
    """A key, or an access token."""
    base_url: str | None = None
    """An endpoint other than the cloud's own."""
    timeout: float = 600.0
    """Seconds without a sign of life."""
    region: str | None = None
    """Of Bedrock or Vertex."""
    project: str | None = None
    """Of Vertex."""
    api_version: str | None = None
    """Of Azure."""


def create_cloud_provider(
    cloud: str, model: str, settings: CloudSettings, environ: Mapping[str, str]
) -> Provider:
    """Create the provider for a model at one of CLOUD_NAMES.

    What the settings leave out is taken from the environment, by the variables that the cloud's own
    tools read. Raises MissingApiKeyError or MissingBaseUrlError if something is missing, and
    MissingSdkError if a package is.
    """
    match cloud:
        case "bedrock":
            return _create_bedrock(model, settings, environ)
        case "azure" | "azure_responses":
            return _create_azure(cloud, model, settings, environ)
        case _:
            return _create_vertex(settings, environ)


def is_claude_on_bedrock(model: str) -> bool:
    """Whether a name at Bedrock tells that the model is a Claude, which has an API of its own
    there. The ARN of a profile of one's own does not tell; Converse serves all models."""
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
            "azure runs at an address of your own: set AZURE_OPENAI_ENDPOINT or give base_url, "
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
        create, version = AzureResponsesProvider, settings.api_version
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
