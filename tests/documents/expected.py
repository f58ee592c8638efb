"""What the documents ask for and the product does not do yet.

Each of these tests fails. It is expected to, and a run fails if it passes: whoever mends the
product takes its line out of here and lowers the number.
"""

from __future__ import annotations

COUNT = 1
"""Tests that are expected to fail. It may only fall."""

EXPECTED = {
    "test_amazon_bedrock_may_be_the_provider_of_an_agent": (
        "an agent's file cannot name Amazon Bedrock, so that its models need code of one's own"
    ),
}
"""By the test's name: what is wrong for a user."""
