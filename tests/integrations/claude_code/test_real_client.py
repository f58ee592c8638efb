"""The hook in the real client."""

import pytest

from benchmarks.doors.claude_hook import measure


@pytest.mark.soak
@pytest.mark.process
def test_the_real_client_lives_on_with_the_hook_and_reads_whole_texts_back():
    figures = measure(quick=True)
    if "skipped" in figures:
        pytest.skip(figures["skipped"])
    assert figures["broken"] == []
