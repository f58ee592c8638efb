"""What operators read about metrics is what there is, and each of them is held by a test."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tests.serve.metrics.metrics_page import PAGE, exposed, own, written
from trimtab_serve.metrics.definitions import REGISTRY

TEXT = PAGE.read_text(encoding="utf-8")
DEPLOY = PAGE.parents[1] / "deploy"
SCRAPE_LABELS = {"job", "instance"}
"""What Prometheus adds to each sample."""


def names() -> set[str]:
    return {exposed(metric) for metric in own()}


def series() -> dict[str, set[str]]:
    """As a query may name them, each with its labels: a histogram has three series."""
    found: dict[str, set[str]] = {}
    for metric in own():
        ends = ("_bucket", "_sum", "_count") if metric._type == "histogram" else ("",)
        for end in ends:
            found[exposed(metric) + end] = {
                *metric._labelnames,
                *(["le"] if end == "_bucket" else []),
            }
    return found


def test_the_list_has_every_metric_as_it_is():
    assert written(TEXT) == TEXT, "run `python -m tests.serve.metrics.metrics_page`"
    assert {family.name for family in REGISTRY.collect()} == {metric._name for metric in own()}


def test_every_metric_is_asserted_by_a_test():
    told = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert [name for name in sorted(names()) if f'"{name}' not in told] == []


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in groups["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "trimtab.json").read_text(encoding="utf-8"))


def asked_series(query: str) -> dict[str, set[str]]:
    """The names in a query, each with the labels that it is selected by."""
    found: dict[str, set[str]] = {}
    for name, selected in re.findall(r"\b(trimtab_\w+)(?:{([^}]*)})?", query):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected))
    return found


def grouping_labels(query: str) -> set[str]:
    return {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}


def check_query(query: str) -> None:
    """Prometheus returns nothing, and no error, for a name or a label that does not exist."""
    asked, known = asked_series(query), series()
    assert asked.keys() <= known.keys(), query
    for name, labels in asked.items():
        assert labels <= known[name] | SCRAPE_LABELS, query
    grouped = grouping_labels(query) - SCRAPE_LABELS
    assert all(grouped <= known[name] for name in asked), query


def test_every_alert_asks_for_metrics_and_labels_that_exist():
    assert alerts()
    for rule in alerts():
        assert asked_series(rule["expr"]), rule["alert"]
        check_query(rule["expr"])
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in {"page", "morning"}, rule["alert"]


def test_every_panel_asks_for_metrics_and_labels_that_exist():
    shown = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert shown
    for panel in shown:
        for target in panel["targets"]:
            assert re.search(r"\b(trimtab|process)_", target["expr"]), panel["title"]
            check_query(target["expr"].replace("$__rate_interval", "5m"))
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert legend <= grouping_labels(target["expr"]) | SCRAPE_LABELS, panel["title"]


def test_panels_do_not_overlap():
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, f"{panel['title']} lies on {taken.get(cell)}"
            taken[cell] = panel["title"]
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


def test_every_alert_has_an_entry_in_the_runbook_and_links_to_it():
    entries = dict(
        re.findall(r"^### (Trimtab\w+)\n(.*?)(?=^##+ |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    )
    assert set(entries) == {rule["alert"] for rule in alerts()}
    for rule in alerts():
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert address.endswith("/docs/operate.md")
        assert anchor == rule["alert"].lower()
        for part in ("**Look:**", "**Do:**"):
            assert part in entries[rule["alert"]], rule["alert"]
