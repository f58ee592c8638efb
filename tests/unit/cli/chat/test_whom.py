from trimtab.agent.spec import Model
from trimtab.cli.chat.whom import whom


def test_an_address_is_told_without_its_password():
    asked = whom(Model(name="gpt-5", base_url="https://me:hush@host:8443/v1?key=hush"), {})
    assert (asked.where, asked.own) == ("https://host:8443/v1", True)


def test_the_variable_that_holds_the_key_is_the_one_of_who_is_asked():
    assert whom(Model(name="claude-sonnet-4-5"), {}).key == "ANTHROPIC_API_KEY"
    assert whom(Model(name="qwen3", provider="groq"), {}).key == "GROQ_API_KEY"
    assert "api_key" in whom(Model(name="gpt-5", api_key="k"), {}).key


def test_where_nobody_answers_the_address_that_was_given_is_looked_at_first():
    elsewhere = whom(Model(name="gpt-5"), {"OPENAI_BASE_URL": "http://localhost:1/v1"})
    assert elsewhere.where == "http://localhost:1/v1"
    assert "OPENAI_BASE_URL" in elsewhere.check
    assert "connection" in whom(Model(name="gpt-5"), {}).check
