"""Spans as an exporter of the real SDK gets them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trimtab.observe.instrument import EventFanOut
from trimtab.observe.otel import TurnSpans, create_instruments


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
