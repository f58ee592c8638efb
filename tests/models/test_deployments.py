"""A deployment of another name takes all rules of the model that it is said to be."""

import pytest

from trimtab import Context

HELLO = {"role": "user", "content": "hello"}


def ask(**options):
    context = Context("prod-eu", **options)
    context.add(HELLO)
    return context, context.request()


def test_the_request_carries_the_deployment_s_name_and_the_model_s_parameters():
    context, request = ask(model_info="gpt-5.2")
    assert request["model"] == "prod-eu"
    assert request["max_completion_tokens"] == 8_192
    assert "max_tokens" not in request
    assert context.window.settings.dialect == "openai_chat"
    assert context.window.counter.name.startswith("piecewise/o200k_base")
    assert context.report().limit == Context("gpt-5.2").report().limit


def test_a_model_that_only_responses_serves_is_called_there():
    _, request = ask(model_info="gpt-5.2-codex")
    assert (request["model"], request["max_output_tokens"]) == ("prod-eu", 8_192)


def test_reasoning_comes_back_from_a_deployment_that_reasons():
    _, request = ask(model_info="gpt-5.2", dialect="openai_responses")
    assert request["include"] == ["reasoning.encrypted_content"]
    _, plain = ask(model_info="gpt-4o", dialect="openai_responses")
    assert "include" not in plain


@pytest.mark.parametrize(("model", "marked"), [("gpt-6.1-sol", True), ("gpt-5.2", False)])
def test_cache_marks_follow_from_the_model(model, marked):
    context = Context("prod-eu", model_info=model, system="Be careful. " * 2_000)
    context.add(HELLO)
    assert ("prompt_cache_breakpoint" in str(context.request())) is marked


def test_thinking_is_written_as_the_model_takes_it():
    params = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    for model in ("claude-sonnet-4-5", "claude-opus-5-5"):
        context, request = ask(model_info=model, params=params)
        own = Context(model, params=params)
        own.add(HELLO)
        assert context.window.settings.dialect == "anthropic"
        assert request == {**own.request(), "model": "prod-eu"}


def test_an_output_that_the_model_cannot_write_is_refused():
    with pytest.raises(ValueError, match=r"prod-eu writes 128,000 at most"):
        Context("prod-eu", model_info="gpt-5.2", max_output_tokens=200_000)


def test_values_of_one_s_own_go_before_the_model_s():
    context, _ = ask(model_info={"base_model": "gpt-5.2", "context_window": 50_000})
    assert context.report().limit == 50_000


def test_what_it_is_is_in_the_log_and_holds_after_a_change():
    context, _ = ask(model_info="gpt-5.2", dialect="openai_responses")
    again = Context.load(context.dump())
    again.configure(system="Be brief.")
    request = again.request()
    assert (request["model"], request["include"]) == ("prod-eu", ["reasoning.encrypted_content"])
    again.configure(model="prod-us", dialect="openai_chat")
    assert again.request()["max_tokens"] == 8_192


def test_an_unknown_model_is_refused_with_what_may_be_meant():
    with pytest.raises(ValueError, match=r"model_info names 'gpt-52'.*did you mean"):
        Context("prod-eu", model_info="gpt-52")
    with pytest.raises(ValueError, match=r"`trimtab models` lists them"):
        Context("prod-eu", model_info="nonsense")
    with pytest.raises(TypeError, match="model_info"):
        Context("prod-eu", model_info=5)  # pyright: ignore[reportArgumentType]
