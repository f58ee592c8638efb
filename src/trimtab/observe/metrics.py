"""All that is counted, by name. In no label stands a session, a user or anything that was said."""

from __future__ import annotations

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
except ImportError as missing:
    raise ImportError("metrics need prometheus_client: pip install 'trimtab[serve]'") from missing

REGISTRY = CollectorRegistry()
"""Ours alone; register it in another one to show both together."""
PROCESS_REGISTRY = CollectorRegistry()
"""Memory, CPU and open files of this process."""
ProcessCollector(registry=PROCESS_REGISTRY)

_DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_SHORT_DURATION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKEN_BUCKETS = (500, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1.024e6)
_SHARE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_MESSAGE_COUNT_BUCKETS = (5, 10, 20, 50, 100, 200, 500, 1_000)
_SUMMARY_TOKEN_BUCKETS = (50, 100, 200, 300, 400, 500, 750, 1_000, 2_000)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"trimtab_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"trimtab_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"trimtab_{name}", text, labels, registry=REGISTRY, buckets=buckets)


turns = _counter("turns", "Turns that are over, by how they ended.", "agent", "outcome")
turn_seconds = _histogram("turn_seconds", "How long turns took.", _DURATION_BUCKETS_S, "agent")
turns_running = _gauge("turns_running", "Turns that run now.", "agent")

calls = _counter("calls", "Model calls of turns, by outcome.", "model", "outcome")
call_seconds = _histogram(
    "call_seconds", "How long model calls took.", _DURATION_BUCKETS_S, "model"
)
first_piece_seconds = _histogram(
    "first_piece_seconds",
    "From a streamed call to the first piece of its reply.",
    _SHORT_DURATION_BUCKETS_S,
    "model",
)
tokens = _counter(
    "tokens",
    "Tokens as reported: input (with cache reads and writes), output, cache_read, cache_write.",
    *("model", "kind", "use"),
)
cost = _counter("cost_dollars", "US dollars at list prices, where known.", "model", "use")

prompt_tokens = _histogram("prompt_tokens", "Prompts of calls, estimated.", _TOKEN_BUCKETS, "model")
prompt_share = _histogram(
    "prompt_share",
    "Of what the limit leaves for a prompt, the share it took.",
    _SHARE_BUCKETS,
    "model",
)
prompt_section_tokens = _counter(
    "prompt_section_tokens",
    "Tokens sent, estimated: head (system, tools), front (summary, notice), messages.",
    *("model", "section"),
)
near_limit = _counter("near_limit", "Prompts that have reached 80 % of their room.", "model")
window_messages = _histogram(
    "window_messages", "Messages that a call has sent.", _MESSAGE_COUNT_BUCKETS
)

edits = _counter("edits", "Parts or messages hidden, by kind of edit and cause.", "op", "cause")
hidden_tokens = _counter("hidden_tokens", "Tokens hidden, estimated.", "op", "cause")
summaries = _counter("summaries", "Summaries asked for, by what became of them.", "outcome", "of")
summary_tokens = _histogram(
    "summary_tokens", "Size of summaries that stand.", _SUMMARY_TOKEN_BUCKETS
)
summary_seconds = _histogram("summary_seconds", "How long summaries took.", _DURATION_BUCKETS_S)
summary_calls = _counter("summary_calls", "Model calls made for summaries.", "model")
patched_items = _counter("summary_patched_items", "Items a summary had lost, and was given.")

tools = _counter("tools", "Tool calls, by outcome.", "tool", "outcome")
tool_seconds = _histogram("tool_seconds", "How long tools ran.", _DURATION_BUCKETS_S, "tool")

recoveries = _counter("recoveries", "Calls made again after a failure, by its kind.", "kind")
learned_limits = _counter("learned_limits", "Windows found smaller than believed.", "model")
store_errors = _counter("store_errors", "Errors of the store, by name.", "error")

letters = _counter(
    "letters", "Messages posted by doors, by what became of them.", "tenant", "outcome"
)
letters_waiting = _gauge("letters_waiting", "Messages that wait for a turn.")
letter_seconds = _histogram(
    "letter_seconds",
    "From a message's arrival to the end of its turn.",
    _DURATION_BUCKETS_S,
    "agent",
)
sessions_dead = _gauge("sessions_dead", "Sessions with messages or replies that were given up.")
turn_retries = _counter("turn_retries", "Turns that failed and are tried again.")
dead_letters = _counter("dead_letters", "Messages given up unanswered.")
deliveries = _counter("deliveries", "Attempts to send a reply, by outcome.", "door", "outcome")
delivery_seconds = _histogram(
    "delivery_seconds", "How long sending a reply took.", _SHORT_DURATION_BUCKETS_S, "door"
)
schedules = _counter("schedules", "Schedules that were due, by outcome.", "outcome")
http = _counter("http_requests", "HTTP requests, by route.", "method", "route", "status")
http_seconds = _histogram(
    "http_seconds", "How long HTTP requests took.", _SHORT_DURATION_BUCKETS_S, "method", "route"
)
streams_open = _gauge("streams_open", "Event streams that are open.")
