"""Messages that an agent gets at set times."""
