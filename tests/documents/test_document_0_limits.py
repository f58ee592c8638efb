"""Document 0, Context Window Management: the model's window, and the agent's file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.documents.product import Talk, accepts_the_file, examined, file_format, limit_of

WINDOWS = {
    "claude": 200_000,
    "gpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gemini": 1_000_000,
    "grok": 131_072,
    "deepseek-v3": 163_840,
    "deepseek": 128_000,
    "qwen3": 131_072,
    "qwen": 128_000,
    "llama-4": 327_680,
    "llama": 128_000,
    "mistral-large": 262_144,
    "mistral": 128_000,
    "mixtral": 128_000,
    "anything-else": 128_000,
}
"""The document's table, without the models for which another figure is stated on purpose."""

EXAMPLE = """\
model:
  provider: anthropic
  name: claude-sonnet-4-20250514
  max_input_tokens: 150000   # optional, see defaults below
  max_output_tokens: 8192
session:
  on_disconnect: pause
  max_tool_iterations: 25
  context:
    max_history_tokens: 20000       # Layer 2
    max_tool_result_tokens: 8000    # Layer 3a
    tool_result_truncation: head    # Layer 3a: head, tail, or both
    tool_result_keep_first: 2       # Layer 3b
    tool_result_keep_last: 5        # Layer 3b
"""


def test_a_model_nobody_has_looked_up_gets_the_window_of_its_name():
    found = {name: limit_of(f"house/{name}-zz") for name in WINDOWS}
    assert found == WINDOWS


def test_the_names_of_the_table_themselves_get_its_windows():
    found = {name: limit_of(name) for name in WINDOWS}
    assert found == WINDOWS


def test_gpt_5_has_a_window_of_400000_of_which_272000_are_input():
    assert limit_of("gpt-5", output=128_000) == 400_000
    assert limit_of("gpt-5", output=8_000) == 272_000 + 8_000


def test_gpt_4_1_has_a_million_tokens_or_its_makers_exact_figure():
    assert limit_of("gpt-4.1") in (1_000_000, 1_047_576)


def test_grok_4_has_its_makers_window_and_grok_4_fast_2000000():
    assert limit_of("grok-4") in (2_000_000, 256_000)
    assert limit_of("grok-4-fast") == 2_000_000


def test_gpt_4_has_its_makers_window_of_8192():
    assert limit_of("gpt-4") == 8_192
    assert limit_of("house/gpt-4-zz") == 8_192


def test_deepseek_chat_v3_has_163840_tokens():
    names = ("deepseek-chat-v3", "deepseek/deepseek-chat-v3-0324", "house/deepseek-chat-v3-zz")
    assert {name: limit_of(name) for name in names} == dict.fromkeys(names, 163_840)


def test_a_llama_4_has_327680_tokens_or_what_its_maker_says_above_that():
    names = ("llama-4", "meta-llama/llama-4-maverick", "meta-llama/llama-4-scout")
    found = {name: limit_of(name) for name in names}
    assert all(limit >= 327_680 for limit in found.values()), found


def test_a_name_matches_wherever_it_stands_and_however_it_is_written():
    for name, window in WINDOWS.items():
        assert limit_of(f"Some.Host/{name.upper()}-Custom") == window, name


def test_max_input_tokens_caps_a_known_window_and_raises_an_unknown_one():
    assert limit_of("claude-zz", limit=150_000) == 150_000
    assert limit_of("house-model", limit=500_000) == 500_000


def test_max_output_tokens_is_asked_for_and_kept_free():
    talk = Talk("claude-zz", output=5_000)
    talk.user("Hello")
    assert talk.request()["max_tokens"] == 5_000
    assert talk.budget["output"] == 5_000
    assert Talk("claude-zz", output=6_000).budget["room"] < talk.budget["room"]


@pytest.mark.parametrize("value", [0, -1])
def test_max_tool_result_tokens_must_be_more_than_0_in_code_and_in_the_file(value, tmp_path):
    with pytest.raises(ValueError, match=f"max_tool_result_tokens is {value}; .*more than 0"):
        Talk(knobs={"max_tool_result_tokens": value})
    text = EXAMPLE.replace("max_tool_result_tokens: 8000", f"max_tool_result_tokens: {value}")
    done = examined(text, tmp_path)
    assert done.code == 1
    assert f"session.context.max_tool_result_tokens is {value}" in done.told


def test_the_documents_example_of_an_agents_file_is_taken_as_it_stands(tmp_path):
    done = examined(EXAMPLE, tmp_path)
    assert accepts_the_file(done)
    assert done.code == 0, done.told
    assert "150,000" in done.told


@pytest.mark.parametrize("more", ["", "session: {}\n", "session: {max_tool_iterations: 25}\n"])
def test_the_context_block_and_all_around_it_may_be_left_out(more, tmp_path):
    done = examined(f"model: {{name: claude-sonnet-4-20250514}}\n{more}", tmp_path)
    assert done.code == 0, done.told
    assert file_format()["file"]["required"] == ["model"]


def test_an_invalid_strategy_and_an_unknown_key_are_refused_when_the_file_is_read(
    tmp_path,
):
    done = examined(EXAMPLE.replace("head    #", "middle  #"), tmp_path)
    assert done.code == 1
    assert "tool_result_truncation" in done.told
    assert all(strategy in done.told for strategy in ("head", "tail", "both"))
    done = examined(EXAMPLE.replace("max_history_tokens", "max_history"), tmp_path)
    assert done.code == 1
    assert "max_history" in done.told
    assert "max_history_tokens" in done.told


def test_the_format_of_the_file_documents_every_setting_with_its_default():
    blocks = file_format()
    described = {**blocks["session"]["properties"], **blocks["context"]["properties"]}
    defaults = {
        "max_history_tokens": 20_000,
        "max_tool_result_tokens": 8_000,
        "tool_result_truncation": "head",
        "tool_result_keep_first": 2,
        "tool_result_keep_last": 5,
        "max_tool_iterations": 25,
        "on_disconnect": "pause",
    }
    for name, default in defaults.items():
        setting = described[name]
        told = f"{default:,}" if isinstance(default, int) else f"`{default}` (the default)"
        assert setting.get("default") == default or told in setting["description"], setting
        assert len(setting["description"]) > 20, name
    assert {"head", "tail", "both"} <= set(choices(described["tool_result_truncation"]))


def choices(setting: dict[str, Any]) -> list[str]:
    return [value for form in setting["anyOf"] for value in form.get("enum", ())]


@pytest.mark.parametrize("name", ["actor_message_limit", "max_messages", "message_limit"])
def test_the_number_of_messages_in_memory_cannot_be_set(name, tmp_path):
    with pytest.raises(ValueError, match=name):
        Talk(knobs={name: 50})
    done = examined(EXAMPLE.replace("  context:\n", f"  context:\n    {name}: 50\n"), tmp_path)
    assert done.code == 1
    assert name in done.told
