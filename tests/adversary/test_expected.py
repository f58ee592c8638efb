"""What is expected is compared exactly, and its sums can only fall."""

from __future__ import annotations

import json

import pytest

from tests.adversary.expected import CLUSTER, compare, record, too_often
from tests.adversary.findings import KINDS, Broken, Findings, Violation, shortened

OLD = {"v1": {"it is there": 2}}


def findings(**times: int) -> Findings:
    """So many violations of the rule of a kind."""
    made = Findings(requests=1_000)
    for kind, count in times.items():
        for number in range(count):
            rule = [Broken("it is there", "it is not")]
            request = {"messages": [{"role": "user", "content": "Why?"}]}
            made.note(kind, rule, where=str(number), request=request)
    return made


def test_a_violation_tells_its_steps_and_settings():
    made = Violation(
        kind="v1",
        rule="it is there",
        detail="it is not",
        where="7 (small)",
        step=12,
        did=("result", "user speaks"),
        settings="model=gpt-4o",
    )
    assert str(made).splitlines() == [
        "v1 (the newest user message is in the request): it is there",
        "  found: it is not",
        "  conversation 7 (small), step 12: result → user speaks",
        "  settings: model=gpt-4o",
    ]


def test_what_is_expected_is_nothing_to_tell():
    assert compare("a batch", findings(v1=2), OLD) == ""


def test_more_is_told_with_the_conversation_and_the_request():
    told = compare("a batch", findings(v1=3), OLD)
    assert "a batch: v1, it is there: 3, expected 2" in told
    assert "broken more often than before" in told
    assert "conversation 0\n" in told
    assert '"content": "Why?"' in told


def test_a_new_kind_is_told():
    told = compare("a batch", findings(v1=2, v3=1), OLD)
    assert "a batch: v3, it is there: 1, expected 0" in told
    assert "v1" not in told


def test_fewer_is_told_with_what_to_do():
    told = compare("a batch", findings(v1=1), OLD)
    assert "a batch: v1, it is there: 1, expected 2" in told
    assert "python -m tests.soak.adversary --quick --record" in told
    assert "less often" in told


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "expected.json"
    rates = {"v1": {"it is there": 9.0, "another": 1.0}}
    old = {"quick": {"one": OLD, "other": {"v1": {"it is there": 5}}}, "rates": rates}
    file.write_text(json.dumps(old), encoding="utf-8")
    return file


def test_numbers_may_move_between_batches_if_their_sum_does_not_rise(table):
    assert record({"one": findings(v1=4), "other": findings(v1=3)}, table) == []
    written = json.loads(table.read_text(encoding="utf-8"))
    assert written["quick"] == {
        "one": {"v1": {"it is there": 4}},
        "other": {"v1": {"it is there": 3}},
    }


def test_a_rule_that_is_mended_has_no_rate_either(table):
    assert record({"one": findings(v1=1), "other": findings()}, table) == []
    assert "it is there" in json.loads(table.read_text(encoding="utf-8"))["rates"]["v1"]
    assert record({"one": findings(), "other": findings()}, table) == []
    assert json.loads(table.read_text(encoding="utf-8"))["rates"] == {"v1": {"another": 1.0}}


def test_a_sum_that_has_risen_is_not_written(table):
    before = table.read_text(encoding="utf-8")
    told = record({"one": findings(v1=4), "other": findings(v1=4)}, table)
    assert told == ["v1, it is there: 8 in all batches, expected 7 at most"]
    assert table.read_text(encoding="utf-8") == before


def test_a_rule_that_was_never_broken_is_not_written(table):
    told = record({"one": findings(v1=2), "other": findings(v3=1)}, table)
    assert told == ["v3, it is there: 1 in all batches, expected 0 at most"]


def test_random_conversations_may_break_a_known_rule_at_its_rate_and_no_other():
    rates = {"v1": {"it is there": 10.0}}
    assert list(too_often(findings(v1=10 + CLUSTER), rates)) == []
    (more,) = too_often(findings(v1=11 + CLUSTER), rates)
    assert f"broken {11 + CLUSTER} times in 1,000 requests" in more
    (new,) = too_often(findings(v2=1), rates)
    assert "not known to be" in new


def test_of_many_violations_of_a_rule_a_few_are_kept_each_of_another_conversation():
    made = Findings()
    for where in ("1", "1", "2", "3", "4"):
        told = Violation(kind="v1", rule="it is there", detail="", where=where)
        made.add(told)
    assert [each.where for each in made.told] == ["1", "2", "3"]
    assert made.violations == made.of_kind("v1") == 5


def test_a_request_is_shortened_to_what_came_last():
    request = {
        "model": "gpt-4o",
        "tools": [{"name": "read"}],
        "messages": [{"role": "user", "content": f"{n} " + "x" * 500} for n in range(50)],
    }
    told = shortened(request)
    assert len(told) < 2_500
    assert '"model": "gpt-4o"' in told
    assert '"content": "49 ' in told
    assert "before" in told


def test_every_kind_says_what_is_promised():
    assert list(KINDS) == [f"v{number}" for number in range(1, len(KINDS) + 1)]
