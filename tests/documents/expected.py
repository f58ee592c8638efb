"""What the documents ask for and the product does not do yet.

Each of these tests fails. It is expected to, and a run fails if it passes: whoever mends the
product takes its line out of here and lowers the number.
"""

from __future__ import annotations

COUNT = 0
"""Tests that are expected to fail. It may only fall."""

EXPECTED: dict[str, str] = {}
"""By the test's name: what is wrong for a user."""
