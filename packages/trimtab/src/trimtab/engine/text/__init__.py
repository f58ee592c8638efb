"""Plain functions on texts."""
