"""Where tokens go and what is about to go wrong: metrics, spans and log lines of turns."""

from trimtab.observe.observed import observed, when_watched

__all__ = ["observed", "when_watched"]
