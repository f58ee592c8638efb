"""The share of a process that one tenant may use."""

from __future__ import annotations


def compute_tenant_share(max_jobs: int) -> int:
    """Return how many of a process's jobs one tenant may have at the same time: half of them.

    So slow turns of one tenant leave room for the others.
    """
    return (max_jobs + 1) // 2
