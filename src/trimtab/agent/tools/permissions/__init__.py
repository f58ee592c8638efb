"""What a tool may do without asking."""
