"""The pure part: from messages to a request that fits."""
