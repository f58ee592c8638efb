"""Metrics as Prometheus reads them, and spans as an exporter of the real SDK gets them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from trimtab.observe.instrument import EventFanOut
from trimtab.observe.otel import TurnSpans, create_instruments
from trimtab.observe.turn_metrics_and_endpoint import render_metrics

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
        now, asked = samples(), labels.items()
        return round(
            sum(
                value - self._before.get(key, 0.0)
                for key, value in now.items()
                if key[0] == name and asked <= key[1]
            ),
            9,
        )


class Traced:
    """Spans and measurements in memory."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._kept))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader])

    def tell(self, agent: str = "helper") -> EventFanOut:
        return EventFanOut([TurnSpans(create_instruments(self.tracers, self._meters), agent)])

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, by their start."""
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def points(self, metric: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]

    def close(self) -> None:
        self.tracers.shutdown()
        self._meters.shutdown()
