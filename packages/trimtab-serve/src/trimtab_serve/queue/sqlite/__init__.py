"""The SQLite database of one machine, for its queue and schedules."""
