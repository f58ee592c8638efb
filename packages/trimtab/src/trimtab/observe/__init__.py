"""Spans and log lines of turns: they show token use and early signs of problems."""

from __future__ import annotations

from trimtab.observe.instrument import instrument as instrument

__all__ = ["instrument"]
