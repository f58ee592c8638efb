"""Where logs live: one protocol, on files and in PostgreSQL."""
