from trimtab.agent.config.spec import ModelSpec
from trimtab.cli.chat.turn_errors import resolve_model_endpoint


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
