"""What the documents ask for and the product does not do yet.

Each of these tests fails. It is expected to, and a run fails if it passes: whoever mends the
product takes its line out of here and lowers the number.
"""

from __future__ import annotations

COUNT = 6
"""Tests that are expected to fail. It may only fall."""

EXPECTED = {
    "test_deepseek_chat_v3_has_163840_tokens": (
        "deepseek-chat-v3 is taken for deepseek-chat, so that a fifth of its window is never used"
    ),
    "test_a_llama_4_has_327680_tokens_or_what_its_maker_says_above_that": (
        "Llama 4 Maverick and Scout get 131,072 tokens, less than half of what the document states"
    ),
    "test_the_threshold_in_bytes_may_be_set": (
        "a user cannot set the bytes at which `compact` begins, only choose one of three goals"
    ),
    "test_a_file_that_is_cut_when_it_is_fetched_is_not_logged_as_a_compaction": (
        "the log tells of a compaction at nearly every call, though no old result was touched"
    ),
    "test_few_long_messages_above_the_budget_are_summarised_and_none_is_dropped_unsummarised": (
        "`rolling` and `thresholds` drop a few long messages without any summary of them"
    ),
    "test_amazon_bedrock_may_be_the_provider_of_an_agent": (
        "an agent's file cannot name Amazon Bedrock, so that its models need code of one's own"
    ),
}
"""By the test's name: what is wrong for a user."""
