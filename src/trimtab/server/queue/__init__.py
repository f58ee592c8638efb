"""Waiting messages and replies."""
