"""What an agent is told at set times."""
