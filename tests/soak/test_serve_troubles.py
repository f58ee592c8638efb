"""The counts of the chaos run count what they say: they would see what must not happen."""

from tests.soak.serve_troubles import Asked, Fate, repeated, unrecorded
from trimtab.testing.server import RecordedRequest


def asked(before, reply, fate: Fate = "answered", session="s"):
    record = RecordedRequest(number=1, dialect="anthropic", key="", raw=b"", reply={"id": reply})
    return Asked(session=session, before=before, fate=fate, record=record)


LOG = {"s": ["r1", "r2"], "t": ["r3"]}


def test_a_request_behind_the_one_whose_reply_is_in_the_log_is_a_repeated_call():
    assert repeated([asked(0, "r1"), asked(0, "rx"), asked(1, "r2")], LOG) == 1
    assert repeated([asked(0, "r1"), asked(0, "rx", "hung"), asked(0, "ry", "failed")], LOG) == 2


def test_a_request_whose_reply_was_never_recorded_may_be_made_again():
    came = [asked(0, "rx"), asked(0, "r1"), asked(0, "r3", session="t"), asked(1, "r2")]
    assert repeated(came, LOG) == 0
    assert unrecorded(came, LOG) == 1


def test_what_failed_or_hung_was_no_reply():
    came = [asked(0, "rx", "failed"), asked(0, "ry", "hung"), asked(0, "r1")]
    assert (repeated(came, LOG), unrecorded(came, LOG)) == (0, 0)
