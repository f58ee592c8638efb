"""What a client sends under other settings: its compactions, and results that it truncates."""

from dataclasses import replace
from typing import Any

import pytest

from tests.replay.conversations import conversation
from trimtab.engine.log.message import Text, ToolResult, make_text_message
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import ConversationRun, ReplaySetup
from trimtab.replay.client_settings import COMPACTION_OUTPUT_TOKENS, ClientSettings
from trimtab.replay.needs import sum_need_counts
from trimtab.replay.runner import replay_under_each_setup
from trimtab.replay.selection import RecordedConversation

PRICING = get_provider_pricing("claude-sonnet-4-5")
TALK = conversation("talk", 30, words=300)


def run(settings: ClientSettings, talk=TALK) -> ConversationRun:
    setup = ReplaySetup(name="told", options={"policy": "everything"}, client=settings)
    return replay_under_each_setup(talk, [setup], {PRICING.name: PRICING.rules})[0]


def hidden(told: ConversationRun) -> int:
    needs = sum_need_counts(call.needs for call in told.calls)
    return needs.references - needs.seen


AS_IT_WAS = run(ClientSettings())
LARGEST = AS_IT_WAS.calls[-1].tokens


def test_a_compaction_is_one_more_call_that_reads_the_prompt_and_writes_a_summary():
    told = run(ClientSettings(compact_at=LARGEST * 3 // 4, compacted_tokens=100))
    (summary,) = [call for call in told.calls if call.output == COMPACTION_OUTPUT_TOKENS]
    assert summary.tokens > LARGEST * 3 // 4
    after = told.calls[told.calls.index(summary) + 1]
    assert (after.index, after.tokens) == (summary.index, after.head + 100)
    assert len(told.calls) == len(AS_IT_WAS.calls) + 1


def test_what_a_compaction_replaces_is_hidden_but_for_the_users_messages_that_stay():
    assert hidden(AS_IT_WAS) == 0
    names = " ".join(f"symbol_{number}_x src/file_{number}.py" for number in range(30))
    talk = replace(TALK, messages=(make_text_message("user", names), *TALK.messages))
    compact = ClientSettings(compact_at=LARGEST // 2, compacted_tokens=100)
    assert hidden(run(compact, talk)) > 0
    assert hidden(run(replace(compact, kept_user_tokens=9_999), talk)) == 0


def test_a_compaction_that_would_leave_most_of_the_prompt_is_not_made():
    told = run(ClientSettings(compact_at=LARGEST // 2, compacted_tokens=LARGEST))
    assert told == replace(AS_IT_WAS, setup="told")


def test_settings_that_change_nothing_share_the_run_as_it_was():
    told = run(ClientSettings(compact_at=10 * LARGEST, max_result_tokens=50_000))
    assert told == replace(AS_IT_WAS, setup="told")


def with_results(**changes: Any) -> RecordedConversation:
    messages = tuple(
        replace(
            message,
            parts=tuple(
                replace(part, **changes) if isinstance(part, ToolResult) else part
                for part in message.parts
            ),
        )
        for message in TALK.messages
    )
    return replace(TALK, messages=messages)


def test_a_truncated_result_shows_its_ends():
    told = run(ClientSettings(max_result_tokens=50))
    assert told.calls[-1].tokens < LARGEST / 2
    assert hidden(told) == 0  # the name that is used again is at the beginning


def test_what_only_the_middle_of_a_truncated_result_says_is_hidden_and_fetched_again():
    middle = "lorem " * 150 + "symbol_5_x" + " lorem" * 150
    talk = with_results(content=(Text(text=middle),))
    assert hidden(run(ClientSettings(), talk)) == 0
    told = run(ClientSettings(max_result_tokens=50), talk)
    assert hidden(told) > 0
    assert any(call.missing for call in told.calls)


@pytest.mark.parametrize(
    "settings",
    [
        ClientSettings(max_result_tokens=50, capped_tools="Bash|Grep"),
        ClientSettings(max_result_tokens=50, max_capped_chars=100),
        ClientSettings(max_result_tokens=50, cut_from=99.0),
    ],
)
def test_results_of_other_tools_and_sizes_stay_whole(settings):
    assert run(settings).calls == AS_IT_WAS.calls


def test_results_of_tools_that_failed_stay_whole():
    failed = with_results(is_error=True)
    assert run(ClientSettings(max_result_tokens=50), failed).calls[-1].tokens == LARGEST
