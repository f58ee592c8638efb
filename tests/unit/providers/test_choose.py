import re
import sys
from typing import get_args

import pytest

from trimtab.providers.anthropic import Anthropic
from trimtab.providers.choose import (
    PROVIDERS,
    MissingAddress,
    MissingKey,
    ProviderName,
    provider_for,
)
from trimtab.providers.exchange import MissingSDK
from trimtab.providers.openai import OpenAIChat, OpenAIResponses

CLAUDE = "claude-sonnet-4-5"


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def address(provider) -> tuple[str, str | None]:
    client = provider._client if isinstance(provider, Anthropic) else provider._line.client
    return str(client.base_url).rstrip("/"), client.api_key


@pytest.mark.parametrize(
    ("model", "environ", "kind", "url", "key"),
    [
        (CLAUDE, {"ANTHROPIC_API_KEY": "a"}, Anthropic, "https://api.anthropic.com", "a"),
        (
            CLAUDE,
            {"ANTHROPIC_API_KEY": "a", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
            Anthropic,
            "http://127.0.0.1:1",
            "a",
        ),
        ("gpt-4o", {"OPENAI_API_KEY": "o"}, OpenAIChat, "https://api.openai.com/v1", "o"),
        ("o3", {"OPENAI_API_KEY": "o"}, OpenAIChat, "https://api.openai.com/v1", "o"),
        (
            "deepseek-chat",
            {"OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": "d"},
            OpenAIChat,
            "https://api.deepseek.com",
            "d",
        ),
        ("grok-4", {"XAI_API_KEY": "x"}, OpenAIChat, "https://api.x.ai/v1", "x"),
        (
            "my-own",
            {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"},
            OpenAIChat,
            "http://127.0.0.1:8000/v1",
            "unused",
        ),
        (
            "qwen3:8b",
            {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "OPENAI_API_KEY": "o"},
            OpenAIChat,
            "http://127.0.0.1:8000/v1",
            "o",
        ),
    ],
)
def test_the_provider_follows_from_the_models_name_and_the_environment(
    model, environ, kind, url, key
):
    provider = provider_for(model, environ=environ)
    assert type(provider) is kind
    assert address(provider) == (url, key)


def test_what_is_given_comes_before_the_environment():
    environ = {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    provider = provider_for(
        "gpt-4o", api_key="k", base_url="http://127.0.0.1:2/v1", environ=environ
    )
    assert address(provider) == ("http://127.0.0.1:2/v1", "k")


def test_the_responses_api_is_taken_where_it_is_asked_for():
    provider = provider_for("gpt-5", dialect="openai_responses", api_key="k", environ={})
    assert type(provider) is OpenAIResponses
    assert provider.dialect == "openai_responses"


@pytest.mark.parametrize("provider", [None, "openai"])
def test_the_responses_api_is_taken_for_models_that_no_other_serves(provider):
    made = provider_for("gpt-5-pro", provider=provider, api_key="k", environ={})
    assert type(made) is OpenAIResponses
    assert (
        type(provider_for("o3-pro", provider="openrouter", api_key="k", environ={})) is OpenAIChat
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
    with pytest.raises(MissingKey, match=f"no key for '{model}': set {variable}, or give api_key"):
        provider_for(model, environ={})


@pytest.mark.parametrize(
    ("provider", "kind", "url", "key"),
    [
        ("anthropic", Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("openai", OpenAIChat, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("openai_responses", OpenAIResponses, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("ollama", OpenAIChat, "http://localhost:11434/v1", None),
        ("openrouter", OpenAIChat, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("deepseek", OpenAIChat, "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        (
            "gemini",
            OpenAIChat,
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "GEMINI_API_KEY",
        ),
        ("groq", OpenAIChat, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ("mistral", OpenAIChat, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        ("xai", OpenAIChat, "https://api.x.ai/v1", "XAI_API_KEY"),
    ],
)
def test_a_named_provider_is_asked_at_its_own_address_with_its_own_key(provider, kind, url, key):
    environ = {server.key: server.key for server in PROVIDERS.values() if server.key}
    found = provider_for("some-model", provider=provider, environ=environ)
    assert type(found) is kind
    assert address(found) == (url, key or "unused")


@pytest.mark.parametrize("provider", ["deepseek", "ollama", "openrouter"])
def test_the_address_of_openai_is_nobody_elses(provider):
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", f"{provider.upper()}_API_KEY": "k"}
    found = provider_for("some-model", provider=provider, environ=environ)
    assert address(found)[0] == PROVIDERS[provider].url


def test_a_provider_may_be_at_another_address_without_a_key():
    found = provider_for(
        "claude-x", provider="anthropic", base_url="http://127.0.0.1:1", environ={}
    )
    assert (type(found), address(found)) == (Anthropic, ("http://127.0.0.1:1", "unused"))


@pytest.mark.parametrize(("provider", "port"), [("vllm", 8000), ("llama.cpp", 8080)])
def test_a_server_of_ones_own_must_say_where_it_is(provider, port):
    said = f"{provider} runs at an address of your own: give base_url, such as http://localhost:{port}/v1"
    with pytest.raises(MissingAddress, match=re.escape(said)):
        provider_for("some-model", provider=provider, environ={})
    there = provider_for("some-model", provider=provider, base_url="http://gpu:1/v1", environ={})
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
        provider_for("some-model", provider=provider, environ={})


def test_the_names_of_providers_are_those_of_the_table():
    assert set(get_args(ProviderName)) == set(PROVIDERS)


def test_a_key_is_not_sent_to_another_maker_in_another_dialect():
    with pytest.raises(MissingAddress, match="it is not known who serves 'claude-sonnet-4-5'"):
        provider_for(CLAUDE, dialect="openai_chat", environ={"ANTHROPIC_API_KEY": "a"})


def test_a_model_of_nobody_known_asks_for_an_address():
    with pytest.raises(MissingKey, match="set OPENAI_BASE_URL or give base_url"):
        provider_for("vendor/unheard-of", environ={"OPENAI_API_KEY": "o"})


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="no dialect is called 'morse'"):
        provider_for("gpt-4o", dialect="morse", api_key="k", environ={})


@pytest.mark.parametrize(("name", "kind"), [("anthropic", Anthropic), ("openai", OpenAIChat)])
def test_a_missing_sdk_says_how_to_install_it(name, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingSDK, match=rf"pip install 'trimtab\[{name}\]'"):
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
    told = provider_for(model, environ={**keys, variable: "X-Gateway: one:two\n\nX-Team : 7"})
    assert isinstance(told, Anthropic | OpenAIChat)
    client = told._client if isinstance(told, Anthropic) else told._line.client
    sent = {name.lower(): value for name, value in client.default_headers.items()}
    assert (sent["x-gateway"], sent["x-team"]) == ("one:two", "7")
