from functools import partial

from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab_serve.agent.config.spec import ModelSpec
from trimtab_serve.cli.chat import turn_errors
from trimtab_serve.cli.chat.turn_errors import resolve_model_endpoint


def test_an_address_is_told_without_its_password():
    asked = resolve_model_endpoint(
        ModelSpec(name="gpt-5", base_url="https://me:hush@host:8443/v1?key=hush"), {}
    )
    assert (asked.address, asked.is_user_address) == ("https://host:8443/v1", True)


def test_the_variable_that_holds_the_key_is_the_one_of_who_is_asked():
    assert (
        resolve_model_endpoint(ModelSpec(name="claude-sonnet-4-5"), {}).key_source
        == "ANTHROPIC_API_KEY"
    )
    assert (
        resolve_model_endpoint(ModelSpec(name="qwen3", provider="groq"), {}).key_source
        == "GROQ_API_KEY"
    )
    assert "api_key" in resolve_model_endpoint(ModelSpec(name="gpt-5", api_key="k"), {}).key_source


def test_where_nobody_answers_the_address_that_was_given_is_looked_at_first():
    elsewhere = resolve_model_endpoint(
        ModelSpec(name="gpt-5"), {"OPENAI_BASE_URL": "http://localhost:1/v1"}
    )
    assert elsewhere.address == "http://localhost:1/v1"
    assert "OPENAI_BASE_URL" in elsewhere.connection_hint
    assert "connection" in resolve_model_endpoint(ModelSpec(name="gpt-5"), {}).connection_hint


def test_a_provider_without_an_address_is_named_once():
    asked = resolve_model_endpoint(ModelSpec(name="claude-sonnet-4-5"), {})
    assert asked.unreachable_text == "The provider (anthropic) cannot be reached"
    groq = resolve_model_endpoint(ModelSpec(name="qwen3", provider="groq"), {})
    assert groq.unreachable_text == (
        "The provider cannot be reached at https://api.groq.com/openai/v1"
    )


def test_a_connection_that_fails_is_told_with_the_provider_s_name(monkeypatch):
    monkeypatch.setattr(
        turn_errors, "resolve_model_endpoint", partial(resolve_model_endpoint, environ={})
    )
    failure = ProviderFailureDetails(kind="network", message="Connection error.")
    trouble = turn_errors.describe_turn_error(
        ProviderError(failure), ModelSpec(name="claude-sonnet-4-5")
    )
    assert trouble is not None
    assert trouble.text == "The provider (anthropic) cannot be reached: Connection error."
