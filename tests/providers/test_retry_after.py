import pytest

from trimtab.providers.error_parser import parse_error_response, parse_retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "20"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "20"}, 20.0),
        (
            {
                "Retry-After": "Fri, 31 Jan 2025 10:00:30 GMT",
                "Date": "Fri, 31 Jan 2025 10:00:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Fri, 31 Jan 2020 10:00:30 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_wait_is_read_from_seconds_milliseconds_and_dates(headers, seconds):
    assert parse_retry_after(headers) == seconds


def test_a_date_without_the_servers_own_counts_from_our_clock(monkeypatch):
    monkeypatch.setattr("trimtab.providers.error_parser.time.time", lambda: 1738317600.0)
    assert parse_retry_after({"retry-after": "Fri, 31 Jan 2025 10:00:30 GMT"}) == 30.0


def test_a_failure_carries_the_wait():
    assert parse_error_response(429, "", headers={"retry-after": "7"}).retry_after == 7.0
