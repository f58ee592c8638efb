"""Mail in PostgreSQL, and the queue of turns beside it."""
