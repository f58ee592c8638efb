"""Queued messages in PostgreSQL, and the queue of turns beside them."""
