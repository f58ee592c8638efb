import sys

import pytest

from trimtab.providers.anthropic import Anthropic
from trimtab.providers.choose import MissingKey, provider_for
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
