"""A durable context: what happens is in a store before anything acts on it."""

from trimtab.session.session import Session

__all__ = ["Session"]
