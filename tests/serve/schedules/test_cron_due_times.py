"""When something is due: against a slow oracle, and what is refused."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.serve.schedules import oracle
from trimtab_serve.schedules.triggers import (
    find_last_due_time,
    find_next_due_time,
    parse_cron_trigger,
    parse_one_time_trigger,
    parse_trigger,
)

ZURICH = "Europe/Zurich"
# Among them: changes at midnight, of half an hour, with odd offsets, and none.
ZONES = (
    ZURICH,
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Beirut",
    "Africa/Cairo",
    "Pacific/Chatham",
    "Asia/Kolkata",
    "UTC",
)
HOURS = 30


def shifts(zone):
    """The days of a few years on which a zone's clocks are changed."""
    first, where = datetime(2024, 1, 1, tzinfo=UTC), ZoneInfo(zone)
    days = [first + timedelta(days=n) for n in range(3 * 365)]
    return [
        day
        for day in days
        if day.astimezone(where).utcoffset()
        != (day + timedelta(days=1)).astimezone(where).utcoffset()
    ] or days[:2]


SHIFTS = {zone: shifts(zone) for zone in ZONES}


def field(low, high):
    one = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    parts = st.one_of(one, span.map(lambda ends: f"{ends[0]}-{ends[1]}"))
    listed = st.lists(parts, min_size=1, max_size=3).map(",".join)
    stepped = st.sampled_from(("*/2", "*/7", "*/15", f"{low}-{high}/3"))
    return st.one_of(st.just("*"), stepped, listed)


hour = st.one_of(field(0, 23), st.sampled_from(("0", "1", "2", "3", "0-4", "1,2,3")))
crons = st.tuples(
    field(0, 59),
    hour,
    st.one_of(st.just("*"), field(1, 31)),
    st.one_of(st.just("*"), field(1, 12)),
    st.one_of(st.just("*"), field(0, 7)),
).map(" ".join)
zones = st.sampled_from(ZONES)


@st.composite
def starts(draw, zone):
    day = draw(st.sampled_from(SHIFTS[zone]))
    return day + timedelta(minutes=draw(st.integers(-600, 1500)))


@pytest.mark.slow
@given(data=st.data(), cron=crons, zone=zones)
def test_what_is_due_is_what_a_look_at_every_minute_finds(data, cron, zone):
    first = data.draw(starts(zone))
    try:
        when = parse_cron_trigger(cron, zone)
    except ValueError:
        return  # the thirtieth of February
    end = first.timestamp() + HOURS * 3600
    found, at = [], find_next_due_time(when, first.timestamp())
    while at is not None and at <= end:
        found.append(at)
        at = find_next_due_time(when, at)
    assert found == oracle.due(cron, zone, first, HOURS * 60)
    if found:
        assert find_last_due_time(when, found[0], end) == found[-1]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), cron=crons, zone=zones, seconds=st.floats(0, 7200))
def test_the_next_time_does_not_depend_on_when_it_is_asked(data, cron, zone, seconds):
    start = data.draw(starts(zone)).timestamp()
    try:
        when = parse_cron_trigger(cron, zone)
    except ValueError:
        return
    coming = find_next_due_time(when, start)
    if coming is not None and start + seconds < coming:
        assert find_next_due_time(when, start + seconds) == coming


@settings(deadline=None)
@given(text=st.text(max_size=30))
@example("0 0 * * mon#1/2")
@example("0 0 30 2 *")
@example("* * * * * *")
@example("@reboot")
def test_any_text_is_a_time_or_refused_by_name(text):
    try:
        when = parse_trigger(text, 1.8e9, ZURICH)
    except ValueError:
        return
    coming = find_next_due_time(when, 1.8e9)
    assert coming is None or coming > 1.8e9


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2027-01-31 08:00", "2027-01-31T07:00"),
        ("2027-01-31T08:00Z", "2027-01-31T08:00"),
        ("2027-01-31T08:00+05:30", "2027-01-31T02:30"),
        # Skipped by the clock: right after the gap. Shown twice: the first time.
        ("2027-03-28 02:30", "2027-03-28T01:00"),
        ("2027-10-31 02:30", "2027-10-31T00:30"),
    ],
)
def test_a_date_and_a_time_are_on_the_clock_of_their_zone(text, at):
    assert parse_one_time_trigger(text, ZURICH).at == oracle.utc(at).timestamp()


def test_a_time_from_now_is_never_early():
    assert parse_trigger("in 20 minutes", 1000.25).at == 2201.0
    assert parse_trigger("In 1 hour", 1000.0).at == 4600.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("61 * * * *", "is not a valid cron expression (Bad minute)"),
        ("* * * * * *", "it needs five fields and has 6"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("tomorrow", "in 20 minutes, or a cron expression"),
        ("9999-12-31 23:59", "invalid date and time"),
    ],
)
def test_what_is_no_time_is_refused_with_what_is(text, why):
    with pytest.raises(ValueError, match=r"looks like|such as|as in") as refused:
        parse_trigger(text, 1.8e9)
    assert why in str(refused.value)


@pytest.mark.parametrize("zone", ["Europe/Zürich", "Europe", "../UTC", "", "a" * 500])
def test_a_zone_that_does_not_exist_is_refused(zone):
    with pytest.raises(ValueError, match="unknown time zone"):
        parse_cron_trigger("0 8 * * *", zone)


def test_a_wait_that_has_no_date_is_refused():
    with pytest.raises(ValueError, match="too far in the future"):
        parse_trigger("in 999999 weeks", 0.0)
