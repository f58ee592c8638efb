import re
import sys
from typing import get_args

import pytest

from trimtab.errors import MissingApiKeyError, MissingBaseUrlError, MissingSdkError
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.factory import ENDPOINT_BY_PROVIDER, ProviderName, create_provider
from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider

CLAUDE = "claude-sonnet-4-5"


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def address(provider) -> tuple[str, str | None]:
    client = provider._client if isinstance(provider, AnthropicProvider) else provider._line.client
    return str(client.base_url).rstrip("/"), client.api_key


@pytest.mark.parametrize(
    ("model", "environ", "kind", "url", "key"),
    [
        (CLAUDE, {"ANTHROPIC_API_KEY": "a"}, AnthropicProvider, "https://api.anthropic.com", "a"),
        (
            CLAUDE,
            {"ANTHROPIC_API_KEY": "a", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
            AnthropicProvider,
            "http://127.0.0.1:1",
            "a",
        ),
        ("gpt-4o", {"OPENAI_API_KEY": "o"}, OpenAIChatProvider, "https://api.openai.com/v1", "o"),
        ("o3", {"OPENAI_API_KEY": "o"}, OpenAIChatProvider, "https://api.openai.com/v1", "o"),
        (
            "deepseek-chat",
            {"OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": "d"},
            OpenAIChatProvider,
            "https://api.deepseek.com",
            "d",
        ),
        ("grok-4", {"XAI_API_KEY": "x"}, OpenAIChatProvider, "https://api.x.ai/v1", "x"),
        (
            "my-own",
            {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"},
            OpenAIChatProvider,
            "http://127.0.0.1:8000/v1",
            "unused",
        ),
        (
            "qwen3:8b",
            {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "OPENAI_API_KEY": "o"},
            OpenAIChatProvider,
            "http://127.0.0.1:8000/v1",
            "o",
        ),
    ],
)
def test_the_provider_follows_from_the_models_name_and_the_environment(
    model, environ, kind, url, key
):
    provider = create_provider(model, environ=environ)
    assert type(provider) is kind
    assert address(provider) == (url, key)


def test_what_is_given_comes_before_the_environment():
    environ = {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    provider = create_provider(
        "gpt-4o", api_key="k", base_url="http://127.0.0.1:2/v1", environ=environ
    )
    assert address(provider) == ("http://127.0.0.1:2/v1", "k")


def test_the_responses_api_is_taken_where_it_is_asked_for():
    provider = create_provider("gpt-5", dialect="openai_responses", api_key="k", environ={})
    assert type(provider) is OpenAIResponsesProvider
    assert provider.dialect == "openai_responses"


@pytest.mark.parametrize("provider", [None, "openai"])
def test_the_responses_api_is_taken_for_models_that_no_other_serves(provider):
    made = create_provider("gpt-5-pro", provider=provider, api_key="k", environ={})
    assert type(made) is OpenAIResponsesProvider
    assert (
        type(create_provider("o3-pro", provider="openrouter", api_key="k", environ={}))
        is OpenAIChatProvider
    )


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        (CLAUDE, "ANTHROPIC_API_KEY"),
        ("gpt-4o", "OPENAI_API_KEY"),
        ("gemini-2.5-pro", "GEMINI_API_KEY"),
        ("mistral-large-2512", "MISTRAL_API_KEY"),
    ],
)
def test_a_missing_key_is_named(model, variable):
    with pytest.raises(
        MissingApiKeyError, match=f"no key for '{model}': set {variable}, or give api_key"
    ):
        create_provider(model, environ={})


@pytest.mark.parametrize(
    ("provider", "kind", "url", "key"),
    [
        ("anthropic", AnthropicProvider, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("openai", OpenAIChatProvider, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        (
            "openai_responses",
            OpenAIResponsesProvider,
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
        ),
        ("ollama", OpenAIChatProvider, "http://localhost:11434/v1", None),
        ("openrouter", OpenAIChatProvider, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("deepseek", OpenAIChatProvider, "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        (
            "gemini",
            OpenAIChatProvider,
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "GEMINI_API_KEY",
        ),
        ("groq", OpenAIChatProvider, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ("mistral", OpenAIChatProvider, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        ("xai", OpenAIChatProvider, "https://api.x.ai/v1", "XAI_API_KEY"),
    ],
)
def test_a_named_provider_is_asked_at_its_own_address_with_its_own_key(provider, kind, url, key):
    environ = {
        server.key_variable: server.key_variable
        for server in ENDPOINT_BY_PROVIDER.values()
        if server.key_variable
    }
    found = create_provider("some-model", provider=provider, environ=environ)
    assert type(found) is kind
    assert address(found) == (url, key or "unused")


@pytest.mark.parametrize("provider", ["deepseek", "ollama", "openrouter"])
def test_the_address_of_openai_is_nobody_elses(provider):
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", f"{provider.upper()}_API_KEY": "k"}
    found = create_provider("some-model", provider=provider, environ=environ)
    assert address(found)[0] == ENDPOINT_BY_PROVIDER[provider].base_url


def test_a_provider_may_be_at_another_address_without_a_key():
    found = create_provider(
        "claude-x", provider="anthropic", base_url="http://127.0.0.1:1", environ={}
    )
    assert (type(found), address(found)) == (AnthropicProvider, ("http://127.0.0.1:1", "unused"))


@pytest.mark.parametrize(("provider", "port"), [("vllm", 8000), ("llama.cpp", 8080)])
def test_a_server_of_ones_own_must_say_where_it_is(provider, port):
    said = f"{provider} runs at an address of your own: give base_url, such as http://localhost:{port}/v1"
    with pytest.raises(MissingBaseUrlError, match=re.escape(said)):
        create_provider("some-model", provider=provider, environ={})
    there = create_provider("some-model", provider=provider, base_url="http://gpu:1/v1", environ={})
    assert address(there) == ("http://gpu:1/v1", "unused")


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (
            "antropic",
            "no provider is called 'antropic'; did you mean anthropic? Choose one of anth",
        ),
        ("claude", "did you mean anthropic?"),
        ("google", "did you mean gemini?"),
        ("Grok", "did you mean xai?"),
        ("llamacpp", "did you mean llama.cpp?"),
        ("abacus", "no provider is called 'abacus'; choose one of anthropic, openai, openai_"),
    ],
)
def test_an_unknown_provider_is_refused_with_the_choices(provider, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        create_provider("some-model", provider=provider, environ={})


def test_the_names_of_providers_are_those_of_the_table():
    assert set(get_args(ProviderName)) == set(ENDPOINT_BY_PROVIDER)


def test_a_key_is_not_sent_to_another_maker_in_another_dialect():
    with pytest.raises(MissingBaseUrlError, match="it is not known who serves 'claude-sonnet-4-5'"):
        create_provider(CLAUDE, dialect="openai_chat", environ={"ANTHROPIC_API_KEY": "a"})


def test_a_model_of_nobody_known_asks_for_an_address():
    with pytest.raises(MissingApiKeyError, match="set OPENAI_BASE_URL or give base_url"):
        create_provider("vendor/unheard-of", environ={"OPENAI_API_KEY": "o"})


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="no dialect is called 'morse'"):
        create_provider("gpt-4o", dialect="morse", api_key="k", environ={})


@pytest.mark.parametrize(
    ("name", "kind"), [("anthropic", AnthropicProvider), ("openai", OpenAIChatProvider)]
)
def test_a_missing_sdk_says_how_to_install_it(name, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingSdkError, match=rf"pip install 'trimtab\[{name}\]'"):
        kind(api_key="k")


@pytest.mark.parametrize(
    ("model", "variable"),
    [(CLAUDE, "ANTHROPIC_CUSTOM_HEADERS"), ("gpt-4o", "OPENAI_CUSTOM_HEADERS")],
)
def test_headers_of_the_environment_are_sent_though_the_sdk_does_not_see_it(
    model, variable, monkeypatch
):
    monkeypatch.delenv(variable, raising=False)
    keys = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    told = create_provider(model, environ={**keys, variable: "X-Gateway: one:two\n\nX-Team : 7"})
    assert isinstance(told, AnthropicProvider | OpenAIChatProvider)
    client = told._client if isinstance(told, AnthropicProvider) else told._line.client
    sent = {name.lower(): value for name, value in client.default_headers.items()}
    assert (sent["x-gateway"], sent["x-team"]) == ("one:two", "7")
