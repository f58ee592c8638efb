"""The message queue in PostgreSQL, and the jobs for its turns."""
