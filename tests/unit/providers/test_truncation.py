import pytest

from trimtab.core.event import Usage
from trimtab.core.tokens import BYTES4, exact, piecewise
from trimtab.providers.truncation import read_usage, silently_truncated

QWEN = piecewise("qwen3").name


def test_half_of_a_window_read_where_more_than_a_window_was_sent_is_a_truncation():
    failure = read_usage(4_700, Usage(input=2_050), counter=QWEN)
    assert failure is not None
    assert (failure.kind, failure.limit, failure.input) == ("overflow", 2_050, 4_700)
    assert "4,700 tokens were sent and 2,050 read" in failure.message


@pytest.mark.parametrize(
    ("counter", "share"),
    [
        (QWEN, 0.7),
        (piecewise(None).name, 0.3),
        (BYTES4.name, 0.5),
        (exact("mine", len).name, 0.9),
        ("somebody's", 0.3),
    ],
)
def test_what_an_error_of_the_estimate_explains_is_no_truncation(counter, share):
    real = round(20_000 * share)
    assert not silently_truncated(20_500, Usage(input=real + 10), counter=counter)
    assert silently_truncated(20_500, Usage(input=real - 10), counter=counter)


def test_what_a_provider_adds_for_tools_is_not_missed_where_it_adds_nothing():
    assert not silently_truncated(1_900, Usage(input=1_050), counter=QWEN)


def test_no_server_cuts_to_less_than_1000_tokens():
    """A limit that small would leave nothing of a session."""
    assert silently_truncated(50_000, Usage(input=1_000), counter=QWEN)
    assert not silently_truncated(50_000, Usage(input=999), counter=QWEN)


def test_a_server_that_reports_nothing_has_truncated_nothing():
    assert read_usage(50_000, Usage(input=0), counter=QWEN) is None
