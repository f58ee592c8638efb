"""Texts that replace hidden content."""
