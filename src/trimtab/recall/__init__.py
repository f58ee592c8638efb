"""Looking back: what a handle names, and search."""
