"""Inbound messages and replies that wait."""
