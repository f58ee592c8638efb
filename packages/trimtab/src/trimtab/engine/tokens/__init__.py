"""Sizes of texts, messages and requests."""
