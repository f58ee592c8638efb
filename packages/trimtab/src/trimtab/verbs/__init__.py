"""What each verb of a context records: one file a story. Without I/O, locks and log lines."""
