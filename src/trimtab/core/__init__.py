"""The pure core: from a log of events to a window, and from a window to a prompt."""
