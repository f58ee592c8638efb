"""Every metric, by name. No label contains a session, a user or any text of a message."""

from __future__ import annotations

import platform
from importlib.metadata import version

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
except ImportError as missing:
    raise ImportError("metrics need prometheus_client: pip install 'trimtab[serve]'") from missing

from trimtab.errors import StoreError, store_error_listeners

REGISTRY = CollectorRegistry()
"""The registry of Trimtab's metrics. Register it in another registry to show both together."""
PROCESS_REGISTRY = CollectorRegistry()
"""Memory, CPU and open files of this process."""
ProcessCollector(registry=PROCESS_REGISTRY)

_DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_SHORT_DURATION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKEN_BUCKETS = (500, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1.024e6)
_RATIO_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_MESSAGE_COUNT_BUCKETS = (5, 10, 20, 50, 100, 200, 500, 1_000)
_SUMMARY_TOKEN_BUCKETS = (50, 100, 200, 300, 400, 500, 750, 1_000, 2_000)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"trimtab_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"trimtab_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"trimtab_{name}", text, labels, registry=REGISTRY, buckets=buckets)


turns = _counter("turns", "Turns that have ended, by outcome.", "agent", "outcome")
turn_duration = _histogram(
    "turn_duration_seconds", "Duration of turns.", _DURATION_BUCKETS_S, "agent"
)
turns_running = _gauge("turns_running", "Turns that are running.", "agent")

model_calls = _counter("model_calls", "Model calls of turns, by outcome.", "model", "outcome")
model_call_duration = _histogram(
    "model_call_duration_seconds", "Duration of model calls.", _DURATION_BUCKETS_S, "model"
)
time_to_first_token = _histogram(
    "time_to_first_token_seconds",
    "Time from the start of a streamed call to the first text of its reply.",
    _SHORT_DURATION_BUCKETS_S,
    "model",
)
tokens = _counter(
    "tokens",
    "Tokens as reported: input (with cache reads and writes), output, cache_read, cache_write. The "
    "purpose is reply or summary, as in the table llm_calls.",
    *("model", "type", "purpose"),
)
cost = _counter(
    "cost_dollars",
    "US dollars at list prices, of calls whose usage and price are known.",
    "model",
    "purpose",
)
agent_cost = _counter(
    "agent_cost_dollars",
    "US dollars at list prices, by agent (including its sub-agents) and tenant.",
    *("agent", "tenant"),
)

cost_ceiling_refusals = _counter(
    "cost_ceiling_refusals",
    "Turns that ended because a call might have exceeded a cost ceiling: session, tenant_per_day "
    "or day.",
    *("agent", "ceiling"),
)

prompt_tokens = _histogram(
    "prompt_tokens", "Prompt size of calls, estimated.", _TOKEN_BUCKETS, "model"
)
prompt_budget_ratio = _histogram(
    "prompt_budget_ratio",
    "Prompt size divided by the tokens that the limit leaves for a prompt.",
    _RATIO_BUCKETS,
    "model",
)
prompt_section_tokens = _counter(
    "prompt_section_tokens",
    "Tokens sent, estimated, by section: system_and_tools, summary (with the notice), messages.",
    *("model", "section"),
)
near_limit = _counter("near_limit", "Prompts that have reached 80 % of their budget.", "model")
window_messages = _histogram(
    "window_messages", "Messages sent with a call.", _MESSAGE_COUNT_BUCKETS
)

edits = _counter("edits", "Parts or messages hidden, by kind of edit and cause.", "op", "cause")
hidden_tokens = _counter("hidden_tokens", "Tokens hidden, estimated.", "op", "cause")
summaries = _counter(
    "summaries", "Summaries requested from a model, by outcome.", "outcome", "target"
)
summary_tokens = _histogram(
    "summary_tokens", "Size of the summaries that are in use.", _SUMMARY_TOKEN_BUCKETS
)
summary_duration = _histogram(
    "summary_duration_seconds", "Time that summaries took.", _DURATION_BUCKETS_S
)
summary_model_calls = _counter("summary_model_calls", "Model calls made for summaries.", "model")
summary_patched_items = _counter(
    "summary_patched_items", "Items that were missing in a summary and were added to it."
)

tool_calls = _counter("tool_calls", "Tool calls, by outcome.", "tool", "outcome")
tool_call_duration = _histogram(
    "tool_call_duration_seconds", "Duration of tool calls.", _DURATION_BUCKETS_S, "tool"
)

