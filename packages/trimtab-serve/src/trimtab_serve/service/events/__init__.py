"""Live events of sessions for subscribers."""
