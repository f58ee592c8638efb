"""What one machine keeps beside its sessions: one SQLite database for queue and schedules."""
