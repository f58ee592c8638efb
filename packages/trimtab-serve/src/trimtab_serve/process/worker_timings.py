"""Intervals and timeouts of the workers of a process."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_serve.process.loop_health import MAX_STALL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPoolTimings:
    """Intervals and timeouts of the worker pool, in seconds."""

    heartbeat_s: float = 5.0
    """Between two heartbeats of a process, and between two checks of the others."""
    takeover_after_s: float = 20.0
    """Without a heartbeat before the jobs of a process are taken over.

    A process takes over only after its own heartbeats worked for this long. After a database
    outage, all processes look silent.
    """
    self_cancel_after_s: float = 15.0
    """Without a successful heartbeat before a process cancels its own turns.

    Another process will take them over, and no request must be sent twice at the same time.
    """
    max_stall_s: float = MAX_STALL_S
    """For which the event loop may stand still before the heartbeats stop.

    Then the liveness probe fails as well, and other processes take over.
    """
    poll_s: float = 1.0
    """Between two polls for jobs without a notification."""
    shutdown_grace_s: float = 30.0
    """For running turns to end, after the database is lost or the process is stopped."""
    restart_delay_s: float = 1.0
    """Before workers restart after the database was lost."""
