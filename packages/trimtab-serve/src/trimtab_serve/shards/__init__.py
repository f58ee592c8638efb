"""Several databases, each with its own processes: move sessions from one to another."""
