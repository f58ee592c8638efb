"""What happens in sessions, for whoever watches."""
