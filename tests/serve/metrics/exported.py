"""Metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from trimtab_serve.metrics.prometheus import render_metrics

Key = tuple[str, frozenset[tuple[str, str]]]


def samples() -> dict[Key, float]:
    body, content_type = render_metrics()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


class Difference:
    """By how much a sample has grown: `counted("trimtab_model_calls_total", outcome="ok")`."""

    def __init__(self) -> None:
        self._before = samples()

    def __call__(self, name: str, **labels: str) -> float:
        """The sum over all samples that have these labels, among others."""
        now, label_items = samples(), labels.items()
        return round(
            sum(
                value - self._before.get(key, 0.0)
                for key, value in now.items()
                if key[0] == name and label_items <= key[1]
            ),
            9,
        )
