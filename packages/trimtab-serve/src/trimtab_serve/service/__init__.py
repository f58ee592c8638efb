"""Messages in, replies out."""
