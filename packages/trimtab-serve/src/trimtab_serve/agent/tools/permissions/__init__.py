"""Which calls of a tool may run without approval."""
