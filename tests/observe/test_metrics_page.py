"""What operators read about metrics is what there is, and each of them is held by a test."""

import re
from pathlib import Path

import yaml

from tests.observe.metrics_page import PAGE, exposed, own, written
from trimtab.observe.prometheus_metric_definitions import REGISTRY

TEXT = PAGE.read_text(encoding="utf-8")
ALERTS = re.compile(r"```yaml\n(groups:.*?)```", re.DOTALL)


def names() -> set[str]:
    return {exposed(metric) for metric in own()}


def series() -> set[str]:
    """As a query may name them: a histogram has three."""
    found = set[str]()
    for metric in own():
        ends = ("_bucket", "_sum", "_count") if metric._type == "histogram" else ("",)
        found |= {exposed(metric) + end for end in ends}
    return found


def test_the_table_has_every_metric_as_it_is():
    assert written(TEXT) == TEXT, "run `python -m tests.observe.metrics_page`"
    assert {family.name for family in REGISTRY.collect()} == {metric._name for metric in own()}


def test_every_metric_is_asserted_by_a_test():
    told = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert [name for name in sorted(names()) if f'"{name}' not in told] == []


def test_every_alert_asks_for_metrics_that_exist():
    (block,) = ALERTS.findall(TEXT)
    rules = [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        asked = set(re.findall(r"\btrimtab_\w+", rule["expr"]))
        assert asked, rule["alert"]
        assert asked <= series(), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]


def test_every_alert_is_explained_where_one_looks_at_night():
    (block,) = ALERTS.findall(TEXT)
    rules = [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    page = (PAGE.parent / "operations.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page] == []
