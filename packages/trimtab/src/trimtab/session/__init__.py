"""A durable context: every event is stored before anything acts on it."""

from trimtab.session.session import Session

__all__ = ["Session"]