model_call_retries = _counter(
    "model_call_retries", "Model calls repeated after a failure, by its kind.", "reason"
)
learned_limits = _counter(
    "learned_limits", "Times that a provider reported a smaller window than assumed.", "model"
)
store_errors = _counter("store_errors", "Errors of the store, by class name.", "error")
store_reachable = _gauge(
    "store_reachable", "1 if the store answered when these metrics were read, otherwise 0."
)
store_reachable.set(1)
pool_connections_in_use = _gauge(
    "pool_connections_in_use", "Database connections that are in use, by pool.", "pool"
)
pool_connections_max = _gauge(
    "pool_connections_max", "Database connections that a pool may open.", "pool"
)
pool_requests_waiting = _gauge(
    "pool_requests_waiting", "Tasks that wait for a database connection, by pool.", "pool"
)

inbound_messages = _counter(
    "inbound_messages",
    "Messages from channels: accepted, duplicate, rejected.",
    "tenant",
    "outcome",
)
queued_messages = _gauge("queued_messages", "Messages that wait for a turn.")
oldest_waiting_message_age = _gauge(
    "oldest_waiting_message_age_seconds",
    "Age of the oldest message that is not answered yet; 0 if there is none.",
)
message_latency = _histogram(
    "message_latency_seconds",
    "Time from the arrival of a message to the end of its turn.",
    _DURATION_BUCKETS_S,
    "agent",
)
dead_letter_sessions = _gauge(
    "dead_letter_sessions", "Sessions with dead letters: messages or replies that failed for good."
)
turn_retries = _counter("turn_retries", "Turns that failed and are retried.")
turns_waiting_to_retry = _gauge(
    "turns_waiting_to_retry", "Sessions whose turn has failed and waits for another attempt."
)
provider_circuit_open = _gauge(
    "provider_circuit_open",
    "1 while a provider has failed so often that only probes are sent to it, otherwise 0.",
    "provider",
)
dead_letters = _counter("dead_letters", "Messages that became dead letters.")
deliveries = _counter(
    "deliveries",
    "Attempts to deliver a reply: sent, deferred, rejected, unknown, abandoned.",
    *("channel", "outcome"),
)
delivery_duration = _histogram(
    "delivery_duration_seconds", "Duration of deliveries.", _SHORT_DURATION_BUCKETS_S, "channel"
)
retention_deleted = _counter(
    "retention_deleted",
    "Sessions that were deleted because they were older than `retain_for`.",
    "agent",
)
erasures = _counter(
    "erasures", "Erasures of a user or a tenant: done, incomplete, failed.", *("kind", "outcome")
)
erasures_running = _gauge(
    "erasures_running", "Erasures of a user or a tenant that this process runs."
)
schedule_runs = _counter("schedule_runs", "Schedules that were due, by outcome.", "outcome")
api_key_rejections = _counter(
    "api_key_rejections",
    "Requests without a valid key: missing, wrong, expired, or paced (too many from one address, "
    "answered with 429).",
    "reason",
)
api_key_last_used = _gauge(
    "api_key_last_used_timestamp_seconds",
    "Time of the last use of an API key, by the key's name.",
    "key",
)
api_key_expiry = _gauge(
    "api_key_expiry_timestamp_seconds",
    "Expiry time of an API key, by the key's name: the next 100 keys to expire.",
    "key",
)
http_connections_open = _gauge("http_connections_open", "HTTP connections that are open.")
http_connections_closed = _counter(
    "http_connections_closed",
    "HTTP connections that the server closed to protect itself: header_timeout, evicted, refused.",
    "reason",
)
log_lines_suppressed = _counter(
    "log_lines_suppressed",
    "Log lines suppressed because the same line repeats too often.",
    "logger",
)
http_requests = _counter("http_requests", "HTTP requests, by route.", "method", "route", "status")
http_request_duration = _histogram(
    "http_request_duration_seconds",
    "Duration of HTTP requests.",
    _SHORT_DURATION_BUCKETS_S,
    *("method", "route"),
)
event_streams_open = _gauge("event_streams_open", "Event streams that are open.")
build_info = _gauge(
    "build_info", "Always 1. The labels show the running version.", "version", "python"
)
build_info.labels(version("trimtab"), platform.python_version()).set(1)


def _count_store_error(error: StoreError) -> None:
    store_errors.labels(type(error).__name__).inc()


store_error_listeners.append(_count_store_error)
