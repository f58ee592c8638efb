"""What happened: messages, events, edits."""
