"""A recorded conversation, run again under another policy."""
